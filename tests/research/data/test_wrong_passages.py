"""Passages that search takes for an answer, for the joint reader."""

import json
from pathlib import Path

from research.train.convert.init_from_encoder import Encoder
from research.train.data.batches.wrong_passages import MOST, find_wrong_passages, with_wrong_passages
from research.train.data.span_questions import SpanQuestion
from research.train.recipes.default_data import Prepared
from research.train.recipes.default_model import start
from research.train.recipes.default_recipe import SIZES


def question(number: int, place: str) -> SpanQuestion:
    passage = f"Person {number} was born in {place} long ago."
    at = passage.index(place)
    return SpanQuestion(
        str(number), "made", f"Where was person {number} born?", (passage,), ((0, at, at + 4),), (place,)
    )


def test_wrong_passages_are_of_others_and_do_not_hold_the_answer(
    prepared: Prepared, encoder: Encoder, tmp_path: Path
) -> None:
    model = start(prepared, SIZES["tiny"], encoder)
    questions = [question(number, place) for number, place in enumerate(("Oslo", "Rome", "Lima", "Rome", "Bonn"))]
    find_wrong_passages(model, questions, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "wrong.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"made:{number}" for number in range(5)]
    taught = with_wrong_passages(questions, tmp_path / "wrong.jsonl")
    for each in taught:
        assert 0 < len(each.wrong) <= MOST
        assert not any(each.answers[0].lower() in text.lower() for text in each.wrong)


def test_questions_that_search_knows_nothing_of_keep_what_they_had(tmp_path: Path) -> None:
    (tmp_path / "wrong.jsonl").write_text('{"id": "other:1", "wrong": ["x"]}\n')
    asked = question(1, "Oslo")
    assert with_wrong_passages([asked], tmp_path / "wrong.jsonl") == [asked]
