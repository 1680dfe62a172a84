"""The retrieval-augmented arm: what BM25 chooses, and what the network sees of it."""

from collections.abc import Sequence
from pathlib import Path

import bm25s
import numpy as np
import pytest
import torch

from research.train.convert.init_from_encoder import Encoder
from research.train.evaluation.perplexity import segment_losses
from research.train.paper.passages import bm25, bm25_scores, nearest, newest, passage_losses
from tests.tiny_encoder import save_tiny_encoder
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


def test_an_encoder_chooses_what_is_nearest_and_reads_each_passage_once(tmp_path: Path) -> None:
    words = ["the grass is green", "the tower is tall", "rain falls on grass", "a tower of stone"]
    encoder = Encoder.load(save_tiny_encoder(tmp_path, words))
    read: list[str] = []

    def decode(ids: Sequence[int]) -> str:
        read.append(words[ids[0]])
        return words[ids[0]]

    choose = nearest(encoder, decode)
    states = {}
    for word in words:
        states_BTE, real_BT, _ = encoder.states([word])
        states[word] = states_BTE[0, real_BT[0]].mean(0)
    cosines = [float(torch.cosine_similarity(states[word], states[words[0]], dim=0)) for word in words[1:]]
    wanted = sorted(np.argsort(cosines, kind="stable")[-2:].tolist())
    assert choose([[1], [2], [3]], [0], 2) == wanted
    assert choose([[1], [2], [3], [0]], [0], 1) == [3], "nothing is nearer than itself"
    assert sorted(read) == sorted(words)
