"""Excel workbooks and CSV files: rows as sentences, cells as places, and files that are odd, broken or hostile."""

from __future__ import annotations

import datetime
import io
import re
from pathlib import Path

import openpyxl
import pytest
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.styles import Alignment, Font

from retrieval.errors import ExtractError
from retrieval.extraction.document import Aside
from retrieval.extraction.extract import ExtractLimits, extract
from retrieval.extraction.office.number_formats import shown_number
from retrieval.extraction.office.sheets import cells_of, column_name
from tests.retrieval.extraction.reading import SMALL, odd_archive, read, written
from tests.retrieval.packed import repacked


def workbook(folder: Path, rows=(("Item", "Cost"), ("Pier", 12.5), ("Crane", 7)), name: str = "made.xlsx") -> Path:
    book = openpyxl.Workbook()
    book.active.title = "Budget"
    for row in rows:
        book.active.append(row)
    book.save(folder / name)
    return folder / name


def place(document, words: str) -> str:
    start = document.text.index(words)
    (page,) = {box.page for box in document.boxes(start, start + len(words))}
    return cells_of(
        document.boxes(start, start + len(words)), document.pages[page].width, document.pages[page].height, 0
    )


def test_every_row_is_a_sentence_under_the_names_of_its_columns_and_every_word_has_its_cell(tmp_path):
    rows = [["Harbour 2026"], [], ["Item", "Cost, EUR", "Due"], ["Pier", 1200.0, datetime.datetime(2026, 5, 1)]]
    document = extract(workbook(tmp_path, [*rows, ["Crane", 0.1 + 0.2, None]]))
    assert document.text == (
        "Harbour 2026\n\nItem\tCost, EUR\tDue\nItem: Pier; Cost, EUR: 1200; Due: 2026-05-01.\n"
        "Item: Crane; Cost, EUR: 0.3."
    )
    assert [page.label for page in document.pages] == ["sheet Budget"]
    assert place(document, "Pier; Cost, EUR: 1200") == "A4:B4" and place(document, "0.3") == "B5"


@pytest.mark.parametrize("name", ["Q1 2024", "EU27_2007", "T4 100", "H2/2025"])
def test_the_name_of_a_column_may_have_more_digits_than_letters_above_numbers(tmp_path, name):
    rows = [("Country", name, "Code"), ("Poland", "2004", "PL"), ("Malta", "1973", "MT")]
    assert f"Country: Malta; {name}: 1973; Code: MT." in extract(workbook(tmp_path, rows)).text
    marks = [("Country", name, "Code"), ("Poland", name, "PL"), ("Chile", None, "CL")]
    assert f"Country: Poland; {name}; Code: PL." in extract(workbook(tmp_path, marks)).text
    codes = [("Pier", "A 1200", "open"), ("Crane", "B 7100", "closed"), ("Mill", "C 9100", "open")]
    assert "Crane; B 7100; closed." in extract(workbook(tmp_path, codes)).text, "a code among codes names nothing"


def test_a_row_far_wider_than_those_below_it_names_no_columns(tmp_path):
    letters = [chr(number) for number in range(0xC0, 0xE0)]
    rows = [letters, ["Agrave", "À", "capital A, grave accent"], ["Aring", "Å", "capital A, ring"]]
    text = extract(workbook(tmp_path, rows)).text
    assert "Aring; Å; capital A, ring." in text
    wide = [[f"Column {number}" for number in range(20)], ["Pier", 1200, "open"], ["Crane", 7, "closed"]]
    assert "Column 0: Crane; Column 1: 7; Column 2: closed." in extract(workbook(tmp_path, wide)).text


def test_sheets_are_pages_and_a_long_one_keeps_the_numbers_of_its_rows(tmp_path):
    book = openpyxl.Workbook()
    book.active.title = "Long"
    for number in range(2500):
        book.active.append([f"name {number}", number])
    book.create_sheet("Other").append(["alone"])
    book.save(tmp_path / "long.xlsx")
    document = read(tmp_path / "long.xlsx")
    assert [page.label for page in document.pages] == ["sheet Long"] * 3 + ["sheet Other"]
    start = document.text.index("name 2100")
    (box,) = document.boxes(start, start + 5)
    assert box.page == 2 and cells_of([box], 2.0, 1000.0, 2000) == "A2101"


def test_remarks_above_a_table_do_not_hide_the_names_of_its_columns(tmp_path):
    """As people write them beside and above what they keep, without an empty row between."""
    remarks = [["Lots of people"], ["simply cannot", None, None, "some notes"], ["at", "the", "top"]]
    table = [["Name", "Trade", "Age", "Born"], ["Anna", "miller", 69, 1947], ["Ben", "smith", 60, 1956]]
    assert read(workbook(tmp_path, [*remarks, *table, ["Cleo", "baker"]])).text == (
        "Lots of people\nsimply cannot\tsome notes\nat\tthe\ttop\n\nName\tTrade\tAge\tBorn\n"
        "Name: Anna; Trade: miller; Age: 69; Born: 1947.\nName: Ben; Trade: smith; Age: 60; Born: 1956.\n"
        "Name: Cleo; Trade: baker."
    )


def test_rows_of_a_table_without_names_stay_as_they_are(tmp_path):
    rows = [["Anna", 69, "miller"], ["Ben", 60, "smith"], ["both"], ["Cleo", 31, "baker"], ["Dora", 44, "weaver"]]
    assert read(workbook(tmp_path, rows)).text.startswith("Anna; 69; miller.\nBen; 60; smith.\n")


def test_columns_are_named_as_spreadsheets_do():
    assert [column_name(number) for number in (0, 25, 26, 701, 702, 16383)] == ["A", "Z", "AA", "ZZ", "AAA", "XFD"]


def test_two_columns_of_words_are_a_form_unless_their_first_row_is_bold(tmp_path):
    path = workbook(tmp_path, [["Name", "Anna"], ["Town", "Bern"]])
    assert read(path).text == "Name: Anna.\nTown: Bern."
    book = openpyxl.load_workbook(path)
    for cell in book.active[1]:
        cell.font = Font(bold=True)
    book.save(path)
    assert read(path).text == "Name\tAnna\nName: Town; Anna: Bern."


def test_shown_values_are_read_and_formulas_without_one_are_shown_themselves(tmp_path):
    path = workbook(tmp_path, [["Item", "Cost"], ["Pier", 2], ["All", "=SUM(B2:B2)"], ["Bad", "#DIV/0!"]])
    document = read(path)
    assert "Item: All; Cost: =SUM(B2:B2)." in document.text and "#DIV/0!" in document.text
    assert document.notes == ("1 formulas have no stored result: the formulas themselves are shown.",)
    computed = repacked(
        path, {"xl/worksheets/sheet1.xml": lambda xml: re.sub(rb"</f><v ?/>|</f><v></v>", b"</f><v>2</v>", xml)}
    )
    assert "Item: All; Cost: 2." in read(computed).text


def test_shares_and_truth_values_are_read_and_hidden_sheets_are_set_aside(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["Part", "Share", "Sold"])
    book.active.append(["Mill", 0.255, True])
    book.active["B2"].number_format = "0.0%"
    hidden = book.create_sheet("Notes")
    hidden.append(["kept away"])
    hidden.sheet_state = "hidden"
    book.save(tmp_path / "shares.xlsx")
    document = read(tmp_path / "shares.xlsx")
    assert "Share: 25.5%; Sold: TRUE" in document.text and document.asides == (Aside("hidden", "kept away"),)
    assert document.notes == ("The sheet Notes is hidden in the file.",)


def test_macros_are_neither_run_nor_read(tmp_path):
    path = repacked(workbook(tmp_path), {}, {"xl/vbaProject.bin": b"\xd0\xcf Sub Auto_Open() Shell"}, "macros.xlsm")
    document = extract(path)
    assert "Shell" not in document.text and "Pier" in document.text
    assert document.notes == ("The file holds macros: they were neither run nor read.",)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("cut", "damaged or cut off"),
        ("words", "damaged or cut off"),
        ("foreign", "not an Excel workbook"),
        ("encrypted", "old .xls file or an Excel workbook with a password"),
        ("entities", "declares entities"),
        ("broken xml", "is damaged"),
        ("emptied", "is damaged"),
        ("bomb", "unpacks to"),
    ],
)
@pytest.mark.parametrize("part", ["xl/worksheets/sheet1.xml", "xl/workbook.xml"])
def test_odd_workbooks_are_refused_with_their_reason(tmp_path, kind, part, reason):
    with pytest.raises(ExtractError, match=reason):
        read(odd_archive(workbook(tmp_path), kind, part))


def test_workbooks_without_words_or_with_too_many_are_refused(tmp_path):
    with pytest.raises(ExtractError, match="all its cells are empty"):
        read(workbook(tmp_path, []))
    with pytest.raises(ExtractError, match="more than 20,000 characters"):
        read(workbook(tmp_path, [["word " * 100]] * 50), SMALL)


def test_a_lonely_cell_far_away_costs_little_and_keeps_its_place(tmp_path):
    book = openpyxl.Workbook()
    book.active["A1"], book.active["XFD40000"] = "near", "far away"
    book.save(tmp_path / "far.xlsx")
    document = extract(tmp_path / "far.xlsx")
    start = document.text.index("far away")
    (box,) = document.boxes(start, start + 8)
    assert cells_of([box], 16384.0, 1000.0, 1000 * box.page) == "XFD40000"


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("semicolons.csv", "Name;Born\nAnna;1980\n", "Name\tBorn\nName: Anna; Born: 1980."),
        ("tabs.tsv", "Name\tBorn\nAnna\t1980\n", "Name\tBorn\nName: Anna; Born: 1980."),
        ("stated.csv", "sep=|\nName|Born\nAnna|1980\n", "Name\tBorn\nName: Anna; Born: 1980."),
        ("quoted.csv", 'Name,Says\nAnna,"Yes, ""so""\nit is"\n', 'Name\tSays\nName: Anna; Says: Yes, "so" it is.'),
        ("utf16.csv", "Ort,Zahl\nKöln,5\n".encode("utf-16"), "Ort\tZahl\nOrt: Köln; Zahl: 5."),
        ("latin.csv", "Ort;Zahl\nKöln;5\n".encode("cp1252"), "Ort\tZahl\nOrt: Köln; Zahl: 5."),
        ("marked.csv", b"\xef\xbb\xbfName,Born\nAnna,1980\n", "Name\tBorn\nName: Anna; Born: 1980."),
        ("ragged.csv", "Name,Born\nAnna,1980,extra\n\nBob\n", "Name\tBorn\nName: Anna; Born: 1980; extra.\n\nBob"),
        ("one column.csv", "first\nsecond\n", "first\nsecond"),
        ("spaces.csv", 'Name, Says\nAnna, "Yes, so"\n', "Name\tSays\nName: Anna; Says: Yes, so."),
        ("inches.csv", 'Name,Size,Note\nPipe, "half,good\nRod,5,fine\n',
         'Name\tSize\tNote\nName: Pipe; Size: "half; Note: good.\nName: Rod; Size: 5; Note: fine.'),
        ("breaks.csv", "Name,Says,Born\nAnna,one\u2028two\x0bthree,1980\n",
         "Name\tSays\tBorn\nName: Anna; Says: one two three; Born: 1980."),
        ("open quote.csv", 'Name,Born\n"Anna,1980\n', "Name: Born.\nAnna,1980."),
    ],
)  # fmt: skip
def test_csv_files_of_every_making_are_read(tmp_path, name, data, text):
    assert read(written(tmp_path, name, data)).text == text


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("binary.csv", bytes(range(256)) * 20, "binary data"),
        ("blank.csv", ",,,\n,,,\n", "all its cells are empty"),
        ("workbook.csv", b"PK\x03\x04" + bytes(200), "binary data"),
        ("long.csv", "a,b\n" + "word,word\n" * 9000, "more than 20,000 characters"),
    ],
)
def test_odd_csv_files_are_refused_with_their_reason(tmp_path, name, data, reason):
    with pytest.raises(ExtractError, match=reason):
        read(written(tmp_path, name, data), SMALL)


def test_formulas_in_csv_files_are_words(tmp_path):
    document = read(written(tmp_path, "formula.csv", "Name,Sum,Link\nAnna,=1+1,=cmd|' /C calc'!A0\n"))
    assert "Sum: =1+1; Link: =cmd|' /C calc'!A0." in document.text


def test_a_csv_file_of_one_endless_line_ends_within_its_limits(tmp_path):
    packed = io.StringIO()
    packed.write("x," * 400_000)
    with pytest.raises(ExtractError):
        extract(written(tmp_path, "line.csv", packed.getvalue()), limits=ExtractLimits(seconds=4, characters=100_000))


@pytest.mark.parametrize(
    ("value", "code", "shown"),
    [
        (126500, "[$€-407] #,##0.00", "€ 126,500.00"),
        (388000, "[$¥-411]#,##0", "¥388,000"),
        (1999.9, '"£"#,##0.00', "£1,999.90"),
        (1999.9, '#,##0.00 "kr"', "1,999.90 kr"),
        (-1260.5, "#,##0.00;(#,##0.00)", "(1,260.50)"),
        (-1260.5, "#,##0.00", "-1,260.50"),
        (912, "00000", "00912"),
        (7, "0000", "0007"),
        (49301234567, "00000-0000000", "04930-1234567"),
        (5551234, "000-0000", "555-1234"),
        (0.0075, "0.00%", "0.75%"),
        (0.5, "0%", "50%"),
        (1234567, "#,##0,", "1,235"),
        (12000, "0.0E+00", "1.2E+04"),
        (0, '#,##0;-#,##0;"none"', "none"),
        (5, ";", ""),
        (0.5, "# ?/?", "0.5"),
        (2.675, "0.00", "2.68"),
        (3, '_-* #,##0.00 "€"_-', "3.00 €"),
        (12.5, "General", "12.5"),
        (12.5, '0.0 "kg"', "12.5 kg"),
        (37 / 24 + 5 / 1440, "[h]:mm", "37:05"),
        (1.0, "[hh]:mm:ss", "24:00:00"),
        (0.5, "h:mm AM/PM", "12:00"),
        (46095, "dd/mm/yyyy", "2026-03-14"),
        (46095.75, "d mmm yyyy h:mm", "2026-03-14 18:00"),
        (46095, "mmm yyyy", "Mar 2026"),
        (46095, "mmmm yyyy", "March 2026"),
        (4111111111111111222, "General", "4111111111111111222"),
        (4111111111111111, "0000-0000-0000-0000", "4111-1111-1111-1111"),
        (61, "m/d/yy", "1900-03-01"),
        (1, "m/d/yy", "1900-01-01"),
        (-1, "m/d/yy", "-1"),
        (90 / 86400, "[m]:ss", "1:30"),
        (0.005, "[<1]0.0%;0%", "0.5%"),
        (1.5, "[<1]0.0%;0%", "150%"),
        (-0.05, "[<1]0.0%;0%", "-5.0%"),
        (12345, "[>=1000]#,##0", "12,345"),
        (12.345, "[>=1000]#,##0", "12.345"),
        (-5, "[>=0]0.0", "-5"),
        (2_500_000, '[>=1000000]0.0,,"M";[>=1000]0,"K";0', "2.5M"),
        (2_500, '[Blue][>=1000000]0.0,,"M";[Red][>=1000]0,"K";0', "3K"),
        (25, '[>=1000000]0.0,,"M";[>=1000]0,"K";0', "25"),
        (-25, '[>0]0.0;[>10]0.00;"-"', "-"),
        (-10, "[>=100]0.00;0.000", "-10.000"),
        (-10, "[>=0]0.00;(0)", "(10)"),
        (12345, "E+00", "12345"),
        (-2_500, '[>=1000]#,##0,"k";[<=-1000]-#,##0,"k";0', "-3k"),
        (-10, "0.00;[<0](0)", "(10)"),
        (1, '[=1]0 "day";0 "days"', "1 day"),
        (2, '[=1]0 "day";0 "days"', "2 days"),
        (-3, "0.00;@", "-3.00"),
        (0, ";;;@", ""),
        (0, "0;-0;;@", ""),
        (0, "0;-0;", ""),
        (5, '"a;b" 0;0', "a;b 5"),
    ],
)
def test_numbers_are_shown_as_their_format_says(value, code, shown):
    assert shown_number(value, code) == shown


def test_days_count_from_1904_where_the_workbook_says_so(tmp_path):
    book = openpyxl.Workbook()
    book.epoch = openpyxl.utils.datetime.CALENDAR_MAC_1904
    book.active.append([datetime.date(2026, 3, 14)])
    book.save(tmp_path / "made.xlsx")
    assert read(tmp_path / "made.xlsx").text == "2026-03-14"


def test_long_codes_keep_their_digits(tmp_path):
    book = openpyxl.Workbook()
    for row in (("Card", "Count"), (4111111111111111, 3), (55555555555544440, 4)):
        book.active.append(row)
    book.save(tmp_path / "made.xlsx")
    assert "Card: 4111111111111111; Count: 3.\nCard: 55555555555544440; Count: 4." in read(tmp_path / "made.xlsx").text


def test_signs_that_a_workbook_writes_as_their_number_are_read_as_signs(tmp_path):
    path = repacked(
        workbook(tmp_path), {"xl/worksheets/sheet1.xml": lambda xml: xml.replace(b"Pier", b"Pier_x000D_\nnorth_x0031_")}
    )
    assert read(path).text.split("\n")[1] == "Item: Pier north1; Cost: 12.5."


def test_cells_beyond_all_pages_are_said_to_be_too_many_rows(tmp_path):
    path = workbook(tmp_path, [["far"], *[[]] * 2999, ["away"]])
    with pytest.raises(ExtractError, match="more than 2,000 rows"):
        read(path, ExtractLimits(pages=2))


def test_raised_figures_in_cells_are_written_out(tmp_path):
    book = openpyxl.Workbook()
    raised = TextBlock(InlineFont(vertAlign="superscript"), "6")
    for row in (("Site", "Area", "Count"), ("Quay", CellRichText("7 m", raised), CellRichText("3 × 10", raised))):
        book.active.append(row)
    book.save(tmp_path / "made.xlsx")
    assert "Site: Quay; Area: 7 m^6; Count: 3 × 10^6." in read(tmp_path / "made.xlsx").text


def test_names_of_cells_are_followed(tmp_path):
    book = openpyxl.Workbook()
    for row in (("Row", "Trees"), ("Cox", 30), ("Elstar", "=Other!$A$1")):
        book.active.append(row)
    book.create_sheet("Other").append(["=B1", "36"])
    book.save(tmp_path / "made.xlsx")
    document = read(tmp_path / "made.xlsx")
    assert "Row: Cox; Trees: 30.\nRow: Elstar; Trees: 36." in document.text
    assert not document.notes


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("D2", "Comment on “No: 1; Name: Cox; Trees: 30”: Two are ill."),
        ("B3", "Comment on “No: 2; Name: Elstar”: Two are ill."),
        ("A2", "Comment on “No: 1; Name: Cox”: Two are ill."),
        ("D1", "Comment on “Trees”: Two are ill."),
        ("F3", "Comment on “No: 2; Name: Elstar”: Two are ill."),
        ("C9", "Comment: Two are ill."),
    ],
)
def test_a_comment_is_a_line_of_its_own_that_names_its_row_and_its_cell(tmp_path, cell, line):
    book = openpyxl.Workbook()
    for row in (("No", "Name", "Planted", "Trees"), (1, "Cox", 1998, 30), (2, "Elstar", 2004, 36)):
        book.active.append(row)
    book.active[cell].comment = openpyxl.comments.Comment("Two are ill.", "Ann")
    book.save(tmp_path / "made.xlsx")
    assert line in read(tmp_path / "made.xlsx").text.split("\n")


def test_merged_cells_are_repeated_and_groups_of_columns_are_part_of_their_names(tmp_path):
    rows = [["Goods", "Summer", None, "Winter", None], [None, "Shop", "Market", "Shop", "Market"]]
    book = openpyxl.load_workbook(workbook(tmp_path, [*rows, ["Honey", 64, 48, 83, 39], [None, 1, 2, 3, 4]]))
    for area in ("B1:C1", "D1:E1", "A1:A2", "A3:A4"):
        book.active.merge_cells(area)
    book.save(tmp_path / "made.xlsx")
    lines = read(tmp_path / "made.xlsx").text.split("\n")
    assert lines[2] == "Goods: Honey; Summer / Shop: 64; Summer / Market: 48; Winter / Shop: 83; Winter / Market: 39."
    assert lines[3].startswith("Goods: Honey; Summer / Shop: 1;")


def test_a_merged_cell_names_the_columns_that_it_spans_and_is_said_once_where_they_have_one_name(tmp_path):
    rows = [
        ["Rank", "Country", 1990, None, 2010, None], [1, "Norway", 9, None, 3, "a"],
        ["Notes", "Figures are rounded", None, None, None, None],
    ]  # fmt: skip
    book = openpyxl.load_workbook(workbook(tmp_path, [*rows, []]))
    for area in ("C1:D1", "E1:F1", "C2:D2", "B3:F3"):
        book.active.merge_cells(area)
    book.save(tmp_path / "made.xlsx")
    assert read(tmp_path / "made.xlsx").text.split("\n") == [
        "Rank\tCountry\t1990\t2010", "Rank: 1; Country: Norway; 1990: 9; 2010: 3; 2010: a.",
        "Rank: Notes; Country: Figures are rounded; 1990: Figures are rounded; 2010: Figures are rounded.",
    ]  # fmt: skip


def test_a_heading_of_two_rows_may_have_names_of_two_lines_and_names_that_span_columns_in_both(tmp_path):
    rows = [
        ["Week", "Ship", "Service", "Gate", None, "Arrives", None], [None, None, "Code", "opens", None, "Ulm", "Linz"],
        [26, "Ida", "JMV", "Mon", "8 am", "1 May", "2 May"],
    ]  # fmt: skip
    book = openpyxl.load_workbook(workbook(tmp_path, rows))
    for area in ("A1:A2", "B1:B2", "D1:E1", "D2:E2", "F1:G1"):
        book.active.merge_cells(area)
    book.save(tmp_path / "made.xlsx")
    assert read(tmp_path / "made.xlsx").text.split("\n")[2] == (
        "Week: 26; Ship: Ida; Service / Code: JMV; Gate / opens: Mon; Gate / opens: 8 am; Arrives / Ulm: 1 May; "
        "Arrives / Linz: 2 May."
    )


def test_years_below_a_name_that_spans_them_are_names(tmp_path):
    rows = [["Town", "Visitors", None], [None, 2010, 2020], ["Ulm", 31, 44], ["Linz", 28, 39]]
    book = openpyxl.load_workbook(workbook(tmp_path, rows))
    for area in ("A1:A2", "B1:C1"):
        book.active.merge_cells(area)
    book.save(tmp_path / "made.xlsx")
    lines = read(tmp_path / "made.xlsx").text.split("\n")
    assert lines[2] == "Town: Ulm; Visitors / 2010: 31; Visitors / 2020: 44."


def test_a_text_that_is_centred_across_empty_cells_spans_them_and_a_hidden_row_parts_no_table(tmp_path):
    rows = [
        ["Ship", "Shekou", None, "Yantian", None], [None, "Cutoff", "Opens", "Cutoff", "Opens"],
        [None, "SKZ", "SKZ", "YAT", "YAT"], ["Ida", "1 May", "2 May", "3 May", "4 May"],
        [None, None, "late", None, None],
    ]  # fmt: skip
    book = openpyxl.load_workbook(workbook(tmp_path, rows))
    for cell in ("B1", "C1", "D1", "E1", "B5", "D5"):
        book.active[cell].alignment = Alignment(horizontal="centerContinuous")
    book.active.row_dimensions[3].hidden = True
    book.save(tmp_path / "made.xlsx")
    document = read(tmp_path / "made.xlsx")
    assert document.text.split("\n") == [
        "Ship\tShekou\tYantian", "Cutoff\tOpens\tCutoff\tOpens",
        "Ship: Ida; Shekou / Cutoff: 1 May; Shekou / Opens: 2 May; Yantian / Cutoff: 3 May; Yantian / Opens: 4 May.",
        "Shekou / Opens: late.",
    ]  # fmt: skip
    assert [one.text for one in document.asides] == ["SKZ\tSKZ\tYAT\tYAT"]


def test_a_group_of_columns_goes_on_behind_an_empty_one(tmp_path):
    rows = [["old", None, "new", None, None, None], ["size", "age", "size", "age", None, "gain"]]
    text = read(workbook(tmp_path, [*rows, [0.5, 1.5, 2.5, 3.5, None, 4.5], [1.5, 2.5, 3.5, 4.5, None, 5.5]])).text
    assert "old / size: 0.5; old / age: 1.5; new / size: 2.5; new / age: 3.5; new / gain: 4.5." in text


def test_hidden_rows_and_columns_and_struck_cells_are_set_aside_but_not_what_a_filter_or_a_group_hides(tmp_path):
    book = openpyxl.load_workbook(workbook(tmp_path, [["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"]]))
    sheet = book.active
    sheet.row_dimensions[2].hidden = True
    sheet.column_dimensions["B"].hidden = True
    sheet["A3"].font = Font(strike=True)
    sheet.row_dimensions[3].hidden = True
    sheet.row_dimensions[3].outlineLevel = 1
    book.save(tmp_path / "made.xlsx")
    document = read(tmp_path / "made.xlsx")
    assert document.text == "a: c.\ni."
    assert [(one.kind, one.text) for one in document.asides] == [
        ("deleted", "g"), ("hidden", "d\te\tf"), ("hidden", "b"), ("hidden", "h"),
    ]  # fmt: skip


def test_comments_on_hidden_rows_and_columns_are_set_aside_with_them(tmp_path):
    book = openpyxl.load_workbook(workbook(tmp_path, [["a", "b"], ["c", "d"], ["e", "f"]]))
    sheet = book.active
    for cell in ("A1", "B1", "A2", "A9"):
        sheet[cell].comment = openpyxl.comments.Comment(f"on {cell}", "Ann")
    sheet.row_dimensions[2].hidden = sheet.row_dimensions[9].hidden = True
    sheet.column_dimensions["B"].hidden = True
    book.save(tmp_path / "made.xlsx")
    document = read(tmp_path / "made.xlsx")
    assert document.text == "a\nComment on “a”: on A1\ne"
    assert [one.text for one in document.asides] == ["c\td", "b", "f", "on B1", "on A2", "on A9"]


def test_rows_of_a_damaged_workbook_that_have_one_number_are_all_read(tmp_path):
    rows = [("Item", "Cost"), ("Pier", 1), ("Crane", 2), ("Mill", 3)]
    number = re.compile(rb'<row r="3"(.*?)</row>', re.S)
    changed = {"xl/worksheets/sheet1.xml": lambda xml: number.sub(lambda row: row[0].replace(b'"3"', b'"2"'), xml)}
    text = read(repacked(workbook(tmp_path, rows), changed)).text
    assert text.split("\n") == ["Item\tCost", *(f"Item: {item}; Cost: {cost}." for item, cost in rows[1:])]


def test_a_cell_that_names_no_text_is_empty(tmp_path):
    rows = [("Item", "Cost"), ("Pier", 1), ("Crane", 2)]
    changed = {
        "xl/worksheets/sheet1.xml": lambda xml: re.sub(rb'<c r="A3".*?</c>', b'<c r="A3" t="s"><v></v></c>', xml)
    }
    text = read(repacked(workbook(tmp_path, rows), changed)).text
    assert text.split("\n") == ["Item\tCost", "Item: Pier; Cost: 1.", "Cost: 2."]


def test_of_boxes_that_are_stated_in_several_ways_one_is_read(tmp_path):
    box = "<xdr:sp><xdr:txBody><a:p><a:r><a:t>%s</a:t></a:r></a:p></xdr:txBody></xdr:sp>"
    drawing = (
        '<xdr:wsDr xmlns:xdr="http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing" '
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
        'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><mc:AlternateContent>'
        f"<mc:Choice>{box % 'Prices of June'}</mc:Choice>"
        f"<mc:Fallback>{box % 'A newer program shows more.'}</mc:Fallback></mc:AlternateContent></xdr:wsDr>"
    )
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="r1" Type="drawing" Target="../drawings/drawing1.xml"/></Relationships>'
    )
    added = {"xl/drawings/drawing1.xml": drawing, "xl/worksheets/_rels/sheet1.xml.rels": relations}
    path = repacked(workbook(tmp_path), {}, {name: part.encode() for name, part in added.items()})
    assert read(path).text.split("\n\n")[1:] == ["Text box: Prices of June"]


def test_sheets_of_the_same_layout_name_themselves_in_every_row(tmp_path):
    book = openpyxl.Workbook()
    for name, members in (("Farley", 987), ("Hexwell", 1530)):
        sheet = book.create_sheet(name)
        for row in (("Item", "This year"), ("Members", members), ("Books", 5)):
            sheet.append(row)
    del book["Sheet"]
    book.save(tmp_path / "made.xlsx")
    assert "Hexwell; Item: Members; This year: 1530." in read(tmp_path / "made.xlsx").text


def test_a_number_that_is_centred_across_empty_cells_is_none_of_theirs(tmp_path):
    book = openpyxl.load_workbook(workbook(tmp_path, [["Item", "Cost", "Discount"], ["Pier", 1200, None]]))
    for cells in book.active.iter_rows():
        for cell in cells:
            cell.alignment = Alignment(horizontal="centerContinuous")
    book.save(tmp_path / "made.xlsx")
    assert read(tmp_path / "made.xlsx").text.split("\n")[-1] == "Item: Pier; Cost: 1200."


def test_years_below_a_merged_name_are_data_where_years_stand_below_them(tmp_path):
    rows = [["Period", None, "Remark"], [1990, 1995, None], [1996, 2001, "closed"]]
    book = openpyxl.load_workbook(workbook(tmp_path, rows))
    book.active.merge_cells("A1:B1")
    book.save(tmp_path / "made.xlsx")
    assert "1990" in read(tmp_path / "made.xlsx").text.split("\n")[1]


def test_a_csv_file_with_a_title_keeps_the_names_of_its_two_columns(tmp_path):
    file = tmp_path / "made.csv"
    file.write_text("Members\nName,City\nAnna,Berlin\nBob,Paris\n")
    assert read(file).text.split("\n")[-1] == "Name: Bob; City: Paris."
