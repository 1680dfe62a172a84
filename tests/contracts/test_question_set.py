"""The questions about documents that nothing was made for: their fields, splits, and how many there are of what."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "questions" / "held_out"
SPLITS = {"train": 0.7, "development": 0.2, "test": 0.1}
TYPES = {
    ("fact", "name", "number", "date"): 0.3,
    ("table", "form"): 0.25,
    ("definition",): 0.08,
    ("list",): 0.1,
    ("why_how",): 0.1,
    ("whole_document",): 0.03,
    ("two_part",): 0.03,
    ("unanswerable",): 0.15,
}
STYLES = {"sentence", "keywords", "typos", "other_language"}
FIELDS = {"id", "document", "source", "file", "template_group", "split", "page", "question", "answers", "type", "style"}


@pytest.fixture(scope="module")
def questions() -> list[dict[str, Any]]:
    lines = [line for path in sorted(FOLDER.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    return [json.loads(line) for line in lines]


def test_every_question_has_valid_fields(questions: list[dict[str, Any]]) -> None:
    kinds = {kind for group in TYPES for kind in group}
    for question in questions:
        name = question["id"]
        assert FIELDS | {"language"} <= set(question) <= FIELDS | {"language", "range", "all", "checked"}, name
        assert question["split"] in SPLITS and question["type"] in kinds and question["style"] in STYLES, name
        assert len(question["document"]) == 64 and question["file"] and question["question"].strip(), name
        assert (question["source"] == "realdocs") == ("range" not in question), name
        assert question["page"] is None or question["page"] >= 1, name
        assert bool(question["answers"]) == (question["type"] != "unanswerable"), name
        assert all(answer.strip() for answer in question["answers"]), name
        assert question.get("all", True) is True and question.get("checked", True) is True, name
        assert len(question["answers"]) > 1 or not question.get("all"), name


def test_no_question_stands_twice(questions: list[dict[str, Any]]) -> None:
    for key in (("id",), ("document", "question")):
        counts = Counter(tuple(question[field] for field in key) for question in questions)
        assert [value for value, count in counts.items() if count > 1] == []


def test_no_document_and_no_template_stands_in_two_splits(questions: list[dict[str, Any]]) -> None:
    for field in ("document", "template_group"):
        splits: dict[str, set[str]] = defaultdict(set)
        for question in questions:
            if question[field]:
                splits[question[field]].add(question["split"])
        assert {value: found for value, found in splits.items() if len(found) > 1} == {}


def test_the_shares_are_about_those_wanted(questions: list[dict[str, Any]]) -> None:
    for split, share in SPLITS.items():
        part = sum(question["split"] == split for question in questions) / len(questions)
        assert part == pytest.approx(share, abs=0.06), split
    for kinds, share in TYPES.items():
        part = sum(question["type"] in kinds for question in questions) / len(questions)
        assert part == pytest.approx(share, abs=max(0.3 * share, 0.02)), kinds
    typed = sum(question["style"] in ("keywords", "typos") for question in questions) / len(questions)
    assert typed == pytest.approx(0.2, abs=0.08)
