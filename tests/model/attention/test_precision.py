"""In half precision the scores are float32 before the softmax, as in fused attention."""

import pytest
import torch
from torch import Tensor, nn

from model.attention.blockwise import blockwise_attention
from model.attention.context import LandmarkContext
from model.attention.landmark_attention import _local_logits
from model.attention.rotary import exact_scores
from tests.tiny_model import tiny_model


def made(length: int, dtype: torch.dtype, spread: float = 3.0) -> list[Tensor]:
    """What is read is the same in every dtype: the numbers are bfloat16 ones."""
    random = torch.Generator().manual_seed(0)
    tensors = (torch.randn(1, 4, length, 48, generator=random) * size for size in (spread, spread, 1.0))
    return [tensor.bfloat16().to(dtype).requires_grad_() for tensor in tensors]


def causal(*qkv: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(*qkv, is_causal=True, scale=48**-0.5)


def ours(*qkv: Tensor) -> Tensor:
    return blockwise_attention(*qkv, block_size=32, scaling=48**-0.5)


def errors(attention, length: int, dtype: torch.dtype) -> list[float]:  # type: ignore[no-untyped-def]
    """Relative error of the output and of the three gradients against float64's rounding, that is float32."""
    results = []
    for kind in (dtype, torch.float32):
        tensors = made(length, kind)
        out = attention(*tensors)
        upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).bfloat16().to(kind)
        results.append([out, *torch.autograd.grad(out, tensors, upstream)])
    return [float(((a.float() - b).norm() / b.norm()).detach()) for a, b in zip(*results, strict=True)]


@pytest.mark.parametrize(("length", "more"), [(31, 1.05), (200, 1.15)])
def test_bf16_errs_no_more_than_pytorchs_attention(length: int, more: float) -> None:
    """Up to 31 tokens both compute the same function. Beyond, gradients of queries and keys are sums of two roundings
    (own block, earlier blocks) where causal attention has one."""
    found, allowed = errors(ours, length, torch.bfloat16), errors(causal, length, torch.bfloat16)
    assert found[0] <= 1.05 * allowed[0]
    assert all(a <= more * b for a, b in zip(found[1:], allowed[1:], strict=True))


def test_products_of_half_precision_numbers_are_not_rounded() -> None:
    a, b = (torch.randn(2, 3, 20, 48, generator=torch.Generator().manual_seed(n)) for n in (1, 2))
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x, y = a.to(dtype), b.to(dtype)
        exact = x.double() @ y.double().mT
        assert exact_scores(x, y).dtype == torch.float32
        torch.testing.assert_close(exact_scores(x, y).double(), exact, atol=1e-4, rtol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(exact_scores(x, y).double(), exact, atol=1e-4, rtol=1e-5)


def test_scores_of_single_queries_are_not_rounded_either() -> None:
    model = tiny_model()
    query, key, _ = made(20, torch.bfloat16)
    context = LandmarkContext(32, model.backbone.model.rotary_emb.rotary)
    logits = _local_logits(context, query[:, :, -1:], key, 0.25)
    exact = (query[:, :, -1:].double() @ key.double().mT) * 0.25
    torch.testing.assert_close(logits.double(), exact, atol=1e-4, rtol=1e-5)
