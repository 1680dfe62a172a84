"""Stretches that search takes for an answer."""

from dataclasses import replace
from pathlib import Path

from research.train.convert.init_from_encoder import Encoder
from research.train.data.batches.hard_negatives import find_hard_negatives
from research.train.recipes.default_data import Prepared
from research.train.recipes.default_model import start
from research.train.recipes.default_recipe import SIZES


def test_hard_negatives_are_found_blocks_that_do_not_hold_the_answer(
    prepared: Prepared, encoder: Encoder, tmp_path: Path
) -> None:
    recipe, data = SIZES["tiny"], prepared.questions
    model = start(prepared, recipe, encoder)
    shape = replace(recipe.mined, stored_blocks=500, found=6)
    found = find_hard_negatives(model, data, shape, tmp_path)
    size = model.config.tokens_per_block
    asked = {(question.document, question.ids): question for question in data.questions}
    assert found.keys() <= asked.keys() and any(found.values())
    for key, places in found.items():
        question = asked[key]
        said = data.ids[question.document][question.start : question.stop].tolist()
        assert len(places) == len(set(places)) <= 6
        for document, token in places:
            block = data.ids[document][token : token + size].tolist()
            assert block and token % size == 0
            assert said not in [block[row : row + len(said)] for row in range(size)]
            first, stop = question.passage
            assert document != question.document or token >= stop or token + size <= first
    assert find_hard_negatives(model, data, shape, tmp_path) == found, "what is kept is taken again"
