"""The search's query, weights and confidence."""

from __future__ import annotations

import pytest
import torch

from model.errors import ModelError
from model.inference.prompt import encode_prompt
from retrieval.index.exact import Ranking
from retrieval.query.decide import confidence_of
from retrieval.query.question import encode_question
from retrieval.query.search import find_blocks
from tests.retrieval.conftest import BLOCK_SIZE
from tests.tiny_model import tiny_model


def test_the_score_of_a_block_is_the_weighted_mean_of_its_landmark_logits(library, three):
    model = library.view.workspace.loaded().model
    question = "What do whales do?"
    prompt = model.prompt(question)
    queries_YHQD = encode_prompt(model, prompt.ids).queries_YHQD[:, :, prompt.question]
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        landmarks = [snapshot.landmarks.landmarks(layer).repeat_interleave(2, 0) for layer in model.memory_layers]
        pairs = zip(queries_YHQD, landmarks, strict=True)
        logits_N = sum(torch.einsum("hqd,hnd->nhq", query, keys).mean(2).sum(1) for query, keys in pairs)
        ranking = snapshot.landmarks.rank(encode_question(model, question).mean_query_YGD, 5)
        assert ranking.indices.tolist() == logits_N.argsort(descending=True)[:5].tolist()
        torch.testing.assert_close(ranking.logits, logits_N[ranking.indices], atol=1e-4, rtol=1e-4)


def test_a_head_without_weight_has_no_say():
    weights = ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 2.0))
    model = tiny_model(block_size=BLOCK_SIZE, search_weights=weights)
    prompt = model.prompt("whales?")
    mean_YHD = encode_prompt(model, prompt.ids).queries_YHQD[:, :, prompt.question].mean(2)
    query_YGD = encode_question(model, "whales?").mean_query_YGD
    torch.testing.assert_close(query_YGD[0], torch.stack([mean_YHD[0, 0], torch.zeros(16)]))
    torch.testing.assert_close(query_YGD[1], torch.stack([torch.zeros(16), 2 * mean_YHD[1, 3]]))


def test_weights_of_another_shape_are_refused():
    with pytest.raises(ModelError, match="calibrate"):
        tiny_model(block_size=BLOCK_SIZE, search_weights=((1.0,),))


def ranking(best: float) -> Ranking:
    return Ranking(torch.tensor([0]), torch.tensor([best]), 0.0, mean=1.0, spread=2.0)


def test_confidence_grows_with_the_distance_from_unrelated_blocks_and_shrinks_with_their_number():
    assert confidence_of(ranking(1.0), 1) == pytest.approx(0.5)
    assert confidence_of(ranking(9.0), 100) > confidence_of(ranking(7.0), 100) > confidence_of(ranking(7.0), 10_000)
    assert confidence_of(ranking(15.0), 100_000) > 0.999
    assert confidence_of(Ranking(torch.zeros(0, dtype=torch.int64), torch.zeros(0), 0.0), 0) == 0.0


def test_the_question_is_found_with_its_confidence(library, three):
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        found = find_blocks(library.view.workspace, snapshot, "whales?", 4, None)
        assert len(found.indices_C) == 4 and 0 <= found.confidence <= 1 and found.in_scope == snapshot.num_blocks
