"""Windows that see both ways (docs/decisions/0018): against the general form, through the network, and in prefill."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from model.attention import blockwise, landmark_attention
from model.attention.blockwise import blockwise_attention
from model.attention.grouped_softmax import MASKED, fold_far_blocks, windows_view
from model.attention.memory import InMemoryReader, KVBlock
from model.attention.selection import SelectionPolicy
from model.checkpoint.backbones import DynamicCache
from model.checkpoint.config import LandmarkConfig
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from model.errors import ModelError
from model.inference.prefill import prefill, prefill_batch
from model.inference.session import LandmarkSession
from research.train.data.packing import Rows
from research.train.engine.network import compile_layers
from research.train.losses.next_token import next_token_loss, sampled_token_loss
from tests.model.attention.general_form import grouped_softmax
from tests.tiny_model import golden_model, tiny_model

SIZE = 8
RAW = SIZE - 1


def visible_QK(
    length: int, window_blocks: int, first: int = 0, question: int | None = None, size: int = SIZE
) -> Tensor:
    """The definition: the same window, or an earlier block; from `question` on only what is not behind."""
    place = torch.arange(length)
    block = place // size
    window = (block - first).div(window_blocks, rounding_mode="floor")
    seen = (window == window[:, None]) | (block < block[:, None])
    if question is not None:
        seen &= torch.where(place[:, None] >= question, place <= place[:, None], place < question)
    return seen


def general_attention(query: Tensor, key: Tensor, value: Tensor, visible: Tensor, size: int) -> Tensor:
    """out_BHTD by `grouped_softmax`."""
    groups = key.shape[1]
    scores = (query.unflatten(1, (groups, -1)) @ key.unsqueeze(2).mT).flatten(1, 2) * query.shape[-1] ** -0.5
    weights = general_weights(scores, visible, size)
    return (weights.unflatten(1, (groups, -1)) @ value.unsqueeze(2)).flatten(1, 2)


def general_weights(scores_BHTT: Tensor, visible_BTT: Tensor, size: int) -> Tensor:
    rows, length = len(scores_BHTT), scores_BHTT.shape[-1]
    place = torch.arange(length)
    own_BT, landmark_BT = ((x.expand(rows, -1)) for x in (place // size, place % size == size - 1))
    return grouped_softmax(scores_BHTT, visible_BTT, landmark_BT, own_BT)


@given(st.integers(2, 5), st.integers(1, 18), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2**31))
def test_the_fast_form_is_the_general_one(size: int, length: int, window: int, first: int, seed: int) -> None:
    scores = torch.randn(1, 2, length, length, generator=torch.Generator().manual_seed(seed)) * 3
    visible = visible_QK(length, window, first, size=size)
    general = general_weights(scores, visible[None], size)
    folded = fold_far_blocks(scores, size, view=windows_view(-(-length // size), window, first)).softmax(-1)
    torch.testing.assert_close(folded, general, atol=1e-5, rtol=1e-4)
    landmark = torch.arange(length) % size == size - 1
    assert not general[..., landmark].any(), "a landmark's own value is never read"
    torch.testing.assert_close(general.sum(-1), torch.ones(1, 2, length), atol=1e-5, rtol=0)


@pytest.mark.parametrize("way", ["by block", "by tile", "for the compiler"])
@pytest.mark.parametrize(("window", "first"), [(1, 0), (2, 1), (4, 0), (9, 2)])
@pytest.mark.parametrize("length", [SIZE, 3 * SIZE, 5 * SIZE + 3])
@pytest.mark.parametrize("padded", [False, True])
def test_all_forms_give_the_values_and_gradients_of_the_general_one(
    way: str, window: int, first: int, length: int, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockwise, "BY_BLOCK", ("cpu",) if way != "by tile" else ())
    if way == "for the compiler":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    random = torch.Generator().manual_seed(0)
    tensors = [torch.randn(2, heads, length, 6, generator=random, requires_grad=True) for heads in (4, 2, 2)]
    visible, valid = visible_QK(length, window, first).expand(2, -1, -1), None
    if padded:  # a short last block with its landmark, and a row whose last block is empty
        valid = torch.ones(2, length, dtype=torch.bool)
        last = (length - 1) // SIZE * SIZE
        valid[0, last + 1 : last + RAW] = False
        if last:
            valid[1, last:] = False
        visible = visible & valid[:, None]
    view = windows_view(-(-length // SIZE), window, first)
    wanted = general_attention(*tensors, visible, SIZE)
    found = blockwise_attention(*tensors, block_size=SIZE, scaling=6**-0.5, valid_BT=valid, view=view)
    rows = torch.ones(2, length, dtype=torch.bool) if valid is None else valid
    upstream = torch.randn(wanted.shape, generator=random) * rows[:, None, :, None]
    torch.testing.assert_close(found * upstream, wanted * upstream, atol=1e-5, rtol=1e-4)
    for one, other in zip(
        torch.autograd.grad(found, tensors, upstream), torch.autograd.grad(wanted, tensors, upstream), strict=True
    ):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def with_visible(monkeypatch: pytest.MonkeyPatch, visible: Tensor) -> None:
    """Every layer without a memory takes the general form, with this mask."""

    def logits(context, query, key, scaling, miss=None):  # type: ignore[no-untyped-def]
        scores = (query.unflatten(1, (key.shape[1], -1)) @ key.unsqueeze(2).mT).flatten(1, 2) * scaling
        return general_weights(scores, visible[None], SIZE).log().clamp_min(MASKED)

    monkeypatch.setattr(landmark_attention, "_blockwise_fits", lambda *_: False)
    monkeypatch.setattr(landmark_attention, "_local_logits", logits)


@pytest.mark.parametrize("window", [1, 2, 4])
@pytest.mark.parametrize("family", ["llama", "starcoder2"])
def test_a_question_that_reads_all_stored_blocks_equals_one_pass_over_document_and_question(
    window: int, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(
        family, memory_layers=(0, 1, 2), window_blocks=window, context_blocks=9, window_attention="both"
    ).requires_grad_(False)
    text = torch.randint(0, 256, (5 * RAW + 3,), generator=torch.Generator().manual_seed(2)).tolist()
    question = list(range(40, 52))
    memory = InMemoryReader.from_blocks(model.memory_layers, list(prefill(model, text)))
    policy = SelectionPolicy(top_k=99, positions="paper")
    session = LandmarkSession(model, memory=memory, policy=policy, window_blocks=9)
    found = session.feed(question).hidden_TE

    landmark = model.config.landmark_token_id
    document = [*model.with_landmarks(text), *[0] * (RAW - 3), landmark]
    ids = torch.tensor([document + model.with_landmarks(question)])
    visible = visible_QK(ids.shape[1], window, question=len(document))
    visible[:, len(document) - (RAW - 3) - 1 : len(document) - 1] = False
    with_visible(monkeypatch, visible)
    whole = model.encode(ids, model.context())[0, len(document) :]
    torch.testing.assert_close(found, whole, atol=2e-5, rtol=1e-4)


def keys_of(model: LandmarkModel, text: list[int], **resumed: object) -> list[Tensor]:
    return [block.keys_YGLD[:, :, : block.num_tokens] for block in prefill(model, text, **resumed)]  # type: ignore[arg-type]


def test_a_token_sees_what_stands_behind_it_in_its_window_and_never_a_later_window() -> None:
    text = torch.randint(0, 256, (6 * RAW,), generator=torch.Generator().manual_seed(3)).tolist()
    changed = [*text[: 3 * RAW], 7 if text[3 * RAW] != 7 else 8, *text[3 * RAW + 1 :]]

    def differs(window: int, attention: str) -> list[bool]:
        model = tiny_model(window_blocks=window, context_blocks=2, window_attention=attention)
        return [not a.equal(b) for a, b in zip(keys_of(model, text), keys_of(model, changed), strict=True)]

    assert differs(1, "both")[:3] == [False] * 3
    assert differs(2, "both")[:3] == [False, False, True], "block 2 shares its window with the changed one"
    assert differs(4, "both")[:3] == [True] * 3
    assert differs(4, "causal")[:3] == [False] * 3


def test_within_a_block_a_token_sees_what_stands_behind_it() -> None:
    both, causal = (tiny_model(window_attention=attention) for attention in ("both", "causal"))
    (one,), (other,) = keys_of(both, [1, 2, 3]), keys_of(both, [1, 2, 4])
    assert not one[:, :, 0].equal(other[:, :, 0])
    (one,), (other,) = keys_of(causal, [1, 2, 3]), keys_of(causal, [1, 2, 4])
    assert one[:, :, 0].equal(other[:, :, 0])


def test_texts_side_by_side_and_resumed_runs_give_the_same_blocks() -> None:
    model = tiny_model(window_blocks=2, context_blocks=3, window_attention="both")
    texts = [torch.randint(0, 256, (length,)).tolist() for length in (50, 3, 0, 29, 14)]
    together: dict[int, list[KVBlock]] = {number: [] for number in range(len(texts))}
    for number, block in prefill_batch(model, texts):
        together[number].append(block)
    for number, text in enumerate(texts):
        for one, block in zip(keys_of(model, text), together[number], strict=True):
            torch.testing.assert_close(one, block.keys_YGLD[:, :, : block.num_tokens], atol=1e-5, rtol=1e-5)
    whole = list(prefill(model, texts[0], kv_dtype=torch.bfloat16))
    resumed = keys_of(model, texts[0][4 * RAW :], recent=whole[:4], kv_dtype=torch.bfloat16)
    for block, other in zip(whole[4:], resumed, strict=True):
        assert block.keys_YGLD[:, :, : block.num_tokens].equal(other)


def test_rows_of_training_are_read_as_prefill_reads_them() -> None:
    model = tiny_model(memory_layers=(0, 1, 2), window_blocks=2, context_blocks=9, window_attention="both")
    text = torch.randint(0, 256, (5 * RAW,), generator=torch.Generator().manual_seed(4)).tolist()
    ids = torch.tensor([model.with_landmarks(text)])
    seen: list[Tensor] = []
    context = model.window_context()
    context.weights = seen  # also takes the form that keeps its weights
    plain = model.encode(ids, context)
    torch.testing.assert_close(model.encode(ids, model.window_context()), plain, atol=1e-5, rtol=1e-5)
    assert len(seen) == model.num_layers and not seen[0][..., : 2 * SIZE, 2 * SIZE :].any()
    cache = DynamicCache()
    model.encode(ids, model.window_context(), cache)
    stored = torch.cat(keys_of(model, text), 2)[-1]
    trained = cache.layers[2].keys[0].unflatten(1, (-1, SIZE))[:, :, :RAW].flatten(1, 2)
    torch.testing.assert_close(stored, trained, atol=1e-5, rtol=1e-5)


def test_questions_stay_causal() -> None:
    both, causal = (tiny_model(window_attention=attention).requires_grad_(False) for attention in ("both", "causal"))
    ids = torch.tensor([both.with_landmarks(range(20))])
    assert both.encode(ids, both.context()).equal(causal.encode(ids, causal.context()))
    for one, other in zip(both.search_queries(ids).values(), causal.search_queries(ids).values(), strict=True):
        assert one.equal(other)


def test_causal_is_the_default_and_means_what_it_meant() -> None:
    model = golden_model()
    assert model.config.window_attention == "causal" and model.context().both_ways == 0
    assert model.window_context().view(0, 64) is None
    assert LandmarkConfig.from_dict({"block_size": 8, "landmark_token_id": 1}).window_attention == "causal"
    assert tiny_model(window_blocks=4, context_blocks=2).identity()["prefill"] == "4+2"


def test_memory_of_one_way_is_not_that_of_the_other(tmp_path: Path) -> None:
    both, causal = (tiny_model(window_attention=attention) for attention in ("both", "causal"))
    differing = {name for name, value in both.identity().items() if causal.identity()[name] != value}
    assert differing == {"prefill"}
    both.save(tmp_path)
    assert load_backbone(tmp_path, device="cpu").config == both.config


@pytest.mark.parametrize(
    "loss",
    [
        lambda model, ids: next_token_loss(model, Rows(ids, ids)),
        lambda model, ids: sampled_token_loss(model, ids, ids >= 0, torch.zeros(1, 16, 64), 4),
        lambda model, ids: model(ids),
    ],
)
def test_no_token_is_predicted_in_text_that_was_read_both_ways(loss: Callable[[LandmarkModel, Tensor], object]) -> None:
    ids = torch.tensor([tiny_model().with_landmarks(range(14))])
    loss(tiny_model(), ids)
    with pytest.raises(ModelError, match='needs window_attention="causal"'):
        loss(tiny_model(window_attention="both"), ids)


@pytest.mark.parametrize(
    "settings",
    [
        {"window_attention": "backwards"},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ModelError, match="window_attention"):
        LandmarkConfig(block_size=8, landmark_token_id=1, **settings)  # type: ignore[arg-type]


@pytest.mark.slow
def test_compiled_layers_give_the_same_gradients() -> None:
    ids = torch.randint(0, 250, (2, 44), generator=torch.Generator().manual_seed(3))
    ids[:, 7::8] = tiny_model().config.landmark_token_id
    gradients = []
    for compiled in (False, True):
        model = tiny_model(window_blocks=2, window_attention="both").train()
        if compiled:
            compile_layers(model)
        model.encode(ids, model.window_context()).logsumexp(-1).mean().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)
