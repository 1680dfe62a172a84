"""From recorded reads to shares of attention, against sums by hand."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from model.attention.memory import Selection
from retrieval.query.attention_mass import AnswerMass, mass_by_head
from tests.retrieval.conftest import ask


def selection(layer: int, ids_XS: list[list[int]], gate_HS: list[list[float]]) -> Selection:
    """One query; ids for all heads, or a row for each."""
    gate = torch.tensor(gate_HS)[None, :, None]
    return Selection(layer, torch.tensor(ids_XS)[None, :, None].expand_as(gate), gate)


def test_mass_lands_on_the_blocks_that_were_read_by_layer_and_head():
    group = selection(3, [[1, 4]], [[0.5, 0.1], [0.2, 0.3]])
    head = selection(5, [[0, 1], [1, 5]], [[0.25, 0.25], [0.4, 0.0]])
    ids_U, mass_YHU = mass_by_head([group, head], (3, 5))
    assert ids_U.tolist() == [0, 1, 4, 5]
    expected = torch.zeros(2, 2, 4)
    expected[0, 0, [1, 2]] = torch.tensor([0.5, 0.1])
    expected[0, 1, [1, 2]] = torch.tensor([0.2, 0.3])
    expected[1, 0, [0, 1]] = torch.tensor([0.25, 0.25])
    expected[1, 1, [1, 3]] = torch.tensor([0.4, 0.0])
    torch.testing.assert_close(mass_YHU, expected)


def test_only_the_row_that_chose_the_token_counts():
    gate = torch.rand(1, 2, 3, 2) / 4
    read = Selection(3, torch.tensor([0, 2]).expand_as(gate), gate)
    ids_U, mass_YHU = mass_by_head([read], (3,))
    assert ids_U.tolist() == [0, 2]
    torch.testing.assert_close(mass_YHU[0], gate[0, :, -1])


def test_a_layer_that_read_nothing_counts_as_nothing():
    ids_U, mass_YHU = mass_by_head([selection(5, [[2]], [[0.8]])], (3, 5))
    assert ids_U.tolist() == [2] and mass_YHU.shape == (2, 1, 1) and mass_YHU[0].sum() == 0


def test_an_answers_mass_is_the_mean_over_its_tokens_and_adds_up_to_its_share():
    answer = AnswerMass((3,), 2)
    first = answer.add([selection(3, [[1, 4]], [[0.5, 0.1], [0.2, 0.3]])])
    second = answer.add([selection(3, [[0, 1]], [[0.1, 0.1], [0.1, 0.5]])])
    assert first.memory_share == pytest.approx((0.6 + 0.5) / 2)
    assert first.strongest(8) == [(1, pytest.approx(0.35)), (4, pytest.approx(0.2))]
    assert second.strongest(1) == [(1, pytest.approx(0.3))]
    assert answer.memory_share == pytest.approx((first.memory_share + second.memory_share) / 2)
    assert answer.masses[1] == pytest.approx((0.35 + 0.3) / 2)
    assert answer.mean_mass_YH(1)[0, 1] == pytest.approx((0.2 + 0.5) / 2)


def test_heads_count_by_their_weights_and_the_share_of_memory_by_all():
    answer = AnswerMass((3,), 2, torch.tensor([[1.0, 0.0]]))
    token = answer.add([selection(3, [[1, 4]], [[0.5, 0.1], [0.2, 0.3]])])
    assert token.strongest(8) == [(1, pytest.approx(0.5)), (4, pytest.approx(0.1))]
    assert answer.memory_share == pytest.approx((0.6 + 0.5) / 2)


def test_before_the_first_token_nothing_was_read():
    answer = AnswerMass((3,), 2)
    assert answer.memory_share == 0 and answer.masses == {}


def test_the_attention_on_a_block_is_summed_a_few_times_an_answer_however_many_blocks_were_read(
    library, three, monkeypatch
):
    summed, real = Counter(), AnswerMass.mean_mass_YH

    def counted(mass: AnswerMass, block: int) -> torch.Tensor:
        summed[block] += 1
        return real(mass, block)

    monkeypatch.setattr(AnswerMass, "mean_mass_YH", counted)
    assert ask(library, "Where do whales sing?").check is not None
    assert len(summed) > 20 and max(summed.values()) <= 4
