"""Landmarks over states that the network gives: something is learned, and all sizes are compared on the same texts."""

import json
from pathlib import Path

import pytest
import torch

from model.checkpoint.landmark_model import LandmarkModel
from research.landmark_lm.block_sizes import Cut, Landmarks, TextsRead, compare, figures_of, learn, ranks_of, states_of
from research.landmark_lm.sources import Tokens
from research.landmark_models import with_config
from tests.research.landmark_lm.conftest import SHAPE

WIDTH, NAMES = 48, 24


def named(seed: int, passages: int) -> TextsRead:
    """Passages of 24 tokens, all noise but one, which is one of a few names; a question is a name behind noise."""
    random = torch.Generator().manual_seed(seed)
    names_AE = 3 * torch.randn(NAMES, WIDTH, generator=torch.Generator().manual_seed(9))
    names_AE[:, 0] = 9.0  # by which any name is known
    states_PTE = torch.randn(passages, 26, WIDTH, generator=random)
    places = torch.randint(24, (passages,), generator=random).tolist()
    for number, place in enumerate(places):
        states_PTE[number, [place, 25]] = names_AE[number % NAMES]
    asked = [("?", number, place, place + 1) for number, place in enumerate(places)]
    passage_states, question_states = (list(states_PTE[:, part]) for part in (slice(24), slice(24, 26)))
    return TextsRead([[0] * 24] * passages, asked, {0: passage_states}, {0: question_states})


def test_a_landmark_learns_to_stand_for_what_its_block_holds() -> None:
    cut = Cut.of(named(0, NAMES), 0, 8)
    learned = learn(Cut.of(named(1, 240), 0, 8), landmarks=1, steps=100, rate=1e-2)
    right, untaught = (sum(rank < 1 for rank in ranks_of(each, cut)) for each in (learned, Landmarks(WIDTH, 1)))
    assert len(cut.blocks_NLE) == 3 * NAMES
    assert right > 0.7 * NAMES and untaught < right / 2, (right, untaught)


def test_blocks_cut_passages_without_a_rest_and_know_their_answers() -> None:
    texts = TextsRead([[1] * 10, [2] * 5], [("?", 0, 3, 5), ("?", 1, 4, 5)], {}, {})
    assert list(texts.blocks(4)) == [
        (0, slice(0, 4)), (0, slice(4, 8)), (0, slice(8, 10)), (1, slice(0, 4)), (1, slice(4, 5))
    ]  # fmt: skip
    assert texts.gold(4) == [[0, 1], [4]] and texts.gold(100) == [[0], [1]]


def test_the_same_text_is_read_of_large_and_of_small_blocks() -> None:
    ranks = [0, 4, 7, 20]
    large, small = (figures_of({"size": size}, ranks, 512 * 100 // size) for size in (100, 25))
    assert (large["first"], large["within"], large["chance"]) == (0.25, 0.5, pytest.approx(0.01, abs=1e-3))
    assert (small["within"], small["chance"]) == (0.75, pytest.approx(0.01, abs=1e-3))


def test_states_are_those_of_each_text_alone(lm: LandmarkModel) -> None:
    plain = with_config(lm, block_size=1 << 20)
    texts = [list(range(10, 30)), list(range(40, 47))]
    together = states_of(plain, texts, (1, 2))
    for number, text in enumerate(texts):
        alone = states_of(plain, [text], (1, 2))
        for layer in (1, 2):
            torch.testing.assert_close(together[layer][number], alone[layer][0], atol=0.02, rtol=0.02)


def test_every_arm_is_compared_by_one_call(
    lm: LandmarkModel, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"SIZES": (8, 16), "LAYERS": (1, 2), "LAYER": 1, "SIZE": 16}.items():
        monkeypatch.setattr(f"research.landmark_lm.block_sizes.{name}", value)
    tokens = Tokens(with_config(lm, block_size=1 << 20), SHAPE, room=64)
    rows = compare(tokens, data, tmp_path, passages=4, steps=1)
    assert [(row["key"], row["size"], row["layer"], row["landmarks"]) for row in rows] == [
        ("landmark", 8, 1, 1), ("landmark", 16, 1, 1), ("landmark", 32, 1, 2), ("landmark", 16, 1, 2),
        ("landmark", 16, 2, 1), ("BM25", 8, "", ""), ("BM25", 16, "", ""),
    ]  # fmt: skip
    assert json.loads((tmp_path / "block_sizes.json").read_text()) == rows
