"""Rows of plain text, with what is asked about them."""

import random
from collections.abc import Sequence

import numpy as np

from model.checkpoint.landmark_model import LandmarkModel
from research.train.convert.init_from_encoder import Encoder
from research.train.data.batches.distillation_batches import DistillationBatchMaker
from research.train.data.batches.text_batches import TextRow, TextRows, TextRowShape
from research.train.data.questions.facts import Facts
from research.train.recipes.default_data import Prepared
from research.train.recipes.default_model import start
from research.train.recipes.default_recipe import SIZES

LENGTH = 100


def drawn(
    model: LandmarkModel, texts: Sequence[np.ndarray], rows: int, seed: int, shape: TextRowShape
) -> list[TextRow]:
    titles = [f"Title {number}" for number in range(len(texts))]
    maker = TextRows(model, texts, titles, shape, length=LENGTH, longest_question=40)
    pick, draw = random.Random(seed), np.random.default_rng(seed)
    return list(maker.draw(rows, -2, Facts(pick), pick, draw))


def test_rows_are_stretches_of_few_texts_that_do_not_overlap(prepared: Prepared, encoder: Encoder) -> None:
    model = start(prepared, SIZES["tiny"], encoder)
    texts = [np.arange(first, first + 450, dtype=np.uint16) % 500 for first in (20, 40, 470)] + [np.arange(30, 60)]
    starts: set[int] = set()
    for seed in range(20):
        rows = drawn(model, texts, 7, seed, TextRowShape(stretches=3, facts=0.0))
        assert [row.document for row in rows] == list(range(-2, -9, -1))
        for row in rows:
            text = texts[int(row.title.removeprefix("Title "))]
            windows = np.lib.stride_tricks.sliding_window_view(text, len(row.ids))
            assert (windows == row.ids).all(1).any()
            assert len(row.ids) == min(LENGTH, len(text))
        for place, (one, other) in enumerate(zip(rows, rows[1:], strict=False)):
            if one.title == other.title and place % 3 < 2 and len(one.ids) == LENGTH:
                starts.add(int(one.ids[0]))
        first, second, third = rows[:3]
        if first.title == second.title == third.title != "Title 3":
            assert len({*first.ids.tolist(), *second.ids.tolist(), *third.ids.tolist()}) == 3 * LENGTH
    assert len(starts) > 5  # not always the same stretches


def test_questions_of_a_row_point_at_their_answers(prepared: Prepared, encoder: Encoder) -> None:
    model = start(prepared, SIZES["tiny"], encoder)
    text = (
        "Of ships. The first boat of the lake was launched by Maria Stone in October 1957. It is a rather small one. "
        "The larger boats carried seven engines in the summer of that year."
    )
    ids = np.array(model.tokenize(text).ids, np.uint16)
    shape = TextRowShape(facts=0.5, made=3)
    found = set()
    for seed in range(60):
        (row,) = drawn(model, [ids], 1, seed, shape)
        for question in row.asked:
            assert question.document == row.document and question.exact and question.answerable
            answer = model.decode(row.ids[question.start : question.stop].tolist()).strip()
            found.add((question.source, model.decode(list(question.ids)).strip().lower().rstrip("?"), answer))
    assert any(source == "fact" for source, _, _ in found)
    assert ("made", "who was the first boat of the lake launched by", "Maria Stone") in found


def test_rows_of_text_know_the_title_of_their_text(prepared: Prepared, encoder: Encoder) -> None:
    model, shape = start(prepared, SIZES["tiny"], encoder), SIZES["tiny"].shape
    assert prepared.text_titles and all(title.startswith("Land ") for title in prepared.text_titles)
    maker = DistillationBatchMaker(
        prepared.questions, prepared.texts, model, encoder, shape, text_titles=prepared.text_titles
    )
    seen = []
    for number in range(8):
        batch = maker.make(number)
        text_row = shape.rows - shape.text_rows
        seen.append(model.decode(batch.titles_RT[text_row][batch.title_mask_RT[text_row]].tolist()).strip())
    assert any(title.startswith("Land ") for title in seen)
    assert "" in seen  # some are left untitled
