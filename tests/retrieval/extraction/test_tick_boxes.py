"""Boxes that are drawn with brackets have their state said as those of a form have."""

from __future__ import annotations

import docx
import pytest

from retrieval.extraction.tick_boxes import ticked_first
from tests.retrieval.extraction.reading import read, written


@pytest.mark.parametrize(
    ("drawn", "said"),
    [
        ("Meals: [x] Fish  [ ] Meat  [ ] Vegan", "Meals: ticked ☒ Fish.\nLeft empty: Meat, Vegan."),
        ("Pay: ( ) monthly (*) yearly", "Pay: ticked ☒ yearly.\nLeft empty: monthly."),
        ("Smoker: yes [ ]  no [X]", "Smoker: ticked ☒ no.\nLeft empty: yes."),
        ("Berth wanted? (x) north ( ) south", "Berth wanted? ticked ☒ north.\nLeft empty: south."),
        ("Fish [x] Meat [ ]", "☒ Fish.\nLeft empty: Meat."),
        ("Smoker: yes ☐ no ☒", "Smoker: ticked ☒ no.\nLeft empty: yes."),
        ("[x] Gas connected\n[ ] Water connected", "☒ Gas connected\n☐ Water connected"),
        ("(*) Monthly\n( ) Yearly", "☒ Monthly\n☐ Yearly"),
        ("• [X] Keys handed over", "• ☒ Keys handed over"),
        ("Days: [x] Mon, [x] Tue, [ ] Wed.", "Days: ticked ☒ Mon, ☒ Tue.\nLeft empty: Wed."),
        ("[ ]", "☐"),
    ],
)
def test_the_state_of_drawn_boxes_is_said(drawn, said):
    assert ticked_first(drawn) == said


@pytest.mark.parametrize(
    "text",
    [
        "The item a[x] of the list and f(x) of it.",
        "(x) tenth, (xi) eleventh",
        "(*) without value added tax",
        "dated [ ] 2026, between [ ] and [ ]",
        "See [x](https://example.org) and [x][note].",
        "[1] Holm, Boats. [2] Hauk, Quays.",
        "if [ -f boat ]; then [ -d quay ] fi",
        "The roots (o) of it",
    ],
)
def test_other_brackets_stay_as_they_stand(text):
    assert ticked_first(text) == text


BOXES = "Meals: [x] Fish  [ ] Meat"
SAID = ["Meals: ticked ☒ Fish.", "Left empty: Meat."]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("form.txt", f"Form of the trip\n\n{BOXES}\n"),
        ("form.md", f"# Form of the trip\n\n{BOXES}\n"),
        ("form.html", f"<h1>Form of the trip</h1><pre>{BOXES}</pre>"),
        ("form.eml", f"Subject: Form of the trip\nFrom: a@example.org\n\n{BOXES}\n"),
    ],
)
def test_drawn_boxes_are_read_in_every_kind_of_text(tmp_path, name, source):
    assert read(written(tmp_path, name, source)).text.split("\n")[-2:] == SAID


def test_drawn_boxes_of_a_word_document_are_read(tmp_path):
    made = docx.Document()
    made.add_paragraph(BOXES)
    made.save(str(tmp_path / "form.docx"))
    assert read(tmp_path / "form.docx").text.split("\n") == SAID


def test_boxes_in_the_cells_of_a_table_are_said_in_their_row(tmp_path):
    source = "| Task | Who | Done |\n|---|---|---|\n| Paint | Ann | [x] |\n| Sand | Bo | [ ] |\n"
    assert read(written(tmp_path, "tasks.md", source)).text.split("\n")[1:] == [
        "Task: Paint; Who: Ann; Done: ☒.", "Task: Sand; Who: Bo; Done: ☐.",
    ]  # fmt: skip


def test_code_keeps_its_brackets(tmp_path):
    source = "```\nMeals: [x] Fish [ ] Meat\n```\n"
    assert read(written(tmp_path, "code.md", source)).text == "Meals: [x] Fish [ ] Meat"
