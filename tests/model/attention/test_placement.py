"""Landmarks at other places of their blocks, and the context-miss token, against the definitions and one pass."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model.attention.grouped_softmax import fold_far_blocks
from model.attention.selection import SelectionPolicy
from model.attention.variants.context_miss import MissGate, without_needless
from model.attention.variants.placement import (
    PLACES,
    LandmarkPlace,
    fold_placed_blocks,
    landmarks_of_block,
    offsets_in_block,
    tokens_before,
)
from model.checkpoint.landmark_model import LandmarkModel
from model.errors import ModelError
from model.inference.prefill import prefill
from model.inference.session import LandmarkSession
from research.train.evaluation.perplexity import segment_losses
from tests.tiny_model import tiny_model

SIZE = 5


def scores_of(length: int, seed: int = 0) -> Tensor:
    return torch.randn(length, length, generator=torch.Generator().manual_seed(seed)) * 2


def weights_by_definition(
    scores_QK: Tensor, place: LandmarkPlace, miss_Q: Tensor | None = None, remote_N: Tensor | None = None
) -> Tensor:
    """One weight at a time, over tokens in the order of the text; scores are in that of tensors (landmarks last)."""
    length, landmarks = len(scores_QK), landmarks_of_block(place)
    before = tokens_before(place, SIZE, 0, -(-length // SIZE)).tolist()
    text = []  # (block, landmark?, number in the tensor)
    for block in range(len(before)):
        raw = [(block, False, block * SIZE + n) for n in range(SIZE - landmarks)]
        for m in reversed(range(landmarks)):
            raw.insert(before[block][m], (block, True, (block + 1) * SIZE - landmarks + m))
        text += [token for token in raw if token[2] < length]
    weights = torch.zeros_like(scores_QK)
    for at, (own, _, query) in enumerate(text):
        own_tokens = [key for block, landmark, key in text[: at + 1] if block == own and not landmark]
        share = {("token", key): math.exp(scores_QK[query, key]) for key in own_tokens}
        remote = [n for n in range(own) if remote_N is not None and bool(remote_N[n])]
        gates = {
            n: sum(math.exp(scores_QK[query, key]) for block, mark, key in text if mark and block == n)
            for n in range(own)
        }
        share |= {("gate", n): gates[n] for n in gates if n not in remote}
        if remote:
            assert miss_Q is not None
            share |= {("miss", 0): math.exp(miss_Q[query])}
        total = sum(share.values())
        for key in own_tokens:
            weights[query, key] = share["token", key] / total
        for n in gates:
            gate = share["gate", n] if n not in remote else share["miss", 0] * gates[n] / sum(gates[r] for r in remote)
            members = [key for block, mark, key in text if block == n and not mark]
            within = sum(math.exp(scores_QK[query, key]) for key in members)
            for key in members:
                weights[query, key] = gate / total * math.exp(scores_QK[query, key]) / within
    return weights


def placed_weights(scores_QK: Tensor, place: LandmarkPlace, miss: MissGate | None = None) -> Tensor:
    before_NM = tokens_before(place, SIZE, 0, -(-len(scores_QK) // SIZE))
    logits = fold_placed_blocks(scores_QK[None, None], SIZE, before_NM, miss=miss)
    return logits.softmax(-1).masked_fill(logits < -1e29, 0.0)[0, 0]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("length", [4, 5, 13, 20])
def test_weights_are_those_of_the_definition(place: LandmarkPlace, length: int) -> None:
    scores_QK = scores_of(length)
    torch.testing.assert_close(
        placed_weights(scores_QK, place), weights_by_definition(scores_QK, place), atol=1e-6, rtol=1e-4
    )


def test_at_the_end_it_is_the_paper() -> None:
    scores = scores_of(17)[None, None]
    placed = fold_placed_blocks(scores, SIZE, tokens_before("end", SIZE, 0, 4))
    torch.testing.assert_close(placed.softmax(-1), fold_far_blocks(scores, SIZE).softmax(-1), atol=1e-6, rtol=1e-5)


def test_every_column_has_a_position_of_its_own() -> None:
    for place in PLACES:
        offset_NL = offsets_in_block(tokens_before(place, 8, 3, 50), 8)
        assert offset_NL.sort(1).values.tolist() == [list(range(8))] * 50
        raw_NJ = offset_NL[:, : 8 - landmarks_of_block(place)]
        assert bool((raw_NJ.diff(dim=1) > 0).all()), "ordinary tokens keep their order"
    assert offsets_in_block(tokens_before("two", 8, 0, 1), 8).tolist() == [[0, 1, 2, 4, 5, 6, 3, 7]]
    drawn = tokens_before("random", 8, 0, 400)
    assert set(drawn.flatten().tolist()) == set(range(8))
    assert torch.equal(drawn[7:], tokens_before("random", 8, 7, 393)), "a block's place follows from its number"


def placed_model(place: LandmarkPlace = "end", *, miss: bool = False) -> LandmarkModel:
    token = 260 if miss else None
    model = tiny_model(block_size=8, landmark_in_loss=False, landmark_place=place, context_miss_token_id=token)
    return model.requires_grad_(False)


TEXT = torch.randint(0, 40, (57,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.mark.parametrize("place", PLACES)
def test_reading_all_stored_blocks_equals_one_pass(place: LandmarkPlace) -> None:
    model = placed_model(place)
    whole = segment_losses(model, TEXT, window_blocks=99, top_k=0)
    for window in (1, 2):
        read = segment_losses(model, TEXT, window_blocks=window, top_k=99)
        torch.testing.assert_close(read, whole, atol=2e-5, rtol=1e-4)
    other = segment_losses(placed_model("end" if place != "end" else "middle"), TEXT, window_blocks=99, top_k=0)
    assert not torch.allclose(other, whole, atol=1e-4), "the place matters"


@pytest.mark.parametrize("place", PLACES)
def test_no_token_sees_what_follows_it(place: LandmarkPlace) -> None:
    model = placed_model(place)
    changed = [*TEXT[:30], 41, *TEXT[31:]]
    before, after = (segment_losses(model, text, window_blocks=99, top_k=0) for text in (TEXT, changed))
    assert torch.equal(before[:29], after[:29]) and not torch.equal(before[30:], after[30:])


def test_two_landmarks_choose_by_the_sum_of_their_shares() -> None:
    model = placed_model("two")
    session = LandmarkSession(
        model, policy=SelectionPolicy(top_k=2, voters="token", positions="none"), window_blocks=1
    )  # fmt: skip
    read = session.feed(TEXT[: 6 * 7 + 1]).selections[-1][1]
    everything = SelectionPolicy(top_k=99, voters="token", positions="none")
    all_read = LandmarkSession(model, policy=everything, window_blocks=1).feed(TEXT[:7]).selections
    assert all_read[0] == () and read.ids_BHQS.shape[-1] == 2


def miss_of(length: int) -> tuple[Tensor, MissGate]:
    miss_Q = torch.randn(length, generator=torch.Generator().manual_seed(9))
    remote_BN = torch.tensor([[True, False, True, True]])[:, : -(-length // SIZE)]
    return miss_Q, MissGate(miss_Q[None, None], remote_BN)


@pytest.mark.parametrize("length", [4, 12, 20])
def test_remote_blocks_share_what_the_context_miss_token_gets(length: int) -> None:
    scores_QK, (miss_Q, miss) = scores_of(length), miss_of(length)
    wanted = weights_by_definition(scores_QK, "end", miss_Q, miss.remote_BN[0])  # type: ignore[index]
    torch.testing.assert_close(placed_weights(scores_QK, "end", miss), wanted, atol=1e-6, rtol=1e-4)


def test_stored_blocks_are_remote() -> None:
    """In windows of one block everything earlier is stored: one pass in which every block is remote."""
    model = placed_model(miss=True)
    read = segment_losses(model, TEXT, window_blocks=1, top_k=99)
    ids = model.with_landmarks(TEXT[:-1])
    context = model.context()
    context.remote_BN = torch.ones(1, -(-len(ids) // 8), dtype=torch.bool)
    hidden_TE = model.encode(torch.tensor([ids]), context)[0]
    raw_T = torch.tensor(ids) != model.config.landmark_token_id
    whole = torch.nn.functional.cross_entropy(
        model.logits(hidden_TE[raw_T]).float(), torch.tensor(TEXT[1:]), reduction="none"
    )
    torch.testing.assert_close(read, whole, atol=2e-5, rtol=1e-4)
    without = segment_losses(placed_model(), TEXT, window_blocks=1, top_k=99)
    torch.testing.assert_close(read[:7], without[:7], atol=2e-5, rtol=1e-4, msg="with nothing stored it takes no part")
    assert not torch.allclose(read[8:], without[8:], atol=1e-4)


def test_a_query_below_the_cutoff_reads_nothing() -> None:
    model = placed_model(miss=True)
    policy = SelectionPolicy(top_k=3, voters="token", positions="paper")

    def gates(cutoff: float) -> Tensor:
        session = LandmarkSession(model, policy=replace(policy, miss_cutoff=cutoff), window_blocks=2)
        return session.feed(TEXT).selections[1][0].gate_BHQS.sum(-1)

    every = gates(0.0)
    middle = float(every.median())
    cut = gates(middle)
    assert torch.equal(cut, every.masked_fill(every < middle, 0.0)) and 0 < float((cut == 0).float().mean()) < 1
    assert float(gates(1.01).max()) == 0.0
    weights = torch.full((1, 1, 1, 2, 3), 0.1)
    assert torch.equal(without_needless(weights, 0.5), weights)


def test_the_context_miss_token_is_learned() -> None:
    model = placed_model(miss=True).requires_grad_(True)
    context = model.context()
    context.remote_BN = torch.ones(1, 3, dtype=torch.bool)
    model.encode(torch.tensor([model.with_landmarks(TEXT[:18])]), context).square().sum().backward()
    gradient = model.backbone.get_input_embeddings().weight.grad
    assert float(gradient[260].abs().sum()) > 0 and float(gradient[261].abs().sum()) == 0


def test_libraries_have_their_landmarks_at_the_end() -> None:
    for model in (placed_model("middle"), placed_model(miss=True)):
        with pytest.raises(ModelError, match="end of their blocks"):
            list(prefill(model, TEXT))
    with pytest.raises(ModelError, match="landmark_place"):
        placed_model("above")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="not predicted"):
        tiny_model(landmark_in_loss=True, landmark_place="middle")
