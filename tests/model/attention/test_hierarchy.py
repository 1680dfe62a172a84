"""Two levels of landmarks: what they choose, and when that is what one level chooses."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.attention.hierarchy import LandmarkHierarchy, choose_in_groups
from model.attention.selection import Hierarchy, SelectionPolicy, choose_blocks
from model.errors import ModelError
from model.inference.session import LandmarkSession
from tests.tiny_model import tiny_model


@given(
    st.integers(1, 90), st.integers(2, 9), st.integers(1, 6), st.integers(1, 3), st.booleans(), st.integers(0, 2**31)
)
@settings(max_examples=30)
def test_every_group_is_the_search_of_one_level(
    stored: int, fan_out: int, k: int, rows: int, all_heads: bool, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    landmarks = torch.randn(1, 2, stored, 8, generator=random)
    queries = torch.randn(3, 2, 2, rows, 8, generator=random)
    wanted = choose_blocks(queries, landmarks, k, scaling=0.3, all_heads=all_heads)
    found = choose_in_groups(
        queries, landmarks, k, Hierarchy(fan_out=fan_out, groups=99), scaling=0.3, all_heads=all_heads
    )
    assert torch.equal(found, wanted)


@given(st.integers(1, 4), st.integers(0, 7), st.integers(0, 2**31))
@settings(max_examples=20)
def test_the_best_groups_are_looked_into(groups: int, tail: int, seed: int) -> None:
    """One query at a time, in numbers: means of groups of 8, then the landmarks of the best and of the unfinished."""
    random = torch.Generator().manual_seed(seed)
    landmarks = torch.randn(40 + tail, 6, generator=random)
    query = torch.randn(6, generator=random)
    means = torch.stack([landmarks[at : at + 8].mean(0) for at in range(0, 40, 8)])
    best = (means @ query).topk(groups).indices.tolist()
    allowed = [n for n in range(40 + tail) if n >= 40 or n // 8 in best]
    wanted = sorted(sorted(allowed, key=lambda n: float(landmarks[n] @ query))[-3:])
    found = LandmarkHierarchy.of(landmarks[None, None], 8).choose(query.view(1, 1, 1, 1, 6), 3, groups)
    assert found.flatten().tolist() == wanted


def test_equal_landmarks_give_the_newest_of_the_newest_group() -> None:
    landmarks = torch.ones(1, 1, 32, 4)
    found = choose_in_groups(torch.ones(1, 1, 1, 1, 4), landmarks, 3, Hierarchy(fan_out=8, groups=1))
    assert found.flatten().tolist() == [29, 30, 31]


def test_a_text_is_read_through_two_levels() -> None:
    model = tiny_model().requires_grad_(False)
    raw = torch.randint(0, 250, (7 * 30,), generator=torch.Generator().manual_seed(5)).tolist()

    def hidden(hierarchy: Hierarchy | None) -> torch.Tensor:
        policy = SelectionPolicy(top_k=2, voters="token", positions="paper", hierarchy=hierarchy)
        return LandmarkSession(model, policy=policy, window_blocks=2).feed(raw).hidden_TE

    flat, whole, narrow = hidden(None), hidden(Hierarchy(fan_out=4, groups=9)), hidden(Hierarchy(fan_out=4, groups=1))
    torch.testing.assert_close(whole, flat)
    assert not torch.allclose(narrow, flat)
    with pytest.raises(ModelError, match="top_k"):
        SelectionPolicy(top_k=9, positions="paper", hierarchy=Hierarchy(fan_out=4, groups=1))
    with pytest.raises(ModelError, match="library"):
        SelectionPolicy(hierarchy=Hierarchy())
    with pytest.raises(ModelError, match="at least 2"):
        Hierarchy(fan_out=1)
