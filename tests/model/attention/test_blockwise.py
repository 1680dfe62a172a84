"""The plain twin is fold_far_blocks and an ordinary softmax (tested against the paper in test_equivalence.py)."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed._tools.mem_tracker import MemTracker

from model.attention import blockwise
from model.attention.blockwise import blockwise_attention
from model.attention.grouped_softmax import fold_far_blocks
from research.train.engine.network import compile_layers
from tests.tiny_model import tiny_model


def plain(
    query_BHTD: Tensor,
    key_BGTD: Tensor,
    value_BGTD: Tensor,
    *,
    block_size: int,
    scaling: float,
    valid_BT: Tensor | None = None,
) -> Tensor:
    groups = key_BGTD.shape[1]
    scores = (query_BHTD.unflatten(1, (groups, -1)) @ key_BGTD.unsqueeze(2).mT).flatten(1, 2).float() * scaling
    weights = fold_far_blocks(scores, block_size, valid_BT).softmax(-1).to(value_BGTD.dtype)
    return (weights.unflatten(1, (groups, -1)) @ value_BGTD.unsqueeze(2)).flatten(1, 2)


def inputs(
    batch: int, groups: int, heads: int, length: int, dim: int, seed: int = 0, spread: float = 1.0
) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads, length, dim), (batch, groups, length, dim), (batch, groups, length, dim)]
    return [(torch.randn(shape, generator=random) * spread).requires_grad_() for shape in shapes]


class ForTheCompiler:
    """Takes the place of the form with its own backward pass."""

    apply = staticmethod(blockwise._compiled)


@pytest.fixture(params=["by block", "for the compiler"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both forms, whether anything is compiled or not."""
    if request.param == "for the compiler":
        monkeypatch.setattr(blockwise, "_Blockwise", ForTheCompiler)
    return str(request.param)


def values_and_gradients(attention, tensors: list[Tensor], block_size: int) -> list[Tensor]:  # type: ignore[no-untyped-def]
    out = attention(*tensors, block_size=block_size, scaling=tensors[0].shape[-1] ** -0.5)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    return [out, *torch.autograd.grad(out, tensors, upstream)]


@given(
    st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(2, 9), st.integers(1, 50), st.integers(0,
    2**31)
)  # fmt: skip
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_and_gradients_equal_the_plain_form(
    batch: int, groups: int, shared: int, block_size: int, length: int, seed: int
) -> None:
    tensors = inputs(batch, groups, groups * shared, length, 8, seed)
    found = values_and_gradients(blockwise_attention, tensors, block_size)
    wanted = values_and_gradients(plain, tensors, block_size)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@given(st.lists(st.integers(0, 7), min_size=2, max_size=5), st.integers(0, 2**31))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_padding_inside_blocks_is_seen_by_nobody(filled: list[int], seed: int) -> None:
    size, rows = 8, 2
    filled[0] = max(1, filled[0])  # the first block of a text is never empty
    token = torch.arange(size)
    block = torch.stack([(token < count) | ((token == size - 1) & (count > 0)) for count in filled])
    valid_BT = torch.stack((block.flatten(), torch.ones(len(filled) * size, dtype=torch.bool)))
    tensors = inputs(rows, 2, 4, len(filled) * size, 8, seed)
    seen = valid_BT[:, None, :, None]
    results = []
    for attention in (blockwise_attention, plain):
        out = attention(*tensors, block_size=size, scaling=0.3, valid_BT=valid_BT)
        upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)) * seen  # padding is never trained
        results.append([out * seen, *torch.autograd.grad(out, tensors, upstream)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_gradients_agree_with_finite_differences() -> None:
    tensors = [t.detach().double().requires_grad_() for t in inputs(1, 1, 2, 8, 2)]

    def in_double(*given: Tensor) -> Tensor:  # the softmax is float32, so the steps must be coarse
        return blockwise_attention(*given, block_size=3, scaling=0.5)

    assert torch.autograd.gradcheck(in_double, tensors, eps=1e-2, atol=2e-3, rtol=1e-2, nondet_tol=1e-6)


def test_large_scores_neither_overflow_nor_vanish() -> None:
    tensors = inputs(1, 2, 2, 40, 16, spread=12.0)
    found = values_and_gradients(blockwise_attention, tensors, 8)
    wanted = values_and_gradients(plain, tensors, 8)
    for a, b in zip(found, wanted, strict=True):
        assert bool(torch.isfinite(a).all())
        assert (a - b).norm() / b.norm() < 1e-3  # at scores of several hundred float32 has no more


def test_bf16_stays_near_float32() -> None:
    tensors = inputs(1, 2, 4, 100, 32)
    exact = values_and_gradients(plain, tensors, 16)
    rounded = values_and_gradients(blockwise_attention, [t.detach().bfloat16().requires_grad_() for t in tensors], 16)
    for a, b in zip(rounded, exact, strict=True):
        assert a.dtype == torch.bfloat16
        assert (a.float() - b).norm() / b.norm() < 0.02


@pytest.mark.parametrize("family", ["llama-yarn", "qwen3"])
def test_a_model_trains_through_it_with_the_gradients_of_the_plain_form(family: str) -> None:
    model = tiny_model(family).train()
    ids = torch.randint(0, 250, (2, 53), generator=torch.Generator().manual_seed(3))
    ids[:, 7::8] = model.config.landmark_token_id
    gradients = []
    for context in (model.context(), model.context()):
        context.weights = [] if gradients else None  # asking for weights takes the plain form
        model.zero_grad()
        model.logits(model.encode(ids, context)).logsumexp(-1).mean().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    for name, gradient in gradients[1].items():
        torch.testing.assert_close(gradients[0][name], gradient, atol=1e-6, rtol=1e-4, msg=name)


def peak_bytes(attention, length: int) -> int:  # type: ignore[no-untyped-def]
    meter = MemTracker()
    with meter:
        tensors = inputs(1, 2, 4, length, 16)
        attention(*tensors, block_size=64, scaling=0.25).sum().backward()
    return sum(device["Total"] for device in meter.get_tracker_snapshot("peak").values())


def test_memory_grows_with_the_length_not_its_square(way: str) -> None:
    if way == "for the compiler":
        pytest.skip("there the compiler decides what is kept")
    peak_bytes(blockwise_attention, 128)
    assert peak_bytes(blockwise_attention, 1024) / peak_bytes(blockwise_attention, 512) < 2.3
    assert peak_bytes(plain, 512) / peak_bytes(plain, 256) > 2.8  # the meter sees it where it does grow


@pytest.mark.slow
def test_memory_of_a_training_step_grows_with_the_length_not_its_square(way: str) -> None:
    if way == "for the compiler":
        pytest.skip("there the compiler decides what is kept")
    model = tiny_model(block_size=64).train()

    def peak(length: int) -> int:
        ids = torch.randint(0, 250, (1, length))
        ids[:, 63::64] = model.config.landmark_token_id
        model.zero_grad()
        meter = MemTracker()
        with meter:
            model.encode(ids, model.context()).sum().backward()
        return sum(device["Total"] for device in meter.get_tracker_snapshot("peak").values())

    peak(64)
    assert peak(1024) / peak(512) < 2.3


@pytest.mark.slow
@pytest.mark.parametrize("length", [50, 8 * blockwise.COMPILED_BLOCKS + 9])
def test_compiled_layers_give_the_same_gradients(length: int) -> None:
    ids = torch.randint(0, 250, (2, length), generator=torch.Generator().manual_seed(3))
    ids[:, 7::8] = tiny_model().config.landmark_token_id
    gradients = []
    for compiled in (False, True):
        model = tiny_model().train()
        if compiled:
            compile_layers(model)
        model.logits(model.encode(ids, model.context())).logsumexp(-1).mean().backward()
        gradients.append([p.grad for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


@pytest.mark.gpu
def test_on_a_gpu_it_computes_what_it_computes_on_the_cpu() -> None:
    wanted = values_and_gradients(blockwise_attention, inputs(2, 2, 4, 150, 32), 16)
    moved = [tensor.detach().cuda().requires_grad_() for tensor in inputs(2, 2, 4, 150, 32)]

    def attention(*given: Tensor, **settings: float) -> Tensor:
        return blockwise_attention(*given, **settings).cpu()  # type: ignore[arg-type]

    for a, b in zip(values_and_gradients(attention, moved, 16), wanted, strict=True):
        torch.testing.assert_close(a.cpu(), b, atol=1e-4, rtol=1e-4)


@pytest.mark.gpu
def test_peak_memory_on_a_gpu_grows_with_the_length_not_its_square() -> None:
    def peak(length: int) -> int:
        tensors = [tensor.detach().cuda().bfloat16().requires_grad_() for tensor in inputs(1, 2, 4, length, 64)]
        torch.cuda.reset_peak_memory_stats()
        blockwise_attention(*tensors, block_size=64, scaling=0.125).sum().backward()
        return torch.cuda.max_memory_allocated()

    peak(512)
    assert peak(8192) / peak(4096) < 2.3
