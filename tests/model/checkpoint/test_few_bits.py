"""A writer's matrices in fewer bits: how far each moves, what they take, and what stays as it is."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from model.checkpoint.chat_model import FewBits, round_matrices
from model.errors import ModelError

PACKAGES = {"int8": "torchao", "nf4": "bitsandbytes"}


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.ModuleDict(
        {"query": nn.Linear(128, 192), "norm": nn.LayerNorm(128), "odd": nn.Linear(128, 50, bias=False)}
    ).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("kind", "most"), [("int8", 0.02), ("nf4", 0.12)])
def test_a_matrix_hardly_moves(kind: FewBits, most: float, dtype: torch.dtype) -> None:
    pytest.importorskip(PACKAGES[kind])
    layers = network().to(dtype)
    tokens = torch.randn(5, 128).to(dtype)
    with torch.no_grad():
        before = layers["query"](tokens)
        round_matrices(layers, kind)
        for rows in (slice(0, 5), slice(0, 1)):  # a single token may be multiplied another way
            after = layers["query"](tokens[rows])
            assert after.dtype == dtype
            assert 0 < float((after - before[rows]).norm() / before[rows].norm()) < most


def test_nf4_takes_half_a_byte_a_weight_and_leaves_odd_matrices() -> None:
    pytest.importorskip("bitsandbytes")
    layers = network()
    odd, norm = layers["odd"].weight.clone(), layers["norm"].weight.clone()
    round_matrices(layers, "nf4")
    weight = layers["query"].weight
    assert weight.numel() * weight.element_size() == 128 * 192 / 2
    assert torch.equal(layers["odd"].weight, odd)
    assert torch.equal(layers["norm"].weight, norm)


def test_nf4_of_a_network_without_such_matrices_is_refused() -> None:
    pytest.importorskip("bitsandbytes")
    with pytest.raises(ModelError, match="multiple of 64"):
        round_matrices(nn.ModuleList([nn.Linear(50, 64)]), "nf4")


@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_without_the_package_it_says_what_to_install(kind: FewBits, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGES[kind]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, PACKAGES[kind], None)
    with pytest.raises(ModelError, match=rf"cairn\[{kind}\]"):
        round_matrices(network(), kind)
