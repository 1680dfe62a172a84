"""What was filled into the fields of a PDF form: read beside its label, and drawn on the page."""

from __future__ import annotations

import io
from pathlib import Path

import pypdf
import pytest
from PIL import Image

from retrieval.extraction.extract import extract, render_page
from tests.retrieval.extraction.test_tables import borders, drawn
from tests.retrieval.pdf_maker import Sheet, column, make_pdf, write_objects

FILLED = {"Family name": "Okonkwo", "Given names": "Ada Maria", "Date of birth": "14 March 1979", "Fee": "42.50 pounds"}


def stream(content: bytes, more: bytes = b"") -> bytes:
    return b"<< %s /Length %d >>\nstream\n%s\nendstream" % (more, len(content), content)


def form(folder: Path, *, prose: bool = False) -> Path:
    """Labels on the left, fields on the right, and perhaps two columns of explanations below."""
    lines = [(72, 700 - 34 * n, 11, label) for n, label in enumerate(FILLED)]
    if prose:
        lines += [*column(72, 500, 14, width=40), *column(320, 500, 14, width=40, first=20)]
    drawn = "".join(f"BT /F1 {size} Tf {x} {y} Td ({text}) Tj ET\n" for x, y, size, text in lines)
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    first = 6  # of the fields, each with its appearance behind it
    fields = b" ".join(b"%d 0 R" % (first + 2 * n) for n in range(len(FILLED)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [%s] /DR << /Font << /F1 3 0 R >> >> >> >>" % fields,
        b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        font,
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents 5 0 R "
        b"/Annots [%s] >>" % fields,
        stream(drawn.encode()),
    ]
    for n, value in enumerate(FILLED.values()):
        bottom = 695 - 34 * n
        objects.append(
            b"<< /Type /Annot /Subtype /Widget /FT /Tx /F 4 /T (f%d) /V (%s) /Rect [220 %d 520 %d] /P 4 0 R "
            b"/DA (/F1 11 Tf 0 g) /AP << /N %d 0 R >> >>" % (n, value.encode(), bottom, bottom + 20, first + 2 * n + 1)
        )
        shown = b"/Tx BMC BT /F1 11 Tf 2 6 Td (%s) Tj ET EMC" % value.encode()
        more = b"/Type /XObject /Subtype /Form /BBox [0 0 300 20] /Resources << /Font << /F1 3 0 R >> >>"
        objects.append(stream(shown, more))
    path = folder / "form.pdf"
    path.write_bytes(write_objects(objects))
    return path


@pytest.mark.parametrize("prose", [False, True])
def test_what_was_filled_in_stands_beside_its_label(tmp_path: Path, prose: bool) -> None:
    document = extract(form(tmp_path, prose=prose))
    rows = [f"{label}: {value}." for label, value in FILLED.items()]
    assert document.text.replace("\n\n", "\n").startswith("\n".join(rows))
    start = document.text.index("Okonkwo")
    (box,) = document.boxes(start, start + len("Okonkwo"))
    assert 220 / 612 < box.x0 < box.x1 < 300 / 612
    if prose:  # whose columns are read one after the other as ever
        first, second = (column(72, 0, 14, width=40, first=n) for n in (0, 20))
        assert squeezed(first) + squeezed(second) in squeezed([(0, 0, 0, document.text)])


def squeezed(lines: list[tuple[float, float, float, str]]) -> str:
    return "".join("".join(line.split()) for *_, line in lines)


def test_what_was_filled_in_is_drawn_on_the_page(tmp_path: Path) -> None:
    drawn = Image.open(io.BytesIO(render_page(form(tmp_path), 0, width_px=612))).convert("L")
    assert drawn.crop((221, 78, 300, 96)).getextrema()[0] < 128, "ink where the first field is"


Words = tuple[float, float, float, str]


def made(
    folder: Path,
    texts: list[Words],
    widgets: list[tuple[str, str]],
    *,
    more: list[str] | None = None,
    drawing: bytes = b"",
) -> str:
    """The text of a page with some words and fields, each with what draws its value ("" where nothing does)."""
    first = 6
    numbers = [first + 2 * n for n in range(len(widgets))]
    fields = " ".join(f"{n} 0 R" for n in numbers)
    others = " ".join(f"{first + 2 * len(widgets) + n} 0 R" for n in range(len(more or [])))
    printed = "".join(f"BT /F1 {size} Tf {x} {y} Td ({text}) Tj ET\n" for x, y, size, text in texts)
    fonts = "/Resources << /Font << /F1 3 0 R >> >>"
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [{fields}] /DR << /Font << /F1 3 0 R >> >> >> >>",
        "<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {fonts} /Contents 5 0 R /Annots [{fields} {others}] >>",
    ]
    made_objects = [each.encode() for each in objects] + [stream(printed.encode("cp1252") + drawing)]
    for number, (widget, shown) in zip(numbers, widgets, strict=True):
        made_objects.append(widget.replace("$AP", f"{number + 1} 0 R").encode())
        made_objects.append(stream(shown.encode(), f"/Subtype /Form /BBox [0 0 300 20] {fonts}".encode()))
    made_objects += [each.encode() for each in more or []]
    path = folder / "made.pdf"
    path.write_bytes(write_objects(made_objects))
    return extract(path).text


def value(x: float, y: float, text: str, *, kind: str = "/Tx", wide: float = 200, more: str = "", drawn: bool = True):
    shown = f"/Tx BMC BT /F1 11 Tf 2 6 Td ({text}) Tj ET EMC" if drawn else ""
    appearance = "/AP << /N $AP >>" if drawn else ""
    widget = (
        f"<< /Type /Annot /Subtype /Widget /FT {kind} /F 4 /T (f{x}{y}) /V ({text}) /DA (/F1 11 Tf 0 g) "
        f"/Rect [{x} {y - 5} {x + wide} {y + 15}] /P 4 0 R {appearance} {more} >>"
    )
    return widget, shown


def box(x: float, y: float, ticked: bool, *, radio: bool = False):
    state, flags = ("Yes" if ticked else "Off"), (1 << 15 if radio else 0)
    widget = (
        f"<< /Type /Annot /Subtype /Widget /FT /Btn /Ff {flags} /F 4 /T (b{x}{y}) /V /{state} /AS /{state} "
        f"/Rect [{x} {y - 2} {x + 10} {y + 8}] /P 4 0 R /AP << /N << /Yes $AP /Off $AP >> >> >>"
    )
    return widget, "0 0 10 10 re S"


@pytest.mark.parametrize("radio", [False, True])
def test_what_is_ticked_stands_with_its_question_and_the_rest_apart(tmp_path, radio):
    options = [("Morning", False), ("Afternoon", False), ("Evening", True)]
    texts = [(60, 700, 11, "When would it suit you?"), *((84, 670 - 26 * n, 10, o) for n, (o, _) in enumerate(options))]
    boxes = [box(62, 670 - 26 * n, ticked, radio=radio) for n, (_, ticked) in enumerate(options)]
    assert made(tmp_path, texts, boxes).split("\n") == [
        "When would it suit you? ticked ☒ Evening.",
        "Left empty: Morning, Afternoon.",
    ]


def test_boxes_in_the_line_of_their_question_are_told_apart(tmp_path):
    texts = [(60, 700, 10, "Smoker"), (160, 700, 10, "Yes"), (220, 700, 10, "No"), (60, 670, 10, "I accept the terms")]
    boxes = [box(145, 700, False), box(205, 700, True), box(45, 670, True)]
    lines = made(tmp_path, texts, boxes).split("\n")
    assert "Smoker: ticked ☒ No." in lines and "Left empty: Yes." in lines and "☒ I accept the terms." in lines


def test_a_rule_drawn_with_a_sign_before_the_boxes_is_no_question(tmp_path):
    texts = [(60, 700, 10, "|"), (84, 700, 10, "Yes"), (130, 700, 10, "No"), (60, 660, 10, "Signed in June.")]
    text = made(tmp_path, texts, [box(70, 700, False), box(116, 700, False)])
    assert text.split("\n\n") == ["Left empty: Yes, No.", "Signed in June."]


def test_several_ticks_are_all_said_and_none_is_too(tmp_path):
    texts = [(60, 700, 11, "Meals"), *((84, 670 - 20 * n, 10, o) for n, o in enumerate(("Fish", "Meat", "Greens")))]
    boxes = [box(62, 670 - 20 * n, n != 1) for n in range(3)]
    assert made(tmp_path, texts, boxes).split("\n")[:2] == ["Meals: ticked ☒ Fish, ☒ Greens.", "Left empty: Meat."]
    assert made(tmp_path, texts, [box(62, 670 - 20 * n, False) for n in range(3)]).split("\n") == [
        "Meals", "Left empty: Fish, Meat, Greens.",
    ]  # fmt: skip


LABELLED = {
    "beside": ([(60, 700, 10, "Zone"), (60, 670, 10, "Fuel")], [value(200, 700, "Station"), value(200, 670, "Gas")]),
    "drop-down": ([(60, 700, 10, "Zone")], [value(200, 700, "Station", kind="/Ch", more="/Ff 131072 /Opt [(A) (B)]")]),
    "above": ([(60, 700, 8, "Zone"), (300, 700, 8, "Fuel")], [value(58, 684, "Station"), value(298, 684, "Gas")]),
    "with colons": ([(60, 700, 10, "Zone:"), (300, 700, 10, "Fuel:")],
                    [value(120, 700, "Station", wide=100), value(360, 700, "Gas", wide=100)]),
    "not drawn": ([(60, 700, 10, "Zone"), (60, 670, 10, "Fuel")],
                  [value(200, 700, "Station", drawn=False), value(200, 670, "Gas", drawn=False)]),
    "asked": ([(60, 700, 10, "Which zone?")], [value(200, 700, "Station")]),
}  # fmt: skip


@pytest.mark.parametrize("layout", LABELLED)
def test_a_value_stands_behind_its_label_however_they_are_set(tmp_path, layout):
    lines = made(tmp_path, *LABELLED[layout]).replace("\n\n", "\n").split("\n")
    assert lines[0] == ("Which zone? Station." if layout == "asked" else "Zone: Station.")
    assert len(LABELLED[layout][1]) == 1 or lines[1] == "Fuel: Gas."


def test_a_comb_field_is_read_as_one_word(tmp_path):
    cells = "".join(f"BT /F1 11 Tf {4 + 20 * n} 6 Td ({digit}) Tj ET " for n, digit in enumerate("204417"))
    widget, _ = value(200, 700, "204417", wide=120, more=f"/Ff {1 << 24} /MaxLen 6")
    assert made(tmp_path, [(60, 700, 10, "Member number")], [(widget, cells)]) == "Member number: 204417."


def test_the_first_of_the_filled_fields_is_no_heading_of_a_table(tmp_path):
    rows = [("Name", "Petrel"), ("Owner", "Maud Hill"), ("Length", "7.35"), ("Berth", "18"), ("Beam", "2.10")]
    texts = [(60, 700 - 22 * n, 10, label) for n, (label, _) in enumerate(rows)]
    lines = made(tmp_path, texts, [value(200, 700 - 22 * n, text) for n, (_, text) in enumerate(rows)])
    assert lines.replace("\n\n", "\n").split("\n") == [f"{label}: {text}." for label, text in rows]


def test_pairs_of_labels_and_values_on_invoices_are_sentences(tmp_path):
    rows = [("Invoice number:", "2026-07", "Customer:", "Parish of Ebba"), ("Due date:", "13 May", "Order:", "B 77")]
    texts = [(x, 700 - 16 * n, 10, text) for n, row in enumerate(rows)
             for x, text in zip((60, 160, 300, 400), row, strict=True)]  # fmt: skip
    assert made(tmp_path, texts, []).split("\n") == [
        "Invoice number: 2026-07.", "Customer: Parish of Ebba.", "Due date: 13 May.", "Order: B 77.",
    ]  # fmt: skip


def test_labels_in_small_print_belong_to_the_values_below_them(tmp_path):
    rows = [("PALLETS", "GROSS WEIGHT", "TEMPERATURE"), ("11", "6,240 kg", "4 degrees"),
            ("DRIVER", "SEAL NUMBER", "Order no."), ("Anouk", "S-99102", "A-7731")]  # fmt: skip
    texts = [(60 + 160 * n, 700 - (32 * (row // 2) + 12 * (row % 2)), 10 if row % 2 else 7, text)
             for row, cells in enumerate(rows) for n, text in enumerate(cells)]  # fmt: skip
    pairs = [pair for labels, values in (rows[:2], rows[2:]) for pair in zip(labels, values, strict=True)]
    assert [line for line in made(tmp_path, texts, []).split("\n") if line] == [f"{a}: {b}." for a, b in pairs]


def test_sentences_in_small_print_are_no_labels(tmp_path):
    notes = ["All prices are without tax.", "Sent on Monday.", "Paid at once."]
    texts = [(60 + 160 * n, y, size, text) for y, size, row in ((712, 7, notes), (700, 10, ["11", "12", "13"]))
             for n, text in enumerate(row)]  # fmt: skip
    assert "tax.: 11" not in made(tmp_path, texts, []) and "\t" in made(tmp_path, texts, [])


def test_a_question_whose_boxes_are_left_empty_is_no_value_of_the_labels_above_it(tmp_path):
    labels = [(60 + 160 * n, 712, 7, label) for n, label in enumerate(("PATIENT", "DOCTOR", "WARD"))]
    texts = [*labels, (60, 700, 10, "Smoker"), (160, 700, 10, "Yes")]
    lines = made(tmp_path, texts, [box(145, 700, False)]).split("\n")
    assert "Smoker" in lines and "Left empty: Yes." in lines


def test_amounts_behind_a_few_words_are_sentences(tmp_path):
    rows = [("Subtotal", "29.00"), ("TO PAY", "34.00"), ("Cash", "50.00"), ("Change", "16.00")]
    texts = [(x, 700 - 14 * n, 10, text) for n, row in enumerate(rows) for x, text in zip((60, 220), row, strict=True)]
    assert made(tmp_path, texts, []).split("\n") == [f"{label}: {amount}." for label, amount in rows]


def annotation(kind: str, text: str, more: str = "") -> str:
    return f"<< /Type /Annot /Subtype /{kind} /Rect [300 690 320 710] /Contents ({text}) {more} >>"


def test_comments_on_a_page_are_read_and_say_what_they_are(tmp_path):
    quad = "/QuadPoints [98 710 148 710 98 696 148 696]"
    comments = [annotation("Text", "The tent is too small.", "/T (R. Ashgrove)"), annotation("Square", "Check this."),
                annotation("Highlight", "It is under water.", quad), annotation("FreeText", "Insured for 75,000."),
                annotation("Text", "Nobody sees it.", "/F 2"), annotation("Link", "")]  # fmt: skip
    text = made(tmp_path, [(72, 700, 10, "In the lower field of the farm races are held.")], [], more=comments)
    assert text.split("\n\n") == [
        "In the lower field of the farm races are held.",
        "Comment by R. Ashgrove: The tent is too small.",
        "Comment: Check this.",
        "Comment on “lower field”: It is under water.",
        "Insured for 75,000.",
    ]


def test_a_comment_without_end_is_read_as_far_as_any_text_beside_a_page(tmp_path):
    text = made(tmp_path, [(72, 700, 10, "The tent is blue.")], [], more=[annotation("Text", "word " * 10_000)])
    assert text.startswith("The tent is blue.\n\nComment: word word") and 19_000 < len(text) < 21_000
    assert "\0" not in text


def test_what_a_comment_strikes_out_is_set_aside(tmp_path):
    struck = annotation("StrikeOut", "", "/QuadPoints [60 690 300 690 60 670 300 670]")
    text = made(tmp_path, [(72, 700, 10, "The fee is 40 euros."), (72, 680, 10, "It was 30 euros.")], [], more=[struck])
    assert text == "The fee is 40 euros."
    document = extract(tmp_path / "made.pdf")
    assert [(aside.kind, aside.text) for aside in document.asides] == [("deleted", "It was 30 euros.")]


def test_files_inside_of_the_file_that_are_too_many_are_told(tmp_path):
    path = tmp_path / "portfolio.pdf"
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(make_pdf([Sheet([(72, 700, 10, "A portfolio of notes.")])])))
    for number in range(502):
        writer.add_attachment(f"{number}.txt", b"note")
    writer.write(path)
    assert "Only the first 500 of 502 attachments were read." in extract(path).notes


def test_a_file_inside_of_the_file_that_is_missing_is_told(tmp_path):
    path = tmp_path / "tender.pdf"
    missing = "/Names << /EmbeddedFiles << /Names [(works.txt) 99 0 R] >> >>"
    path.write_bytes(make_pdf([Sheet([(72, 700, 10, "Offers are opened in June.")])], extra=missing))
    document = extract(path)
    assert document.text == "Offers are opened in June."
    assert document.notes == ("The list of attached files is damaged: file 1 was not found.",)


def test_a_box_at_the_edge_of_the_page_may_stand_in_a_table(tmp_path):
    edges = (300, 400, 500, 640)
    table = borders(3, edges=edges) + drawn([("Region", "Price"), ("North", "41.50"), ("South", "39.10")], edges=edges)
    made(tmp_path, [(504, 686, 10, "Paid")], [box(605, 668, True)], drawing=table)
    (table,) = extract(tmp_path / "made.pdf").exhibits.tables
    assert table.box is not None and table.box.x1 == 1


def test_files_inside_of_the_file_are_read_behind_its_pages(tmp_path):
    path = tmp_path / "tender.pdf"
    path.write_bytes(make_pdf([Sheet([(72, 700, 10, "Offers are opened in June.")])]))
    writer = pypdf.PdfWriter(clone_from=path)
    writer.add_attachment("works.txt", b"The boards are of larch.")
    writer.add_attachment("terms.pdf", make_pdf([Sheet([(72, 700, 10, "A third is paid at once.")])]))
    writer.add_attachment("plan.dwg", b"AC1032 ...")
    writer.add_attachment("factur-x.xml", b"<rsm:CrossIndustryInvoice/>")
    writer.write(path)
    document = extract(path)
    first, *attached = document.text.split("\n\n")
    assert first == "Offers are opened in June."
    assert sorted(attached) == [
        "A third is paid at once.", "The boards are of larch.", "attached file terms.pdf, page 1",
        "attached file works.txt",
    ]  # fmt: skip
    assert document.pages[0].end == len(document.text) and not document.boxes(len(first), len(document.text))
    assert sorted("plan.dwg" in note or "factur-x.xml" in note for note in document.notes) == [True, True]
