"""Blocks that many voter groups read are fetched once, with the result of fetching them for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from model.attention import positions
from model.attention.memory import InMemoryReader, KVBlock
from model.attention.positions import SharedBlocks, SlottedBlocks
from model.attention.selection import SelectionPolicy, Voters
from model.inference.session import LandmarkSession
from tests.tiny_model import tiny_model


def blocks_of(num_groups: int, rows: int) -> tuple[SlottedBlocks, SharedBlocks, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    batch, voters, chosen, fetched, length, width = 2, 5, 3, 6, 4, 8
    keys, values = (torch.randn(batch, num_groups, fetched, length, width, generator=rng) for _ in range(2))
    shuffled = torch.rand(batch, num_groups, voters, fetched, generator=rng).argsort(-1)
    ids = shuffled[..., :chosen].sort(-1).values
    lengths = torch.full(ids.shape, length - 1)
    head = torch.arange(num_groups).view(1, -1, 1, 1)
    row = torch.arange(batch).view(-1, 1, 1, 1)
    queries = torch.randn(batch, num_groups, voters, rows, width, generator=rng)
    gathered = SlottedBlocks(ids, keys[row, head, ids], values[row, head, ids], lengths)
    return gathered, SharedBlocks(ids, ids, keys, values, lengths), queries


@pytest.mark.parametrize(("num_groups", "rows"), [(1, 1), (3, 1), (2, 4)])
def test_products_and_weighted_values_are_those_of_copied_blocks(num_groups: int, rows: int) -> None:
    gathered, shared, queries = blocks_of(num_groups, rows)
    scores = gathered.scores(queries)
    torch.testing.assert_close(shared.scores(queries), scores)
    weights = scores.softmax(-1)
    torch.testing.assert_close(shared.weighted(weights), gathered.weighted(weights))


@pytest.mark.parametrize("voters", ["group", "head", "token"])
def test_tokens_read_apart_in_one_pass_share_blocks_and_read_what_they_would_alone(
    voters: Voters, monkeypatch: Any
) -> None:
    model, rng = tiny_model(block_size=8, seed=3), torch.Generator().manual_seed(2)
    shape = (len(model.memory_layers), model.num_kv_heads, 8, model.head_dim)
    blocks = [KVBlock(torch.randn(shape, generator=rng), torch.randn(shape, generator=rng), 7) for _ in range(9)]
    made: list[type] = []

    def watched(*given: Any) -> SharedBlocks:
        made.append(SharedBlocks)
        return SharedBlocks(*given)

    monkeypatch.setattr(positions, "SharedBlocks", watched)
    results = []
    for most in (8, 0):  # 0: never shared
        monkeypatch.setattr(positions, "_SHARED_MOST", most)
        session = LandmarkSession(
            model,
            memory=InMemoryReader.from_blocks(model.memory_layers, blocks),
            policy=SelectionPolicy(top_k=4, voters=voters),
        )
        session.feed([5, 6])
        results.append(session.feed_apart([7, 8, 9, 10]))
        assert made, most
    shared, alone = results
    count = len(made)
    torch.testing.assert_close(shared.hidden_BTE[0], alone.hidden_BTE[0], rtol=1e-5, atol=1e-5)
    for one, other in zip(shared.selections[-1], alone.selections[-1], strict=True):
        assert torch.equal(one.ids_BHQS, other.ids_BHQS)
        torch.testing.assert_close(one.gate_BHQS, other.gate_BHQS, rtol=1e-5, atol=1e-6)
    assert len(made) == count
