"""JSON, XML, front matter, tasks and aligned tables: values keep their branch, their name and their column."""

from __future__ import annotations

import json

import pytest

from retrieval.errors import ExtractError
from tests.retrieval.extraction.reading import read, written


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": {"b": {"timeout": 12, "host": "x"}}}, "a / b: timeout: 12; host: x."),
        ({"a": 1, "b": {"c": 2}}, "a: 1.\nb: c: 2."),
        ({"contacts": [{"name": "Yara"}, {"name": "Stellan"}]}, "contacts: name: Yara.\ncontacts: name: Stellan."),
        (
            {
                "orders": [
                    {"no": 7, "lines": [{"item": "bolt"}, {"item": "nut"}]},
                    {"no": 8, "lines": [{"item": "bolt"}]},
                ]
            },
            "orders: no: 7.\norders (no: 7) / lines: item: bolt.\norders (no: 7) / lines: item: nut.\n"
            "orders: no: 8.\norders (no: 8) / lines: item: bolt.",
        ),
        (
            [{"id": 1, "at": {"x": 4}}, {"id": 2, "at": {"x": 5}}],
            "id: 1.\nid: 1 / at: x: 4.\nid: 2.\nid: 2 / at: x: 5.",
        ),
        ({"a": [{"b": {"c": 1}}, {"b": {"c": 2}}]}, "a / b: c: 1.\na / b: c: 2."),
        ({"tags": ["red", "blue"]}, "tags: red, blue."),
        ({"on": True, "off": False, "none": None}, "on: true; off: false."),
        ([{"a": 1}, {"a": 2}], "a: 1.\na: 2."),
        ({"grid": [[1, 2], [3, 4]]}, "grid: 1: 1, 2.\ngrid: 2: 3, 4."),
        ("words", "words."),
        ({"a\ud83d": {"b\ud83d": 1}}, "a: b: 1."),
        ({"a": {}, "b": [], "c": ""}, '{"a": {}, "b": [], "c": ""}'),
    ],
)
def test_values_of_json_stand_behind_their_branch(tmp_path, value, text):
    assert read(written(tmp_path, "made.json", json.dumps(value))).text == text


def test_numbers_of_json_keep_their_digits_and_lists_leave_out_what_is_nothing(tmp_path):
    source = '{"price": 12.50, "id": 12345678901234567890.123, "of": [null, null], "in": ["x", null, "y"]}'
    assert read(written(tmp_path, "made.json", source)).text == "price: 12.50; id: 12345678901234567890.123; in: x, y."


@pytest.mark.parametrize("name", ["made.jsonl", "made.ndjson", "made.json"])
def test_lines_of_json_are_records(tmp_path, name):
    lines = '{"who": "Anna", "age": 5}\n\n{"who": "Ben", "at": {"town": "Voss"}}\n'
    assert read(written(tmp_path, name, lines)).text == "who: Anna; age: 5.\nwho: Ben.\nwho: Ben / at: town: Voss."


@pytest.mark.parametrize("source", ['{"a": 1}\n{"b"', '{"a": 1', "[" * 5000 + "]" * 5000, "// no JSON\n{}"])
def test_what_is_no_json_is_read_as_text(tmp_path, source):
    document = read(written(tmp_path, "made.json", source))
    assert document.pages[0].label.startswith("line")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<d><p><n>Anna</n><r>5</r></p><p><n>Ben</n></p></d>", "d / p: n: Anna; r: 5.\nd / p: n: Ben."),
        ('<d><p id="7">Anna</p></d>', "d / p: Anna; id: 7."),
        (
            '<d><p id="7"><c cur="EUR">1</c></p><p id="8"><c cur="EUR">2</c></p></d>',
            "d / p: id: 7.\nd / p (id: 7) / c: 1; cur: EUR.\nd / p: id: 8.\nd / p (id: 8) / c: 2; cur: EUR.",
        ),
        ('<d><p id="7"><c cur="EUR">1</c></p></d>', "d / p: id: 7.\nd / p / c: 1; cur: EUR."),
        ("<d><p>one <b>bold</b> word</p></d>", "one bold word"),
        ("<d><t>a</t><t>b</t></d>", "d: t: a, b."),
        ('<x:d xmlns:x="urn:x"><x:p>a</x:p></x:d>', "d: p: a."),
        ("<d>only</d>", "only"),
    ],
)
def test_values_of_xml_stand_behind_their_branch(tmp_path, source, text):
    assert read(written(tmp_path, "made.xml", source)).text == text


DEEP = f"<d><t>top</t>{'<a>' * 150}deep{'</a>' * 150}</d>"


@pytest.mark.parametrize("source", ["<d><p>", '<!DOCTYPE d [<!ENTITY a "ha">]><d>&a;</d>', "words & more", DEEP])
def test_what_is_no_plain_xml_is_read_as_text(tmp_path, source):
    assert read(written(tmp_path, "made.xml", source)).text == source


def test_front_matter_is_no_heading_but_says_what_the_file_is(tmp_path):
    document = read(
        written(tmp_path, "made.md", "---\ntitle: Plan\nowner: Anna\nauthor: Ben\n---\n\n# Heading\n\nText.")
    )
    assert document.text == "title: Plan\nowner: Anna\nauthor: Ben\n\nHeading\n\nText."
    assert document.title == "Plan" and document.metadata["author"] == "Ben"


def test_a_line_between_paragraphs_is_no_front_matter(tmp_path):
    assert read(written(tmp_path, "made.md", "---\n\nText.\n\n---\n\nMore.")).text == "Text.\n\nMore."


def test_tasks_say_whether_they_are_done(tmp_path):
    assert (
        read(written(tmp_path, "made.md", "- [x] one\n- [ ] two\n")).text
        == "- ☒ one (done)\n- ☐ two (still to be done)"
    )


def test_columns_of_a_plain_text_are_a_table(tmp_path):
    table = (
        "Belt    Parcels   Operator\n----    -------   -----\n1          8412   R. Amadi\n2                 S. Whelan\n"
    )
    document = read(written(tmp_path, "made.txt", f"Report.\n\n{table}\nThe end."))
    assert document.text == (
        "Report.\n\nBelt\tParcels\tOperator\nBelt: 1; Parcels: 8412; Operator: R. Amadi.\n"
        "Belt: 2; Operator: S. Whelan.\n\nThe end."
    )
    assert len(document.exhibits.tables) == 1


@pytest.mark.parametrize(
    "text",
    [
        "A paragraph of two\nlines  with a gap",
        "one  two  three\nwith  other  gaps here\nand words over  them all",
        "Dear Anna,\n\nnot indented\n    lines\n    only",
    ],
)
def test_other_texts_are_no_tables(tmp_path, text):
    assert read(written(tmp_path, "made.txt", text)).text == text


def test_a_calendar_is_read_in_words(tmp_path):
    source = (
        "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Acceptance\\, house 6\r\nLOCATION:Room 2\r\n .07\r\n"
        'DTSTART;TZID=Europe/Berlin:20261208T143000\r\nDTEND:20261208T150000Z\r\nATTENDEE;CN="Z, P":mailto:z@x\r\n'
        "BEGIN:VALARM\r\nDESCRIPTION:Reminder\r\nEND:VALARM\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    assert read(written(tmp_path, "made.ics", source)).text == (
        "Acceptance, house 6\n\nAcceptance, house 6: Where: Room 2.07.\n"
        "Acceptance, house 6: Begins: 2026-12-08 14:30 (Europe/Berlin).\n"
        "Acceptance, house 6: Ends: 2026-12-08 15:00 UTC.\nAcceptance, house 6: Attendee: Z, P <z@x>."
    )
    source = (
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Choir\nDTSTART:20260504\nEXDATE;TZID=Europe/Oslo:20260511T190000,20260518\n"
        "ATTENDEE;CN=Ann;PARTSTAT=DECLINED:mailto:a@x\nATTENDEE;PARTSTAT=NEEDS-ACTION:mailto:b@x\nCATEGORIES:Music\n"
        "END:VEVENT\nEND:VCALENDAR\n"
    )
    assert read(written(tmp_path, "made.ics", source)).text.split("\n")[2:] == [
        "Choir: Begins: 2026-05-04.",
        "Choir: Not on: 2026-05-11 19:00 (Europe/Oslo), 2026-05-18.",
        "Choir: Attendee: Ann <a@x> (declined).",
        "Choir: Attendee: b@x.",
        "Choir: Kind: Music.",
    ]
    source = (
        'BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Choir\nDTSTART;TZID="(UTC+01:00) Berlin":20260504T190000\n'
        'DESCRIPTION;ALTREP="data:text/html,%3Cp%3EBring keys":Bring keys\u2028and: maps\nEND:VEVENT\nEND:VCALENDAR\n'
    )
    assert read(written(tmp_path, "made.ics", source)).text.split("\n")[2:] == [
        "Choir: Begins: 2026-05-04 19:00 ((UTC+01:00) Berlin).",
        "Choir: Description: Bring keys and: maps.",
    ]
    with pytest.raises(ExtractError, match="not a calendar"):
        read(written(tmp_path, "other.ics", "words"))


ALTERNATIVES = (
    "Subject: dam\nMIME-Version: 1.0\nContent-Type: multipart/alternative; boundary=B\n\n--B\n"
    "Content-Type: text/plain\n\n{}\n--B\nContent-Type: text/html\n\n<p>{}</p>\n--B--\n"
)


@pytest.mark.parametrize(
    ("plain", "page", "shown"),
    [
        ("Please use another program.", "The dam was raised in 1951 by Anna, who also paid for it.", "page"),
        ("The dam was raised in 1951.", "The dam was raised in 1951.", "plain"),
        ("The dam was raised in 1951, by Anna.", "The dam was raised in <b>1951</b>, by Anna. Bye", "plain"),
    ],
)
def test_a_plain_stub_does_not_hide_the_page_behind_it(tmp_path, plain, page, shown):
    text = read(written(tmp_path, "made.eml", ALTERNATIVES.format(plain, page))).text
    assert text.endswith(plain if shown == "plain" else page)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            "New.\n\nOn Monday Anna wrote:\n> Old.\n> More.\n",
            "New.\n\nEarlier message, quoted: On Monday Anna wrote: Old. More.",
        ),
        ("New.\nAnna schrieb:\n> Old.\nBo\n", "New.\n\nEarlier message, quoted: Anna schrieb: Old.\n\nBo"),
        (
            "> Old?\nNo.\n> And now?\nYes.\n",
            "Earlier message, quoted: Old?\n\nNo.\n\nEarlier message, quoted: And now?\n\nYes.",
        ),
        ("> Old?\n\nNew.\n", "Earlier message, quoted: Old?\n\nNew."),
        ("> only\n> this\n", "only\nthis"),
        ("No reply at all: a > b.\n", "No reply at all: a > b."),
        (">> Oldest.\n>\n> Old.\n\nNew.", "Earlier message, quoted: Oldest.\n\nEarlier message, quoted: Old.\n\nNew."),
    ],
)
def test_what_a_reply_quotes_is_told_from_the_reply(tmp_path, body, text):
    document = read(written(tmp_path, "made.eml", f"Subject: dam\n\n{body}"))
    assert document.text == f"dam\n\n{text}"


def test_a_mailbox_gives_every_message_with_its_attachments(tmp_path):
    one = "From a@x Mon Oct 12 10:00:00 2026\nSubject: One\nFrom: a@x\n\nFirst.\n\n"
    two = (
        "From b@x Mon Oct 12 11:00:00 2026\nSubject: Two\nMIME-Version: 1.0\nContent-Type: multipart/mixed; "
        "boundary=B\n\n--B\nContent-Type: text/plain\n\nSecond.\n--B\n"
        "Content-Disposition: attachment; filename=a.txt\n\nThird.\n--B--\n\n"
    )
    document = read(written(tmp_path, "made.mbox", one + two))
    assert [page.label for page in document.pages] == ["message 1 (One)", "message 2 (Two)", "attachment a.txt"]
    assert "First." in document.text and document.text.endswith("Third.")


LOCKED = "From c@x Mon Oct 12 12:00:00 2026\nSubject: Locked\nContent-Type: application/pkcs7-mime\n\nAAAA\n\n"


@pytest.mark.parametrize(
    ("message", "reason"),
    [(LOCKED, "This e-mail is encrypted"), ("From me\n\nOdd.\n\n", "The file is not an e-mail")],
)
def test_a_message_that_cannot_be_read_costs_no_other_of_its_mailbox(tmp_path, message, reason):
    one = "From a@x Mon Oct 12 10:00:00 2026\nSubject: One\nFrom: a@x\n\nFirst.\n\n"
    document = read(written(tmp_path, "made.mbox", message + one))
    assert document.text.endswith("First.") and document.pages[0].label == "message 2 (One)"
    assert document.notes[0].startswith(f"Message 1 was not read: {reason}")
    with pytest.raises(ExtractError, match=reason):
        read(written(tmp_path, "made.mbox", message))


@pytest.mark.parametrize(
    "above", ["<h2>{}</h2>", "<h2>Prices</h2><p>{}:</p>", "<h2>{}</h2><p>All prices are in euros, with tax.</p>"]
)
def test_rows_of_tables_of_one_layout_stand_behind_what_names_their_table(tmp_path, above):
    rows = "<table><tr><th>Seat<th>Price<th>Left<tr><td>Stalls<td>{}<td>3<tr><td>Circle<td>{}<td>4</table>"
    page = above.format("Matinee") + rows.format(20, 15) + above.format("Evening") + rows.format(31, 24)
    text = read(written(tmp_path, "made.html", page)).text
    assert "Matinee; Seat: Circle; Price: 15; Left: 4." in text
    assert "Evening; Seat: Stalls; Price: 31; Left: 3." in text


def test_rows_of_tables_with_other_rows_stand_alone(tmp_path):
    rows = "<h2>{}</h2><table><tr><th>Seat<th>Price<th>Left<tr><td>{}<td>1<td>3<tr><td>{}<td>2<td>4</table>"
    page = rows.format("Matinee", "Stalls", "Circle") + rows.format("Evening", "Stalls", "Box")
    assert "\nSeat: Circle; Price: 2; Left: 4." in read(written(tmp_path, "made.html", page)).text


def test_labels_that_stand_below_several_headings_are_said_with_their_heading(tmp_path):
    page = "<h2>Collected from</h2><p>Street: Vine Hill 8<br>Floor: 4</p><h2>Brought to</h2><p>Street: Quay 2</p>"
    assert read(written(tmp_path, "made.html", page + "<h2>Price</h2><p>Sum: 12</p>")).text == (
        "Collected from\n\nCollected from: Street: Vine Hill 8\nCollected from: Floor: 4\n\n"
        "Brought to\n\nBrought to: Street: Quay 2\n\nPrice\n\nSum: 12"
    )


@pytest.mark.parametrize(
    ("heads", "rows", "lines"),
    [
        (("Detail", "Value"), (("Code", "QF7"), ("Cabin", "42, outside")), ("Code: QF7.", "Cabin: 42, outside.")),
        (("Merkmal", "Wert"), (("Farbe", "rot"), ("Breite", "4 cm")), ("Farbe: rot.", "Breite: 4 cm.")),
        (("Property", "Values"), (("Legs", "4"), ("Arms", "2")), ("Legs: 4.", "Arms: 2.")),
        (("Champ", "Valeur"), (("Nom", "Ana"), ("Âge", "31")), ("Nom: Ana.", "Âge: 31.")),
        (("Item", "Price"), (("Pump", "4"), ("Hose", "2")), ("Item: Pump; Price: 4.", "Item: Hose; Price: 2.")),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "html", "md"])
def test_rows_of_labels_and_values_are_named_by_their_label(tmp_path, heads, rows, lines, ending):
    table = [heads, *rows]
    cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in table[1:]]
    names = "".join(f"<th>{name}</th>" for name in heads)
    made = {
        "csv": "\n".join(",".join(f'"{cell}"' for cell in row) for row in table),
        "html": f"<table><tr>{names}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>",
        "md": "\n".join(f"| {' | '.join(row)} |" for row in (heads, ("---", "---"), *rows)),
    }
    text = read(written(tmp_path, f"made.{ending}", made[ending])).text
    assert text.split("\n") == ["\t".join(heads), *lines]
