"""A checkpoint that brings a reader: what is quoted, what is doubted, and that it can be turned off."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from model.reading.ranker import Decision, Ranker
from model.reading.span_reader import FoundSpan, SpanReader, SpanReading
from research.train.recipes.rounding import save_reader
from retrieval.engine.workspace import Workspace
from retrieval.query import retrieve
from tests.retrieval.conftest import add, ask
from tests.tiny_model import tiny_model
from tests.tiny_reader import tiny_reader

TEXT = "Ada lives in Rome beside the river. Bert lives in Oslo beside the sea. Both of them like cairns very much."


def calibrated(loaded, decision: Decision) -> property:
    return property(lambda _: replace(loaded, ranker=Ranker(decision=decision)))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    tiny_model(
        block_size=64,
        answers="quoted",
        quotes_sentences=True,
        ranks_by_tokens=True,
        search_weights=((1.0,) * 4, (1.0,) * 4),
    ).save(folder)
    reader = tiny_reader([TEXT])
    reader.network.config.sure_above, reader.network.config.absent_above = 0.2, 0.6
    save_reader(reader, folder)
    return folder


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What the reader finds, by word, and its probability; "not here" is the rest."""
    probabilities: dict[str, float] = {}

    def read(self, question, passages, points_of):
        spans = []
        for passage in passages:
            spans.append([FoundSpan(0.0, start, start + 1) for start, _ in passage.sentences])
            for number, (start, stop) in enumerate(passage.sentences):
                for word, probability in probabilities.items():
                    at = passage.text.find(word, start, stop)
                    if at >= 0:
                        spans[-1][number] = FoundSpan(probability, at, at + len(word))
        return SpanReading(spans, 1 - sum(probabilities.values()))

    monkeypatch.setattr(SpanReader, "read", read)
    return probabilities


@pytest.fixture
def library(open_library, checkpoint, write):
    from model.checkpoint.load import load_backbone

    library = open_library(model=load_backbone(checkpoint, device="cpu"))
    add(library, write("people.txt", TEXT))
    return library


def test_the_sentence_that_the_reader_finds_is_quoted_and_pointed_at(library, reading):
    reading["Oslo"] = 0.9
    answer = ask(library, "Where does Bert live?", max_tokens=200, k=50)
    assert (answer.text, answer.short) == ("Bert lives in Oslo beside the sea.", "Oslo")
    assert answer.outcome == "found" and answer.decided_by == "reader"


def test_a_question_of_the_document_is_not_quoted_as_an_answer(library, reading, write):
    add(library, write("faq.txt", "Q: Where does Dora live?\nA: Dora lives in Lima beside the hills."))
    reading.update({"Where does Dora": 0.9, "Lima": 0.8})
    answer = ask(library, "Where does Dora live?", max_tokens=200, k=50)
    assert answer.short == "Lima" and answer.text.endswith("beside the hills.")


def test_a_small_chance_is_a_guess_and_none_is_no_answer(library, reading):
    reading["Oslo"] = 0.9
    assert ask(library, "Where does Bert live?", max_tokens=200, k=50).outcome == "found"
    reading.update(Oslo=0.15, Rome=0.15, cairns=0.15)
    assert ask(library, "Where does Bert live?", max_tokens=200, k=50).outcome == "perhaps"
    reading.clear()
    reading["Oslo"] = 0.1
    nothing = ask(library, "Where does Bert live?", max_tokens=200, k=50)
    assert (nothing.outcome, nothing.found, nothing.tokens) == ("not_found", False, ())
    assert nothing.near_misses, "the nearest passages are shown at once"


def test_a_calibrated_reader_decides_where_search_alone_would_refuse(library, reading, monkeypatch):
    reading["Oslo"] = 0.9
    loaded = library.view.workspace.loaded()
    monkeypatch.setattr(retrieve, "is_answerable", lambda *_, **__: False)
    assert ask(library, "Where does Bert live?", max_tokens=200, k=50).outcome == "not_found"
    monkeypatch.setattr(
        Workspace,
        "opened",
        calibrated(
            loaded, Decision({"none": 1.0}, {"constant": 5.0, "reader_logprob": 1.0}, none_above=0.6, sure_above=0.5)
        ),
    )
    assert ask(library, "Where does Bert live?", max_tokens=200, k=50).outcome == "found"
    reading["Oslo"] = 0.1
    assert ask(library, "Where does Bert live?", max_tokens=200, k=50).outcome == "not_found"


def test_what_the_question_names_and_no_passage_read_does_raises_doubt(library, reading, monkeypatch):
    reading["Oslo"] = 0.5
    loaded = library.view.workspace.loaded()
    monkeypatch.setattr(
        Workspace,
        "opened",
        calibrated(
            loaded, Decision({"constant": -1.0, "unmatched": 2.0}, {"constant": 5.0}, none_above=0.5, sure_above=0.5)
        ),
    )
    assert ask(library, "Where does Bert live?", max_tokens=200, k=50).outcome == "found"
    assert ask(library, "Which school does Bert's nephew attend?", max_tokens=200, k=50).outcome == "not_found"


def test_who_insists_gets_the_nearest_as_a_guess(library, reading):
    reading["Oslo"] = 0.1
    answer = ask(library, "Where does Bert live?", max_tokens=200, k=50, anyway=True)
    assert (answer.outcome, answer.short) == ("perhaps", "Oslo")


def test_it_can_be_turned_off(open_library, checkpoint, write, reading):
    from model.checkpoint.load import load_backbone

    library = open_library(model=load_backbone(checkpoint, device="cpu"), reader=False)
    add(library, write("people.txt", TEXT))
    answer = ask(library, "Where does Bert live?", max_tokens=200, k=50)
    assert answer.found and answer.decided_by == "search" and not answer.short


def test_a_second_reader_reads_again_what_the_first_finds(open_library, checkpoint, write, monkeypatch):
    from model.checkpoint.load import load_backbone

    shutil.copytree(checkpoint / "reader", checkpoint / "reader" / "second")
    asked: list[SpanReader] = []
    points = SpanReader.points

    def noting(self, questions):
        asked.append(self)
        return points(self, questions)

    monkeypatch.setattr(SpanReader, "points", noting)
    library = open_library(model=load_backbone(checkpoint, device="cpu"))
    add(library, write("people.txt", TEXT))
    assert ask(library, "Where does Bert live?", k=50, anyway=True).found
    reader = library.view.workspace.opened.reader
    assert asked == [reader.first, reader.second]
