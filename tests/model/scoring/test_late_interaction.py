"""Matches of stored tokens with a question, against their definition; and the spans that are pointed at."""

from __future__ import annotations

import pytest
import torch

from model.inference.prompt import encode_prompt
from model.scoring.late_interaction import (
    best_matches,
    block_scores,
    token_matches,
)
from retrieval.query.question import encode_question
from tests.tiny_model import ONE_LAYER, tiny_model


def by_definition(queries_QWGD, keys_WCGLD, lengths_C, place_C=None, titles=()):
    """scores_C, block by block and query by query; without places no block has a neighbour. `titles`: for each block
    keys_TE of its document's title."""
    place = list(range(0, 2 * len(lengths_C), 2)) if place_C is None else place_C.tolist()
    shares = [float(query.norm()) for query in queries_QWGD]
    best = []
    for block, length in enumerate(lengths_C.tolist()):
        keys_LE = torch.cat([keys[block, :, :length].float().transpose(0, 1).flatten(1) for keys in keys_WCGLD], 1)
        keys_LE = torch.cat((keys_LE, *titles[block : block + 1]))
        best.append([max(0.0, float(torch.cosine_similarity(q.flatten(), keys_LE).max())) for q in queries_QWGD])
    scores = []
    for block, own in enumerate(best):
        near = [best[other] for other in range(len(best)) if abs(place[other] - place[block]) <= 1]
        around = [max(column) for column in zip(*near, strict=True)]
        total = sum(
            share * (0.5 * mine**2 + 0.5 * other**2) for share, mine, other in zip(shares, own, around, strict=True)
        )
        scores.append((total / sum(shares)) ** 0.5)
    return torch.tensor(scores)


def apart(count):
    return 2 * torch.arange(count)


def scores(queries_QWGD, keys_WCGLD, lengths_C):
    return block_scores(best_matches(token_matches(queries_QWGD, keys_WCGLD, lengths_C)), apart(len(lengths_C)))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_score_of_a_block_is_the_norm_of_its_best_cosines_weighed_by_the_size_of_the_queries(layers, dtype):
    torch.manual_seed(0)
    queries_QWGD = torch.randn(5, layers, 2, 16) * torch.tensor([0.1, 1.0, 3.0, 1.0, 1.0]).view(-1, 1, 1, 1)
    keys_WCGLD = [torch.randn(7, 2, 8, 16).to(dtype) for _ in range(layers)]
    lengths_C = torch.tensor([7, 7, 1, 4, 7, 7, 2])
    scores_C = scores(queries_QWGD, keys_WCGLD, lengths_C)
    torch.testing.assert_close(scores_C, by_definition(queries_QWGD, keys_WCGLD, lengths_C), atol=1e-5, rtol=1e-4)
    assert scores_C.min() >= 0 and scores_C.max() <= 1
    place_C = torch.tensor([5, 9, 4, 20, 3, 10, 0])
    found_C = block_scores(best_matches(token_matches(queries_QWGD, keys_WCGLD, lengths_C)), place_C)
    expected_C = by_definition(queries_QWGD, keys_WCGLD, lengths_C, place_C)
    torch.testing.assert_close(found_C, expected_C, atol=1e-5, rtol=1e-4)


def test_landmarks_and_padding_never_match():
    queries_QWGD = torch.ones(1, 1, 1, 4)
    keys = torch.full((1, 1, 4, 4), -1.0)
    keys[0, 0, 2:] = 1.0  # padding, and the landmark
    assert scores(queries_QWGD, [keys], torch.tensor([2])).tolist() == pytest.approx([0.0])
    assert scores(queries_QWGD, [keys], torch.tensor([3])).tolist() == pytest.approx([1.0])


def test_the_length_of_a_key_does_not_matter_and_a_key_of_nothing_matches_nothing():
    queries_QWGD = torch.tensor([[[[1.0, 0.0]]], [[[0.0, 2.0]]]])
    keys = torch.tensor([[[[3.0, 0.0], [0.0, 0.5], [9.0, 9.0]]], [[[0.0, 0.0], [0.0, 0.0], [9.0, 9.0]]]])
    assert scores(queries_QWGD, [keys], torch.tensor([2, 2])).tolist() == pytest.approx([1.0, 0.0])


def test_queries_of_the_tokens_average_to_the_query_of_search():
    model = tiny_model()
    queries_QWGD = encode_question(model, "Who built it?").queries_QWGD
    torch.testing.assert_close(queries_QWGD.mean(0), encode_question(model, "Who built it?").mean_query_YGD)


def test_layers_without_weight_have_no_say():
    model = tiny_model(search_weights=ONE_LAYER)
    assert model.searched_layers == (2,) and tiny_model().searched_layers == (1, 2)
    prompt = model.prompt("whales?")
    queries_YHQD = encode_prompt(model, prompt.ids).queries_YHQD[:, :, prompt.question]
    queries_QWGD = model.token_queries(queries_YHQD)
    assert queries_QWGD.shape == (queries_YHQD.shape[2], 1, 2, 16)
    torch.testing.assert_close(queries_QWGD[:, 0, 0], queries_YHQD[1, 0] + 0.5 * queries_YHQD[1, 1])
    torch.testing.assert_close(queries_QWGD[:, 0, 1], 2 * queries_YHQD[1, 3])
    assert torch.equal(model.search_weights_YH, torch.tensor(ONE_LAYER))
