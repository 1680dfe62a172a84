"""The questions about documents that nothing was made for: their fields, splits, and how many there are of what."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.questions.fresh import documents as fresh
from benchmarks.questions.held_out.documents import missing_answers

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "questions"
SPLITS = {
    "held_out": {"train": 0.7, "development": 0.2, "test": 0.1},
    "fresh": {"development": 0.5, "test": 0.5},
    "third": {"development": 0.5, "test": 0.5},
    "fourth": {"test": 1.0},
    "fifth": {"test": 1.0},
    "sixth": {"test": 1.0},
    "seventh": {"train": 0.8, "test": 0.2},
    "eighth": {"test": 1.0},
    "ninth": {"test": 1.0},
}
FEWEST_FOR_SHARES = 150
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
TYPED = 0.2
"""As into a search box, or with mistakes."""
WRITTEN_FOR = {"ninth": ({("table", "form"): 0.3, ("unanswerable",): 0.25}, 0.12)}
"""Sets that were written for some types, and the share of typed ones."""
STYLES = {"sentence", "keywords", "typos", "other_language"}
FIELDS = {"id", "document", "source", "file", "template_group", "split", "page", "question", "answers", "type", "style"}


@pytest.fixture(scope="module", params=SPLITS)
def name_of_set(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def questions(name_of_set: str) -> list[dict[str, Any]]:
    lines = [
        line
        for path in sorted((FOLDER / name_of_set).glob("*.jsonl"))
        for line in path.read_text("utf-8").split("\n")
        if line
    ]
    return [json.loads(line) for line in lines]


def test_every_question_has_valid_fields(name_of_set: str, questions: list[dict[str, Any]]) -> None:
    kinds = {kind for group in TYPES for kind in group}
    for question in questions:
        name = question["id"]
        assert FIELDS | {"language"} <= set(question) <= FIELDS | {"language", "range", "all", "checked"}, name
        assert question["split"] in SPLITS[name_of_set] and question["type"] in kinds and question["style"] in STYLES, (
            name
        )
        assert len(question["document"]) == 64 and question["file"] and question["question"].strip(), name
        assert question["source"].startswith("text:") == ("range" in question), name
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


def test_the_shares_are_about_those_wanted(name_of_set: str, questions: list[dict[str, Any]]) -> None:
    if len(questions) < FEWEST_FOR_SHARES:
        pytest.skip("a set of so few documents is what they are")
    for split, share in SPLITS[name_of_set].items():
        part = sum(question["split"] == split for question in questions) / len(questions)
        assert part == pytest.approx(share, abs=0.06), split
    types, typed_share = WRITTEN_FOR.get(name_of_set, (TYPES, TYPED))
    for kinds, share in types.items():
        part = sum(question["type"] in kinds for question in questions) / len(questions)
        assert part == pytest.approx(share, abs=max(0.3 * share, 0.02)), kinds
    typed = sum(question["style"] in ("keywords", "typos") for question in questions) / len(questions)
    assert typed == pytest.approx(typed_share, abs=0.08)


@pytest.mark.parametrize("name", fresh.SETS)
def test_every_fresh_document_is_kept_under_a_name_of_its_own(name: str) -> None:
    names = fresh.file_names(name)
    assert (
        len(set(names.values())) == len(names) == len({question["document"] for question in fresh.read_questions(name)})
    )


def test_no_document_stands_in_two_sets() -> None:
    documents = [{question["document"] for question in fresh.read_questions(name)} for name in fresh.SETS]
    assert all(documents) and len(set().union(*documents)) == sum(map(len, documents))


def test_a_document_that_was_not_asked_about_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "report.txt.gz").write_bytes(gzip.compress(b"asked about"))
    digest = hashlib.sha256(b"asked about").hexdigest()
    target = tmp_path / "report.txt"
    assert "differs" in fresh.take(tmp_path / "report.txt.gz", "0" * 64, target) and not target.exists()
    assert "fetched" in fresh.take(tmp_path / "report.txt.gz", digest, target) and target.read_bytes() == b"asked about"
    assert "not in the package" in fresh.take(tmp_path / "other.txt", digest, target)


@pytest.mark.parametrize("name", fresh.SETS)
def test_nearly_all_answers_stand_in_the_text_of_the_fresh_documents(name: str) -> None:
    variable = f"{name.upper()}_DOCUMENTS"
    if variable not in os.environ:
        pytest.skip(f"{variable}: the folder with the fetched files")
    of_document: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for question in fresh.read_questions(name):
        of_document[question["document"]].append(question)
    files = fresh.documents(Path(os.environ[variable]), name)
    missing = [line for digest, path in files.items() for line in missing_answers(path, of_document[digest])]
    assert files and len(missing) <= 0.01 * sum(len(of_document[digest]) for digest in files), missing
