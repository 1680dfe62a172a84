"""The retrieval-augmented arm: what BM25 chooses, and what the network sees of it."""

from collections.abc import Sequence

import bm25s
import numpy as np
import pytest
import torch

from model.training.evaluation.perplexity import segment_losses
from model.training.paper.passages import bm25, bm25_scores, newest, passage_losses
from tests.tiny_model import tiny_model

TEXT = torch.randint(0, 40, (7 * 9 + 3,), generator=torch.Generator().manual_seed(1)).tolist()


def test_bm25_scores_are_those_of_a_library_for_it() -> None:
    random = np.random.default_rng(0)
    passages = [random.integers(0, 20, random.integers(3, 9)).tolist() for _ in range(12)]
    query = [3, 5, 5, 19]
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index([[str(token) for token in passage] for passage in passages], show_progress=False)
    wanted = index.get_scores([str(token) for token in query])
    np.testing.assert_allclose(bm25_scores(passages, query), wanted, rtol=1e-5)
    chosen = bm25(passages, query, 4)
    assert chosen == sorted(np.argsort(wanted, kind="stable")[-4:].tolist())
    assert bm25([[1], [2], [1]], [1], 1) == [2], "of equal passages the newest"


def test_without_passages_windows_know_nothing_of_each_other() -> None:
    model = tiny_model(landmark_in_loss=False).requires_grad_(False)
    ours = passage_losses(model, TEXT, window_blocks=3, k=0, choose=newest, stride=3)
    torch.testing.assert_close(ours, segment_losses(model, TEXT, window_blocks=3, top_k=0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_everything_before_as_passages_is_one_pass_over_the_text(stride: int) -> None:
    model = tiny_model(landmark_in_loss=False).requires_grad_(False)
    ours = passage_losses(model, TEXT, window_blocks=2, k=99, choose=newest, stride=stride)
    torch.testing.assert_close(ours, segment_losses(model, TEXT, window_blocks=99, top_k=0), atol=1e-5, rtol=1e-5)


def test_a_choice_sees_nothing_of_what_it_predicts() -> None:
    model, asked = tiny_model(landmark_in_loss=False).requires_grad_(False), []

    def choose(passages: Sequence[Sequence[int]], query: Sequence[int], k: int) -> list[int]:
        asked.append((len(passages), list(query)))
        return bm25(passages, query, k)

    passage_losses(model, TEXT, window_blocks=3, k=2, choose=choose, stride=1)
    assert [(stored, query) for stored, query in asked] == [
        (first - 2, TEXT[(first - 1) * 7 : first * 7]) for first in range(3, 10)
    ]
    with pytest.raises(ValueError, match="stride"):
        passage_losses(model, TEXT, window_blocks=3, k=2, choose=choose, stride=4)
