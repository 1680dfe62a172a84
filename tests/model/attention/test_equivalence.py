"""Oracles that need no recordings: the model's own one-pass forward, Hugging Face's attention, and a loop written
from the paper."""

import math
from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from model.attention.grouped_softmax import fold_far_blocks, fold_slots
from model.attention.memory import InMemoryReader
from model.attention.selection import SelectionPolicy, top_blocks
from model.inference.prefill import prefill, windows_at_once
from model.inference.session import LandmarkSession
from tests.model.attention.general_form import grouped_softmax
from tests.tiny_model import FAMILIES, tiny_model


def paper_weights(scores: list[float], landmarks: list[bool]) -> list[float]:
    """Weights of the last query over all keys, by the definitions of the paper, one number at a time."""
    block = [sum(landmarks[:j]) for j in range(len(scores))]
    own = max(block)
    first = [j for j in range(len(scores)) if (block[j] == own) != landmarks[j]]
    total = sum(math.exp(scores[j]) for j in first)
    weights = [0.0] * len(scores)
    for j, score in enumerate(scores):
        if landmarks[j]:
            continue
        if block[j] == own:
            weights[j] = math.exp(score) / total
        else:
            members = [i for i in range(len(scores)) if block[i] == block[j] and not landmarks[i]]
            gate = next(i for i in range(len(scores)) if landmarks[i] and block[i] == block[j])
            weights[j] = math.exp(scores[gate]) / total * math.exp(score) / sum(math.exp(scores[i]) for i in members)
    return weights


@given(st.integers(2, 6), st.integers(1, 20), st.integers(0, 2**31))
def test_both_forms_follow_the_definitions_of_the_paper(block_size: int, length: int, seed: int) -> None:
    scores = torch.randn(length, length, generator=torch.Generator().manual_seed(seed)) * 3
    landmark = torch.arange(length) % block_size == block_size - 1
    visible = torch.ones(length, length, dtype=torch.bool).tril()
    general = grouped_softmax(scores[None, None], visible[None], landmark[None])[0, 0]
    folded = fold_far_blocks(scores[None, None], block_size).softmax(-1)[0, 0]
    for query in range(length):
        wanted = torch.tensor(paper_weights_of(scores[query, : query + 1], landmark[: query + 1]))
        torch.testing.assert_close(general[query, : query + 1], wanted, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(folded[query, : query + 1], wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(general.sum(-1), torch.ones(length), atol=1e-5, rtol=0)


def paper_weights_of(scores: torch.Tensor, landmark: torch.Tensor) -> list[float]:
    """The query is the last key; a landmark as query belongs to the block it ends and does not see itself."""
    if landmark[-1]:
        return paper_weights(scores[:-1].tolist(), landmark[:-1].tolist()) + [0.0]
    return paper_weights(scores.tolist(), landmark.tolist())


@given(st.floats(-5, 5), st.integers(0, 2**31))
def test_a_gate_scales_its_whole_block(shift: float, seed: int) -> None:
    scores = torch.randn(1, 1, 1, 2, 6, generator=torch.Generator().manual_seed(seed))
    lengths = torch.full((1, 1, 1, 2), 5)
    before = fold_slots(scores, lengths).exp()
    scores[..., 0, -1] += shift
    after = fold_slots(scores, lengths).exp()
    torch.testing.assert_close(after[..., 0, :], before[..., 0, :] * math.exp(shift), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(after[..., 1, :], before[..., 1, :])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 12))
def test_among_equal_votes_the_newest_block_wins(votes: list[int], k: int) -> None:
    wanted = sorted(sorted(range(len(votes)), key=lambda n: (votes[n], n), reverse=True)[:k])
    assert top_blocks(torch.tensor(votes, dtype=torch.float32), k).tolist() == wanted


def test_votes_about_as_far_apart_as_the_tolerance_choose_exactly_k_blocks() -> None:
    """Every vote is above the k-th or its equal: none may fall between, as where the sum of both is rounded."""
    generator = torch.Generator().manual_seed(0)
    votes = -10 - torch.randint(0, 40, (3000, 24), generator=generator) * 2.0**-20
    tolerance = torch.rand(3000, 1, generator=generator) * 20 * 2.0**-20
    chosen = top_blocks(votes, 2, tolerance=tolerance)
    assert int(chosen.max()) < 24 and bool((chosen[:, 0] < chosen[:, 1]).all())


@pytest.mark.parametrize("family", FAMILIES)
def test_inside_one_block_it_is_the_attention_of_hugging_face(family: str) -> None:
    model = tiny_model(family, block_size=32).requires_grad_(False)
    ids = torch.randint(0, 256, (2, 31))
    plain = AutoModelForCausalLM.from_config(deepcopy(FAMILIES[family])).eval()
    plain.load_state_dict(model.backbone.state_dict())
    plain.set_attn_implementation("sdpa")
    with torch.no_grad():
        torch.testing.assert_close(model(ids), plain(ids).logits, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("voters", ["token", "head", "group"])
def test_reading_all_stored_blocks_equals_one_pass_over_the_text(family: str, voters: str) -> None:
    model = tiny_model(family).requires_grad_(False)
    raw = torch.randint(0, 256, (6 * 7 + 5,)).tolist()
    whole = model(torch.tensor([model.with_landmarks(raw)]))[0]
    stream = LandmarkSession(model, policy=SelectionPolicy(top_k=99, voters=voters, positions="paper"), window_blocks=2)  # type: ignore[arg-type]
    pieces = [
        raw[:10],
        raw[10:33],
        *([token] for token in raw[33:]),
    ]  # begins in mid-block, crosses windows, then token by token
    logits = torch.cat([model.logits(stream.feed(piece).hidden_BTE[0]) for piece in pieces])
    torch.testing.assert_close(logits, whole, atol=1e-5, rtol=1e-5)


def library_logits(model, blocks, prompt, k=3, voters="group"):
    memory = InMemoryReader.from_blocks(model.memory_layers, blocks)
    fed = LandmarkSession(model, memory=memory, policy=SelectionPolicy(top_k=k, voters=voters)).feed(prompt)
    for read in fed.selections[0]:
        assert bool((read.gate_BHQS.sum(-1) < 1).all())
    return model.logits(fed.hidden_BTE[0])


@given(st.permutations(range(7)), st.sampled_from(["token", "head", "group"]))
def test_the_order_of_storage_does_not_change_the_answer(order: list[int], voters: str) -> None:
    model = tiny_model().requires_grad_(False)
    blocks = list(prefill(model, range(1, 7 * 7 - 2)))
    assert [block.num_tokens for block in blocks] == [7] * 6 + [4]
    prompt = list(range(60, 72))
    expected = library_logits(model, blocks, prompt, voters=voters)
    torch.testing.assert_close(
        library_logits(model, [blocks[n] for n in order], prompt, voters=voters), expected, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("settings", [{"context_blocks": 0}, {"context_blocks": 3, "memory_layers": (1,)}])
def test_windows_that_do_not_see_each_other_are_read_side_by_side(
    settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(window_blocks=2, **settings)
    text = torch.randint(0, 256, (7 * 23 + 3,)).tolist()
    assert windows_at_once(model) > 1
    together = list(prefill(model, text))
    monkeypatch.setattr("model.inference.prefill.windows_at_once", lambda model: 1)
    for one, other in zip(prefill(model, text), together, strict=True):
        assert one.num_tokens == other.num_tokens
        torch.testing.assert_close(one.keys_YGLD, other.keys_YGLD)
        torch.testing.assert_close(one.values_YGLD, other.values_YGLD)


def test_windows_that_see_what_stands_before_them_are_read_one_after_the_other() -> None:
    assert windows_at_once(tiny_model(window_blocks=2, context_blocks=1)) == 1


def test_a_run_resumed_from_stored_blocks_continues_bit_for_bit() -> None:
    model = tiny_model(window_blocks=2, context_blocks=3)
    text = torch.randint(0, 256, (7 * 9 + 2,)).tolist()
    whole = list(prefill(model, text, kv_dtype=torch.bfloat16))
    resumed = list(prefill(model, text[4 * 7 :], recent=whole[:4], kv_dtype=torch.bfloat16))
    for one, other in zip(whole[4:], resumed, strict=True):
        assert torch.equal(one.keys_YGLD, other.keys_YGLD) and torch.equal(one.values_YGLD, other.values_YGLD)


def test_prefill_hands_out_blocks_before_it_reads_on() -> None:
    model = tiny_model(window_blocks=2)
    taken = 0

    def tokens():
        nonlocal taken
        for token in range(200):
            taken += 1
            yield token % 256

    next(prefill(model, tokens()))
    assert taken == windows_at_once(model) * 2 * 7


def test_between_the_layers_of_prefill_others_may_use_the_model() -> None:
    model, tokens = tiny_model(window_blocks=2, context_blocks=1), list(range(40))
    calm = list(prefill(model, tokens))
    seen: list[int] = []

    def ask() -> None:
        seen.append(len(seen))
        model(torch.tensor([model.with_landmarks(range(7))]))

    for block, other in zip(calm, prefill(model, tokens, between_layers=ask), strict=True):
        assert block.keys_YGLD.equal(other.keys_YGLD) and block.values_YGLD.equal(other.values_YGLD)
    windows = -(-len(tokens) // (2 * model.config.tokens_per_block))
    assert len(seen) == windows * model.memory_layers[-1], "in every layer before the last stored one"


def test_padding_of_a_short_last_block_is_never_read() -> None:
    model = tiny_model().requires_grad_(False)
    blocks = list(prefill(model, [5, 6, 7]))
    prompt = [9, 8, 7]
    expected = library_logits(model, blocks, prompt)
    blocks[0].values_YGLD[:, :, 3:7] = 1e6
    blocks[0].keys_YGLD[:, :, 3:7] = 1e3
    torch.testing.assert_close(library_logits(model, blocks, prompt), expected)
