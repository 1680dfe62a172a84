"""Below a heading that asks the same question the answer begins."""

from __future__ import annotations

import pytest
import torch

from retrieval.query.sentences import QuotableText, Quoting
from tests.retrieval.query.test_quoting import best_sentences, blocks_of, reading_of
from tests.tiny_model import tiny_model

TEXT = (
    "Compile it if you must (see Section 2.2 [What machines does it run on?]).\n\n"
    "2.2 What machines does it run on?\n\n"
    "Support began with the mainframes of old. Today it needs a pocket calculator. Nothing else is known.\n\n"
    "2.3 Who wrote it?\n\nTwo men of the north wrote it."
)


def quoted(question: str, **chances: float) -> list[str]:
    model = tiny_model(block_size=16)
    blocks = blocks_of(model, TEXT)
    quoting = Quoting(model, blocks)
    found = best_sentences(quoting,
        torch.zeros(1, len(blocks), 16), {"d": QuotableText(TEXT)}, question=question, read=reading_of(**chances),
        count=3,
    )  # fmt: skip
    return [TEXT[slice(*quoting.span(one.places))].strip() for one in found]


@pytest.mark.parametrize("question", ["What machines does it run on?", "Which machines does it run on"])
def test_what_stands_below_passes_what_only_refers_there(question):
    best, *others = quoted(question, Compile=0.9, Support=0.05)
    assert best == "Support began with the mainframes of old. Today it needs a pocket calculator."
    assert "Today it needs a pocket calculator." not in others, "it is quoted already"


def test_the_reader_chooses_among_the_sentences_below():
    assert quoted("What machines does it run on?", Compile=0.9, pocket=0.05)[0].startswith("Today it needs")


@pytest.mark.parametrize(
    "question", ["What machines were built?", "Machines?", "What does it cost to run machines on the moon?", ""]
)
def test_another_question_gains_nothing(question):
    assert quoted(question, Compile=0.9, Support=0.05)[0].startswith("Compile it")


def test_the_gain_ends_where_the_next_heading_asks():
    assert quoted("What machines does it run on?", Compile=0.9, north=0.05)[0].startswith("Compile it")


def test_a_line_of_contents_is_no_heading():
    contents = TEXT.replace("2.2 What machines does it run on?\n\n", "2.2 What machines does it run on? ........ 3\n\n")
    model = tiny_model(block_size=16)
    blocks = blocks_of(model, contents)
    (found,) = best_sentences(Quoting(model, blocks),
        torch.zeros(1, len(blocks), 16), {"d": QuotableText(contents)}, question="What machines does it run on?",
        read=reading_of(Compile=0.9, Support=0.05),
    )  # fmt: skip
    assert found.chance == pytest.approx(0.9)
