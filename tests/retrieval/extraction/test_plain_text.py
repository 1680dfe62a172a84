"""Lists and tables in text without markup become rows; everything else stays as it stands."""

from __future__ import annotations

import pytest

from tests.retrieval.extraction.reading import read, written

QUAYS = "Quay   Depth  Berths\n-----  -----  ------\nNorth  4.5    12\nSouth  3.2    8\n"
RULE = "+------+----+------+\n"
SHIPS = f"{RULE}| Ship | m  | Year |\n{RULE}| Alba | 12 | 1990 |\n| Bora | 14 | 1991 |\n{RULE}"
DRAWN = str.maketrans("|-+", "│─┼")
FERRIES = "# ferry:from:to\nAlba:Ness:Sandvik\nBorea:Sandvik:Holm\nCrane:Holm:Ness\n"


def rows_of(tmp_path, source: str) -> list[str]:
    return read(written(tmp_path, "made.txt", source)).text.split("\n")


@pytest.mark.parametrize(
    ("source", "row"),
    [
        (
            "# ferry:from:to\nAlba:Kirk Ness:Sandvik\nBorea:Sandvik:Holm\nCrane:Holm:Kirk Ness\n",
            "ferry: Borea; from: Sandvik; to: Holm.",
        ),
        (
            "# Number: 2 letter code : name : capital\n"
            "004:AF:Afghanistan:Kabul\n008:AL:Albania:Tirana\n010:AQ:Antarctica:\n",
            "Number: 008; 2 letter code: AL; name: Albania; capital: Tirana.",
        ),
        (
            "root:x:0:0:root:/root:/bin/bash\n_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n"
            "maud:x:1000:1000:Maud Ellingham,,,:/home/maud:/bin/zsh\n",
            "maud; x; 1000; 1000; Maud Ellingham,,,; /home/maud; /bin/zsh.",
        ),
        (
            "code;length;berth\nN1;41.5;north quay\nS2;38;south quay\nE3;12,25;east quay\nW4;9;west quay\n",
            "code: E3; length: 12,25; berth: east quay.",
        ),
        (
            "# Postal codes\n#\n# Code : Region\n\n# Lower valley\nLV:Lower Valley\nLW:Lower Weir\nLX:Lower Exe\n\n"
            "# Upper valley\nUV:Upper Valley\nUW:Upper Weir\nUX:Upper Exe\n",
            "Code: UW; Region: Upper Weir.",
        ),
        (
            "login:uid:shell\nanna:1001:/bin/bash\nbert:1002:/bin/zsh\ncleo:1003:/bin/sh\n",
            "login: bert; uid: 1002; shell: /bin/zsh.",
        ),
        (
            "Code:Name:Town\nAB:Aase Bruun:Holm\nCD:Carl de Vries:Delft\nEF:Ea Falk:Visby\nGH:Gro Hauk:Moss\n",
            "Code: CD; Name: Carl de Vries; Town: Delft.",
        ),
        (
            "pump:https://example.org/pump:in use\nvalve:https://example.org/valve:spare\nlamp:http://example.org/l:lost\n",
            "valve; https://example.org/valve; spare.",
        ),
        (
            "gamma;Gamma Hydrae;2.99\ndelta;Delta Cygni;2.86\nzeta;Zeta Puppis;2.21\n",
            "zeta; Zeta Puppis; 2.21.",
        ),
    ],
)
def test_lines_with_the_same_number_of_fields_are_rows(tmp_path, source, row):
    assert row in rows_of(tmp_path, "Kept by the office.\n\n" + source + "\nEnd of the list.\n")


def test_comments_that_name_no_columns_stay_above_the_rows(tmp_path):
    source = "# kept by Maud\n# ferry:from:to\n# since May\nAlba:Ness:Sandvik\nBorea:Sandvik:Holm\nCrane:Holm:Ness\n"
    assert rows_of(tmp_path, source)[:4] == ["# kept by Maud", "# since May", "", "ferry\tfrom\tto"]


@pytest.mark.parametrize(
    "source",
    [
        "09:15:02 pump started\n09:15:09 valve open\n09:16:41 pump stopped\n",
        "2026-11-26T04:47:41Z boat:left\n2026-11-26T04:48:02Z boat:back\n2026-11-26T05:01:13Z boat:left\n",
        "Note: one thing: and more\nNote: two things: and less\nNote: three: and none\n",
        "name:Alba\nlength:12 m\nberth:north\n",
        "aa:00:1b:2c:3d:4e\n00:1b:44:11:3a:b7\n5c:f3:70:8b:12:9d\n",
        "2001:db8:0:1:1:1:1:1\n2001:db8:0:1:1:1:1:2\nfe80:0:0:0:202:b3ff:fe1e:8329\n",
        "for (i = 0; i < n; i++) a();\nfor (j = 0; j < n; j++) b();\nfor (k = 0; k < n; k++) c();\n",
        "std::vector::size\nstd::string::npos\nstd::map::find\n",
        "http://example.org/a:b:c\nhttp://example.org/d:e:f\nhttp://example.org/g:h:i\n",
        "- C:\\boats to D:\\boats\n- C:\\quays to D:\\quays\n- C:\\lamps to D:\\lamps\n",
        "(Thylacinus:0.11,(Tricho:0.10,Phal:0.12)100:0.05,\n"
        "((Sarco:0.13,Dasy:0.00)100:0.08,(Phil:0.08,\nBos:0.13)71:0.04;\n",
        "key:\n  inner:one:two\n  other:one:two\n",
        "engine.c:12: error: no such boat\nengine.c:19: error: no such quay\nengine.c:27: error: no lamp\n",
        "Apples: red; pears: green; plums: blue and\n"
        "sweet; cherries: dark; quinces: yellow, and\nsour; medlars: brown; sloes: black.\n",
    ],
)
def test_what_is_no_list_stays_as_it_stands(tmp_path, source):
    assert read(written(tmp_path, "made.txt", source)).text == source.rstrip("\n").strip("\n")


@pytest.mark.parametrize(
    ("table", "row"),
    [
        (QUAYS, "Quay: South; Depth: 3.2; Berths: 8."),
        (SHIPS, "Ship: Bora; m: 14; Year: 1991."),
        (SHIPS.translate(DRAWN), "Ship: Bora; m: 14; Year: 1991."),
        ("Lamp\tWatts\tHours\nquay\t60\t900\npier\t40\t1200\n", "Lamp: pier; Watts: 40; Hours: 1200."),
        (
            "Name           Town     Work\n-------------  -------  -----------\nMaud Ellin     Holm     harbour\n"
            "Jorun Aske     Visby    bells and ropes\n",
            "Name: Jorun Aske; Town: Visby; Work: bells and ropes.",
        ),
        (FERRIES, "ferry: Borea; from: Sandvik; to: Holm."),
        ("Bell | kg | Tone\nGreat | 900 | c\nSmall | 310 | g\n", "Bell: Small; kg: 310; Tone: g."),
        (
            "Prices\n\nItem    Crowns  Per\nrope    14.50   metre\ntar     8       litre\n\nAll paid at the quay.",
            "Item: tar; Crowns: 8; Per: litre.",
        ),
        (
            "<b>Tide</b>   Height  Hour\nhigh   3.1     07:40\nlow    0.4     13:52\n",
            "Tide: low; Height: 0.4; Hour: 13:52.",
        ),
    ],
)
def test_tables_in_preformatted_text_of_a_page_are_read_as_those_of_plain_text(tmp_path, table, row):
    page = f"<h1>Harbour</h1><p>Before.</p><pre>\n{table}</pre><p>After.</p>"
    document = read(written(tmp_path, "made.html", page))
    lines = document.text.split("\n")
    assert row in lines and lines[2] == "Before." and lines[-1] == "After."
    assert len(document.exhibits.tables) == 1


ROPES = "           against tar   against hemp\nLasting:   82.2%         40.6%\nCosts:     135.9%        73.3%"


@pytest.mark.parametrize(
    ("table", "row"),
    [
        (ROPES, "Costs: against tar: 135.9%; against hemp: 73.3%."),
        ("Bell | kg | Tone\nGreat | 900 | c\nSmall | 310 | g", "Bell: Small; kg: 310; Tone: g."),
        (FERRIES.rstrip("\n"), "ferry: Borea; from: Sandvik; to: Holm."),
    ],
)
@pytest.mark.parametrize("fence", ["```\n{}\n```", "~~~text\n{}\n~~~"])
def test_tables_in_the_code_of_markdown_are_read_too(tmp_path, fence, table, row):
    document = read(written(tmp_path, "made.md", f"# Ropes\n\nBefore.\n\n{fence.format(table)}\n\nAfter.\n"))
    assert row in document.text.split("\n") and document.text.endswith("After.")
    assert len(document.exhibits.tables) == 1


TREE = "         +--Epsilon  4\n   +--3  +--Delta    5\n+--2  +-----Gamma    6\n1  +--------Beta     7"
BOARD = "+----------+\n|  2 .   3 |\n|  1 .   . |\n|  .   1 . |\n|  4 .   2 |\n+----------+"


@pytest.mark.parametrize("drawing", [TREE, BOARD])
@pytest.mark.parametrize("name", ["made.txt", "made.html"])
def test_a_drawing_stays_as_it_stands_and_lines_of_spaces_are_no_text(tmp_path, name, drawing):
    source = (
        f"   \n\nThe tree.\n\n{drawing}" if name == "made.txt" else f"<p>The tree.</p><pre>  </pre><pre>{drawing}</pre>"
    )
    assert read(written(tmp_path, name, source)).text.endswith(f"The tree.\n\n{drawing}")


def test_code_in_preformatted_text_stays_as_it_stands(tmp_path):
    code = "def depth(quay):\n    return {1: 4.5,  2: 3.2}[quay]\nprint(depth(2))"
    document = read(written(tmp_path, "made.html", f"<pre><code>{code}</code></pre>"))
    assert document.text == code and not document.exhibits.tables
    fenced = read(written(tmp_path, "made.md", f"```\n{code}\n```\n"))
    assert fenced.text == code and not fenced.exhibits.tables


def test_tables_in_the_plain_text_of_a_mail_are_read(tmp_path):
    source = f"Subject: Quays\nFrom: a@example.org\n\nAs asked:\n\n{QUAYS}"
    assert "Quay: South; Depth: 3.2; Berths: 8." in read(written(tmp_path, "made.eml", source)).text.split("\n")


def test_columns_that_a_comment_names_are_rows_though_there_are_two_and_the_last_may_be_empty(tmp_path):
    codes = (
        "# Codes of countries.\n#\n#code\tname of the country\nAD\tAndorra\nAE\tUnited Arab Emirates\nCH\tSwitzerland\n"
    )
    assert read(written(tmp_path, "codes.txt", codes)).text.endswith(
        "code: AE; name of the country: United Arab Emirates.\ncode: CH; name of the country: Switzerland."
    )
    zones = "#codes\tzone\tcomments\nAD\tEurope/Andorra\nAQ\tAntarctica/Casey\tCasey\nAF\tAsia/Kabul\n"
    assert "codes: AQ; zone: Antarctica/Casey; comments: Casey." in read(written(tmp_path, "zones.txt", zones)).text
