"""Stored segments of ordinary checkpoints give what Hugging Face's own forward gives, in every family."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

from model.attention import plain_attention
from model.checkpoint.chat_model import ChatModel, FewBits
from model.inference.stored_prefix import (
    AssembledPrompt,
    StoredSegment,
    chosen_rows,
    read_prefix,
    read_question,
    read_segment,
)
from tests.tiny_model import CHAT_FAMILIES, tiny_backbone, tiny_chat_model

QUESTION = "Where is the key?"
TEXTS = ("The key is under the mat. ", "The mat lies in the hall of the old house.", "Nobody is at home before noon. ")

every_family = pytest.mark.parametrize("family", CHAT_FAMILIES)


def stored(model: ChatModel, texts: tuple[str, ...] = TEXTS) -> tuple[StoredSegment, list[StoredSegment]]:
    prefix = read_prefix(model)
    return prefix, [read_segment(model, prefix, model.tokenize(text)) for text in texts]


def whole_prompt(model: ChatModel, texts: tuple[str, ...] = TEXTS) -> list[int]:
    passages = [token for text in texts for token in model.tokenize(text)]
    return [*model.prefix_ids, *passages, *model.suffix_ids(QUESTION)]


def own_forward(family: str, ids: list[int]) -> Tensor:
    """logits_TV of Hugging Face's own forward pass, on weights of its own."""
    with torch.no_grad():
        logits: Tensor = tiny_backbone(CHAT_FAMILIES[family])(torch.tensor([ids])).logits[0]
    return logits


@every_family
def test_one_stored_segment_gives_the_logits_of_hugging_face(family: str) -> None:
    model = tiny_chat_model(family)
    prefix, segments = stored(model, TEXTS[:1])
    suffix = model.suffix_ids(QUESTION)
    text = AssembledPrompt(model, prefix, segments, room=len(suffix))
    logits = model.logits(read_question(text, suffix, 0.0).hidden_QE)
    expected = own_forward(family, whole_prompt(model, TEXTS[:1]))[-len(suffix) :]
    assert float(expected.std()) > 0.1  # a network that says nothing would agree with anything
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


@every_family
def test_repairing_everything_is_reading_the_prompt_again_token_by_token(family: str) -> None:
    model = tiny_chat_model(family)
    prefix, segments = stored(model)
    suffix = model.suffix_ids(QUESTION)
    text = AssembledPrompt(model, prefix, segments, room=len(suffix) + 12)
    ids = whole_prompt(model)
    logits_V = model.logits(read_question(text, suffix, 1.0).hidden_QE)[-1]
    for _ in range(12):
        torch.testing.assert_close(logits_V, own_forward(family, ids)[-1], atol=1e-4, rtol=1e-4)
        ids.append(int(logits_V.argmax()))
        logits_V = model.logits(text.feed(ids[-1:]).hidden_QE)[-1]


@every_family
def test_everything_can_be_read_again_without_anything_stored(family: str) -> None:
    model = tiny_chat_model(family)
    suffix = model.suffix_ids(QUESTION)
    text = AssembledPrompt(model, read_prefix(model), [model.tokenize(text) for text in TEXTS], room=len(suffix))
    logits = model.logits(read_question(text, suffix, 1.0).hidden_QE)
    torch.testing.assert_close(logits, own_forward(family, whole_prompt(model))[-len(suffix) :], atol=1e-4, rtol=1e-4)


@every_family
def test_stored_keys_rotated_to_a_place_are_those_hugging_face_computes_there(family: str) -> None:
    """Keys of the first layer depend on the token and its place alone."""
    model = tiny_chat_model(family)
    prefix, segments = stored(model)
    text = AssembledPrompt(model, prefix, segments, room=0)
    cache = DynamicCache()
    ids = torch.tensor([text.ids])
    with torch.no_grad():
        tiny_backbone(CHAT_FAMILIES[family])(ids, past_key_values=cache, use_cache=True)
    theirs_GTD = cache.layers[0].keys[0]
    for place in text.segments:
        ours_GTD = text._rows.keys_YBGKD[0, 0, :, place]
        torch.testing.assert_close(ours_GTD, theirs_GTD[:, place], atol=1e-5, rtol=1e-5)


@every_family
def test_a_share_of_repair_lies_between_reuse_and_reading_again(family: str) -> None:
    model = tiny_chat_model(family)
    prefix, segments = stored(model)
    suffix = model.suffix_ids(QUESTION)
    logits = {}
    for share in (0.0, 0.9, 1.0):
        text = AssembledPrompt(model, prefix, segments, room=len(suffix))
        logits[share] = model.logits(read_question(text, suffix, share).hidden_QE)[-1]
    away = {share: float((logits[share] - logits[1.0]).norm()) for share in logits}
    assert away[0.0] > away[0.9]


def test_the_attention_of_a_token_is_shared_out_completely() -> None:
    model = tiny_chat_model()
    prefix, segments = stored(model)
    suffix = model.suffix_ids(QUESTION)
    text = AssembledPrompt(model, prefix, segments, room=len(suffix))
    output = read_question(text, suffix, 0.2)
    torch.testing.assert_close(output.mass_QK.sum(-1), torch.ones(len(suffix)))
    by_segment = text.mass_by_segment(output.mass_QK[-1])
    expected = [float(output.mass_QK[-1, place].sum()) for place in text.segments]
    assert by_segment == pytest.approx(expected, abs=1e-5)
    assert 0 < sum(by_segment) < 1


def test_repair_takes_first_tokens_and_those_the_question_looks_at() -> None:
    mass_K = torch.zeros(60)
    mass_K[[25, 33, 55]] = torch.tensor([3.0, 1.0, 2.0])
    rows = chosen_rows(mass_K, [slice(10, 30), slice(30, 60)], 6)
    assert rows.tolist()[:2] == [10, 25]  # one first token each: half of the share, over two segments
    assert {25, 33, 55, 10, 30} <= set(rows.tolist())
    assert len(rows) == 6
    everything = chosen_rows(mass_K, [slice(10, 30), slice(30, 60)], 50)
    assert everything.tolist() == list(range(10, 60))


@pytest.mark.parametrize("family", ["llama", "mistral-window", "gemma3"])
def test_tokens_are_computed_again_in_groups_as_all_at_once(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_chat_model(family)
    prefix, segments = stored(model)
    kept = []
    for at_once in (1000, 3):
        monkeypatch.setattr(plain_attention, "QUERIES_AT_ONCE", at_once)
        text = AssembledPrompt(model, prefix, segments, room=1)
        text.recompute(torch.arange(text.segments[0].start, text.segments[-1].stop, 2))
        kept.append(text.feed(model.tokenize("?")).hidden_QE)
    torch.testing.assert_close(*kept, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "package", "moved"), [("int8", "torchao", 0.1), ("nf4", "bitsandbytes", 0.6)], ids=["int8", "nf4"]
)
@pytest.mark.parametrize("family", ["llama-tied", "qwen2", "smollm3", "phi3", "gemma3"])
def test_a_writer_in_few_bits_says_nearly_the_same_from_another_memory(
    family: str, kind: FewBits, package: str, moved: float
) -> None:
    pytest.importorskip(package)
    model, rounded = tiny_chat_model(family), tiny_chat_model(family).in_few_bits(kind)
    suffix = model.suffix_ids(QUESTION)
    logits = []
    for each in (model, rounded):
        prefix, segments = stored(each)
        text = AssembledPrompt(each, prefix, segments, room=len(suffix))
        logits.append(each.logits(read_question(text, suffix, 0.2).hidden_QE)[-1])
    assert 0 < float((logits[0] - logits[1]).norm() / logits[0].norm()) < moved
    assert rounded.num_weights == model.num_weights
    assert model.identity()["weights"] != rounded.identity()["weights"]
