"""Who chooses which blocks, and what happens when votes are equal."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from model.attention.selection import SelectionPolicy, Voters, choose_blocks
from model.errors import ModelError
from model.inference.session import LandmarkSession, StepOutput
from tests.tiny_model import tiny_model

VOTERS: list[Voters] = ["token", "head", "group"]


@given(
    st.integers(3, 64), st.integers(1, 3), st.sampled_from([8, 16, 32, 64]), st.integers(1, 9), st.integers(0, 2**31)
)
@settings(max_examples=60)
def test_of_equal_landmark_keys_the_newest_are_taken(
    block_size: int, groups: int, dim: int, top_k: int, seed: int
) -> None:
    """As many blocks as a text of 900 tokens has; the rows of one query, of a few, and of a whole block vote."""
    random = torch.Generator().manual_seed(seed)
    stored = max(top_k + 1, 900 // block_size)
    key = torch.randn(1, groups, 1, dim, generator=random).expand(-1, -1, stored, -1).contiguous()
    for rows in (1, 2, block_size):
        queries = torch.randn(1, groups, 5, rows, dim, generator=random)
        newest = torch.arange(stored - top_k, stored).expand(1, groups, 5, -1)
        assert torch.equal(choose_blocks(queries, key, top_k), newest)
        direction = nn.functional.normalize(key[:, :, :1, None], dim=-1)
        queries = queries - (queries * direction).sum(-1, keepdim=True) * direction  # logits that cancel to almost 0
        assert torch.equal(choose_blocks(queries, key, top_k), newest)


@given(st.integers(2, 40), st.integers(1, 8), st.integers(0, 2**31))
def test_equal_keys_do_not_hide_a_better_one(stored: int, top_k: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    key = torch.randn(16, generator=random)
    keys, best = key.repeat(stored, 1), int(torch.randint(0, stored, (1,), generator=random))
    keys[best] *= 1.001
    chosen = choose_blocks(key.view(1, 1, 1, 1, 16), keys[None, None], top_k).flatten().tolist()
    assert best in chosen


@pytest.mark.parametrize("voters", VOTERS)
@pytest.mark.parametrize("block_size", [3, 4, 7])
def test_the_first_layer_of_a_model_takes_the_newest_of_its_equal_blocks(block_size: int, voters: Voters) -> None:
    model = tiny_model(block_size=block_size).requires_grad_(False)
    policy = SelectionPolicy(top_k=3, voters=voters, positions="paper")
    fed = LandmarkSession(model, policy=policy, window_blocks=1).feed(torch.randint(0, 250, (90,)).tolist())
    for stored, reads in enumerate(fed.selections):
        first = [read for read in reads if read.layer == 0]
        for ids in (read.ids_BHQS for read in first):
            # The k newest are scored at other positions; of the rest, all equal, the newest.
            old = (ids < stored - min(3, stored)).sum(-1, keepdim=True)
            order = torch.arange(ids.shape[-1])
            assert torch.equal(
                torch.where(order < old, ids, -1), torch.where(order < old, stored - 3 - old + order, -1)
            )


def read_paper_text(model, policy: SelectionPolicy) -> StepOutput:  # type: ignore[no-untyped-def]
    raw = torch.randint(0, 250, (120,), generator=torch.Generator().manual_seed(5)).tolist()
    return LandmarkSession(model, policy=policy, window_blocks=2).feed(raw)


def test_all_heads_of_a_query_may_choose_together_as_in_the_published_code() -> None:
    """softmax over the landmarks of each head, the maximum over the heads: written as a loop over tokens."""
    random = torch.Generator().manual_seed(2)
    groups, heads, queries, stored, dim, k = 2, 3, 4, 9, 16, 3
    query_BHQD = torch.randn(1, groups * heads, queries, dim, generator=random)
    landmarks = torch.randn(1, groups, stored, dim, generator=random)
    policy = SelectionPolicy(top_k=k, voters="all_heads", positions="paper")
    ids = choose_blocks(policy.voter_rows(query_BHQD, groups), landmarks, k, all_heads=True)
    assert ids.shape == (1, groups, queries, k)
    for token in range(queries):
        votes = torch.zeros(stored)
        for head in range(groups * heads):
            logits = landmarks[0, head // heads] @ query_BHQD[0, head, token]
            votes = torch.maximum(votes, logits.softmax(-1))
        wanted = votes.topk(k).indices.sort().values
        assert all(ids[0, group, token].tolist() == wanted.tolist() for group in range(groups))
    # Through the model: one set per token, in every layer the same for all heads, different between tokens.
    model = tiny_model().requires_grad_(False)
    reads = read_paper_text(model, policy).selections[-1]
    for read in reads:
        assert bool((read.ids_BHQS == read.ids_BHQS[:, :1]).all())
    assert any(bool((read.ids_BHQS != read.ids_BHQS[:, :, :1]).any()) for read in reads)
    with pytest.raises(ModelError, match="positions='paper'"):
        SelectionPolicy(voters="all_heads")


def test_reading_everything_does_not_depend_on_who_chooses() -> None:
    model = tiny_model().requires_grad_(False)
    policies = [SelectionPolicy(top_k=99, voters=v, positions="paper") for v in (*VOTERS, "all_heads")]  # type: ignore[arg-type]
    first, *others = (read_paper_text(model, policy).hidden_BTE[0] for policy in policies)
    for other in others:
        torch.testing.assert_close(other, first, atol=1e-5, rtol=1e-5)


class Largest(TorchDispatchMode):
    """Numbers in the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.numbers = max(self.numbers, out.numel())
        return out


def test_landmarks_are_not_copied_for_every_voter() -> None:
    """Each token of each head chooses for itself: as many voters as rows, one matrix product."""
    queries, landmarks, largest = torch.randn(1, 2, 40, 1, 64), torch.randn(1, 2, 50, 64), Largest()
    with largest:
        choose_blocks(queries, landmarks, 4)
    assert largest.numbers <= 2 * 50 * 64
