"""E-mails of every making with their attachments; and those that are odd, broken or hostile."""

from __future__ import annotations

from email.message import EmailMessage

import openpyxl
import pytest

from model.scoring.sentences import is_row
from retrieval.errors import ExtractError
from retrieval.extraction.extract import extract
from tests.retrieval.compound_file import compound_file, outlook_message
from tests.retrieval.extraction.reading import OLE, SMALL, read, written
from tests.retrieval.pdf_maker import Sheet, make_pdf


def message(text: str = "The crane costs 70.", subject: str = "Harbour plan") -> EmailMessage:
    made = EmailMessage()
    made["Subject"], made["From"], made["To"] = subject, "Bob <bob@example.org>", "anna@example.org"
    made["Date"] = "Mon, 02 Nov 2026 10:00:00 +0000"
    made.set_content(text)
    return made


def attach(made: EmailMessage, name: str, data: bytes, kind: str = "application/octet-stream") -> EmailMessage:
    made.add_attachment(data, *kind.split("/"), filename=name)
    return made


def workbook(tmp_path) -> bytes:
    book = openpyxl.Workbook()
    book.active.title = "Budget"
    for row in (["Item", "Cost"], ["Pier", 12]):
        book.active.append(row)
    book.save(tmp_path / "inner.xlsx")
    return (tmp_path / "inner.xlsx").read_bytes()


def test_an_e_mail_is_its_head_its_text_and_its_attachments_each_under_its_name(tmp_path):
    made = attach(
        message(), "plan.pdf", make_pdf([Sheet([(72, 700, 12, "First page")]), Sheet([(72, 700, 12, "Second page")])])
    )
    attach(made, "costs.xlsx", workbook(tmp_path))
    document = extract(written(tmp_path, "made.eml", made.as_bytes()))
    assert document.text.startswith(
        "Harbour plan\n\nFrom: Bob <bob@example.org>; To: anna@example.org; "
        "Date: Mon, 02 Nov 2026 10:00:00 +0000.\n\nThe crane costs 70.\n\nFirst page"
    )
    assert "Item: Pier; Cost: 12." in document.text
    assert [page.label for page in document.pages] == [
        "the message", "attachment plan.pdf, page 1", "attachment plan.pdf, page 2",
        "attachment costs.xlsx, sheet Budget",
    ]  # fmt: skip
    assert document.title == "Harbour plan" and document.metadata["author"] == "Bob <bob@example.org>"


def test_of_two_wordings_the_plain_one_is_read_and_html_alone_is_read_too(tmp_path):
    both = message("The plain words.")
    both.add_alternative("<p>The <b>rich</b> words.</p>", subtype="html")
    text = read(written(tmp_path, "both.eml", both.as_bytes())).text
    assert "The plain words." in text and "rich" not in text
    rich = message()
    rich.set_content("<p>Only <b>rich</b> words.</p>", subtype="html")
    assert "Only rich words." in read(written(tmp_path, "rich.eml", rich.as_bytes())).text


def test_messages_within_messages_are_read_until_they_are_too_deep(tmp_path):
    made = message("level 0")
    for level in range(1, 6):
        outer = message(f"level {level}")
        outer.add_attachment(made)
        made = outer
    document = read(written(tmp_path, "deep.eml", made.as_bytes()))
    assert "level 5" in document.text and "level 3" in document.text and "level 0" not in document.text
    assert "nested too deeply" in document.notes[0]


def torn(packed: bytes) -> bytes:
    """A packed file of which a part can no longer be unpacked."""
    at = packed.index(b"xl/worksheets/sheet1.xml") + 60
    return packed[:at] + bytes(255 - byte for byte in packed[at : at + 20]) + packed[at + 20 :]


@pytest.mark.parametrize(
    ("head", "data", "words"),
    [
        ("Content-Type: text/plain\nContent-Disposition: attachment", b"The crane is red.", "The crane is red."),
        ("Content-Type: text/csv", b"Item,Cost\nPier,12", "Item: Pier; Cost: 12."),
        (
            "Content-Type: message/rfc822",
            b"Subject: Gr\xfc\xdfe " + b"x" * 100 + b"\n\nThe red one.",
            "The red one.",
        ),
    ],
)
def test_attachments_without_a_name_and_forwarded_messages_with_odd_heads_are_read(tmp_path, head, data, words):
    made = (
        "Subject: dam\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n"
        f"--B\nContent-Type: text/plain\n\nMain.\n--B\n{head}\n\n"
    )
    assert read(written(tmp_path, "made.eml", made.encode() + data + b"\n--B--\n")).text.endswith(words)


def test_attachments_that_cannot_be_read_are_named_and_the_rest_is_read(tmp_path):
    made = attach(message(), "broken.pdf", b"%PDF-1.7 broken")
    attach(made, "torn.xlsx", torn(workbook(tmp_path)))
    (tmp_path / "inner.xlsx").unlink()
    attach(made, "virus.exe", b"MZ")
    attach(made, "empty.txt", b"")
    attach(made, "picture.txt", b"\x89PNG\r\n\x1a\n\0\0")
    attach(made, "../../etc/evil.txt", b"harmless words")
    document = read(written(tmp_path, "some.eml", made.as_bytes()))
    assert [note.split(" was not read")[0] for note in document.notes] == [
        "The attachment broken.pdf", "The attachment torn.xlsx", "The attachment virus.exe", "The attachment empty.txt",
        "The attachment picture.txt",
    ]  # fmt: skip
    assert document.pages[1].label == "attachment evil.txt" and "harmless words" in document.text
    assert [path.name for path in tmp_path.iterdir()] == ["some.eml"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"Subject: =?iso-8859-1?Q?Gr=FC=DFe?=\n\nhallo", "Grüße"),
        (b"Subject: x\nContent-Type: text/plain; charset=iso-8859-1\n\nK\xf6ln", "Köln"),
        (b"Subject: x\nContent-Type: text/plain; charset=unknown-8\n\nK\xf6ln", "Köln"),
        (b"Subject: x\nContent-Transfer-Encoding: base64\n\naGFsbG8gd2VsdA==", "hallo welt"),
        (b"Subject: x\nContent-Type: multipart/mixed; boundary=B\n\n--B\n\ncut in the mid", "cut in the mid"),
        (b"Subject: x\r\nFrom: a@b\r\n\r\nline\r\nend", "line\nend"),
        (b"Received: y\nSubject: " + b"\xff\xfe" + b"\n\nodd head", "odd head"),
        (b"From: Ann <\nSubject: x\n\nodd head", "From: Ann <"),
        (b'Subject: x\nTo: "\n\nodd head', "odd head"),
    ],
)
def test_e_mails_in_every_encoding_give_their_words(tmp_path, data, words):
    document = read(written(tmp_path, "odd.eml", data))
    assert words in document.text
    assert any("was guessed" in note for note in document.notes) == (b"unknown-8" in data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"only words", "not an e-mail"),
        (bytes(range(256)) * 9, "not an e-mail"),
        (b"Subject: x\nContent-Type: application/pkcs7-mime\n\nAAAA", "encrypted"),
        (b"Subject: x\nContent-Type: multipart/encrypted; boundary=B\n\n--B\n\nAAAA", "encrypted"),
        (b"Subject: x\n\n" + b"word " * 6000, "more than 20,000 characters"),
        (OLE, "not an e-mail"),
    ],
)
def test_odd_e_mails_are_refused_with_their_reason(tmp_path, data, reason):
    with pytest.raises(ExtractError, match=reason):
        read(written(tmp_path, "odd.eml", data), SMALL)


def test_a_message_of_outlook_is_read_like_any_other_e_mail(tmp_path):
    data = outlook_message("Harbour plan", "The crane costs 70.", "Bob", {"list.csv": b"Item,Cost\nPier,5\n"})
    document = extract(written(tmp_path, "made.msg", data))
    assert document.text == (
        'Harbour plan\n\nFrom: "Bob" <sender@example.org>; To: Anna <anna@example.org>.\n\n'
        "The crane costs 70.\n\nItem\tCost\nItem: Pier; Cost: 5."
    )
    assert [page.label for page in document.pages] == ["the message", "attachment list.csv, the table"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("words", "not saved by Outlook"),
        ("empty container", "is damaged"),
        ("cut", "is damaged"),
        ("noise", "is damaged"),
        ("only the mark", "is damaged"),
        ("half", "is damaged"),
        ("a workbook", "is damaged"),
        ("loop", "is damaged|no text"),
        ("encrypted", "encrypted"),
        ("too long", "more than 20,000 characters"),
    ],
)
def test_odd_messages_of_outlook_are_refused_with_their_reason(tmp_path, kind, reason):
    whole = outlook_message("Plan", "words " * (9000 if kind == "too long" else 20))
    data = {
        "words": b"only words",
        "empty container": compound_file({}),
        "cut": whole[:2000],
        "only the mark": OLE[:8],
        "half": whole[: len(whole) // 2],
        "noise": whole[:512] + bytes(range(256)) * 8,
        "a workbook": compound_file({"Workbook": b"cells"}),
        "loop": whole[:76] + b"\0\0\0\0" * 109 + whole[512:],
        "encrypted": outlook_message("Plan", "", kind="IPM.Note.SMIME", attachments={"smime.p7m": b"0\x80"}),
        "too long": whole,
    }[kind]
    with pytest.raises(ExtractError, match=reason):
        read(written(tmp_path, "odd.msg", data), SMALL)


def test_the_text_of_an_outlook_message_is_read_like_that_of_any_other_e_mail(tmp_path):
    body = "Quay\tDepth\tBerths\r\nNorth\t4.5\t12\r\nSouth\t3.2\t8\r\n\r\nBob wrote:\r\n> Which quays?\r\n"
    document = read(written(tmp_path, "made.msg", outlook_message("Quays", body)))
    assert "Quay: South; Depth: 3.2; Berths: 8." in document.text
    assert document.text.endswith("Earlier message, quoted: Bob wrote: Which quays?")


def test_bad_attachments_of_outlook_messages_are_named_and_foreign_letters_kept(tmp_path):
    data = outlook_message("Köln 東京", "Grüße", attachments={"broken.docx": b"PK\x03\x04broken", "x.exe": b"MZ"})
    document = read(written(tmp_path, "made.msg", data))
    assert document.title == "Köln 東京" and "Grüße" in document.text
    assert [note.split(" was")[0] for note in document.notes] == [
        "The attachment broken.docx", "The attachment x.exe",
    ]  # fmt: skip


def test_the_head_of_a_message_is_a_row_below_its_subject(tmp_path):
    made = b"Subject: Boats\r\nFrom: Ana <a@b.c>\r\nDate: Mon, 2 Nov 2026 10:00:00 +0000\r\n\r\nThey leak."
    head = "From: Ana <a@b.c>; Date: Mon, 02 Nov 2026 10:00:00 +0000."
    text = extract(written(tmp_path, "made.eml", made)).text
    assert text == f"Boats\n\n{head}\n\nThey leak." and is_row(head)
