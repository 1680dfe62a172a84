"""Kernels that are wrong or do not run on a device are not used there, and the log says so."""

from __future__ import annotations

import logging

import pytest
import torch

from model.attention import fused as trust
from model.attention.blockwise import blockwise_attention
from tests.model.attention.fused_twin import chosen_blocks_twin

CPU = torch.device("cpu")


def slightly_wrong(*leaves, **options):
    return blockwise_attention(*leaves, **options) * 1.1


def wrong_gradient(query, key, value, **options):
    return blockwise_attention(query, key.detach() + 0.0 * key, value, **options)


def not_finite(*leaves, **options):
    return blockwise_attention(*leaves, **options) * float("nan")


def crashing(*leaves, **options):
    raise RuntimeError("out of resource: shared memory")


def wrong_blocks(*tensors, **options):
    outs, gates = chosen_blocks_twin(*tensors, **options)
    return outs, gates + 1.0


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch):
    monkeypatch.setattr(trust, "read_chosen_blocks", chosen_blocks_twin)
    agrees = trust.agrees
    agrees.cache_clear()
    yield
    agrees.cache_clear()


@pytest.fixture
def seconds(monkeypatch):
    """What a form takes, by the form; others take a second."""
    taken = {}
    monkeypatch.setattr(trust, "_seconds", lambda form, *_: taken.get(form, 1.0))
    return taken


def test_right_kernels_are_used(monkeypatch, seconds):
    monkeypatch.setattr(trust, "fused_attention", blockwise_attention)
    assert trust.agrees(CPU, torch.bfloat16, 16, 8)
    assert trust.largest_error(CPU, torch.bfloat16, 16, 8) < 0.01


def test_a_kernel_of_chosen_blocks_that_is_wrong_is_not(monkeypatch, caplog, seconds):
    monkeypatch.setattr(trust, "fused_attention", blockwise_attention)
    monkeypatch.setattr(trust, "read_chosen_blocks", wrong_blocks)
    with caplog.at_level(logging.WARNING):
        assert not trust.agrees(CPU, torch.bfloat16, 16, 8)
    assert "off by" in caplog.text


@pytest.mark.parametrize(
    ("kernels", "words"),
    [(slightly_wrong, "off by"), (wrong_gradient, "off by"), (not_finite, "off by inf"), (crashing, "shared memory")],
)
def test_wrong_ones_are_not(monkeypatch, caplog, kernels, words):
    monkeypatch.setattr(trust, "fused_attention", kernels)
    with caplog.at_level(logging.WARNING):
        assert not trust.agrees(CPU, torch.bfloat16, 16, 8)
    assert words in caplog.text


def test_right_ones_that_are_slower_are_not(monkeypatch, caplog, seconds):
    def the_same(*leaves, **options):
        return blockwise_attention(*leaves, **options)

    monkeypatch.setattr(trust, "fused_attention", the_same)
    seconds[the_same] = 1.5
    with caplog.at_level(logging.WARNING):
        assert not trust.agrees(CPU, torch.bfloat16, 16, 8)
    assert "take 1.5 times as long" in caplog.text


def test_both_forms_are_timed():
    assert trust._seconds(blockwise_attention, [torch.ones(1, 2, 24, 16)] * 3, 8) > 0


def test_they_are_tried_also_while_gradients_are_off(monkeypatch, seconds):
    monkeypatch.setattr(trust, "fused_attention", blockwise_attention)
    with torch.inference_mode(), torch.autocast("cpu"):
        assert trust.agrees(CPU, torch.bfloat16, 16, 8)


def test_off_a_gpu_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(trust, "agrees", lambda *sizes: pytest.fail("tried"))
    assert not trust.fused_is_right(torch.zeros(1, 1, 8, 16), 8)
