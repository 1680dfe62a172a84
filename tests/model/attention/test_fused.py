"""One suite for the kernels and their twins: on a GPU compiled (`-m gpu`), elsewhere by Triton's interpreter.

The interpreter is slow, so shapes are tiny, and its products of bfloat16 are wrong, so they are tested on a GPU only.
"""

import os

import pytest
import torch
from torch import Tensor

from model.attention.blockwise import blockwise_attention
from model.attention.fused import fused_attention, fused_fits, merge, read_chosen_blocks, triton_is_there
from model.attention.memory import InMemoryReader
from model.attention.selection import SelectionPolicy
from model.errors import ModelError
from model.inference.prefill import prefill
from model.inference.session import LandmarkSession
from tests.model.attention.fused_twin import chosen_blocks_twin, grouped_attention_twin
from tests.tiny_model import tiny_model

needs_triton = pytest.mark.skipif(not triton_is_there(), reason="Triton is not installed: pip install 'cairn[kernels]'")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled where a GPU is")),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
ALLOWED = {torch.float32: (1e-5, 1e-4), torch.float16: (2e-3, 4e-3), torch.bfloat16: (2e-2, 4e-2)}
"""Of the output and of gradients, relative to their size."""


def made(batch: int, groups: int, heads: int, length: int, dim: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    random = torch.Generator().manual_seed(length)
    shapes = [(batch, heads, length, dim), (batch, groups, length, dim), (batch, groups, length, dim)]
    return [torch.randn(shape, generator=random).to(device, dtype).requires_grad_() for shape in shapes]


def assert_same(tensors: list[Tensor], found: Tensor, wanted: Tensor, seen: Tensor | None = None) -> None:
    """Outputs and gradients. seen: rows that matter."""
    upstream = torch.randn(found.shape, generator=torch.Generator().manual_seed(1)).to(found)
    mask = torch.ones_like(upstream) if seen is None else seen.to(upstream)
    results = [[out * mask, *torch.autograd.grad(out, tensors, upstream * mask)] for out in (found, wanted)]
    allowed = ALLOWED[found.dtype]
    for number, (a, b) in enumerate(zip(*results, strict=True)):
        error = float((a.float() - b.float()).detach().norm() / b.float().detach().norm())
        assert error <= allowed[number > 0], f"tensor {number}: {error}"


def in_tiles(monkeypatch: pytest.MonkeyPatch, rows: int, columns: int) -> None:
    """Small ones, so that short texts have several."""
    monkeypatch.setattr("model.attention.fused.ROWS", rows)
    monkeypatch.setattr("model.attention.fused.COLUMNS", columns)


@needs_triton
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("groups", "heads", "length", "dim", "block_size"),
    [(1, 1, 50, 16, 16), (1, 2, 41, 24, 17), (2, 2, 70, 16, 32), (1, 1, 70, 8, 64), (1, 1, 20, 16, 3)],
)
def test_the_kernels_compute_what_their_twin_computes(
    device, dtype, groups, heads, length, dim, block_size, monkeypatch
) -> None:
    """Blocks of a power of two and others, an unfinished last one, query heads that share keys, two rows."""
    in_tiles(monkeypatch, 32, 32)
    tensors = made(2, groups, heads, length, dim, dtype, device)
    settings = {"block_size": block_size, "scaling": dim**-0.5}
    assert_same(tensors, fused_attention(*tensors, **settings), grouped_attention_twin(*tensors, **settings))


@needs_triton
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("block_size", [16, 32, 51, 64])
@pytest.mark.parametrize("dim", [64, 80, 128])
def test_at_the_sizes_of_real_models(dtype, block_size, dim) -> None:
    tensors = made(2, 2, 8, 1000, dim, dtype, "cuda")
    settings = {"block_size": block_size, "scaling": dim**-0.5}
    assert_same(tensors, fused_attention(*tensors, **settings), blockwise_attention(*tensors, **settings))


@needs_triton
@pytest.mark.parametrize("device", DEVICES)
def test_padding_inside_blocks_is_seen_by_nobody(device, monkeypatch) -> None:
    in_tiles(monkeypatch, 16, 32)
    size, filled = 8, [5, 7, 0, 2]
    token = torch.arange(size)
    block = torch.stack([(token < count) | ((token == size - 1) & (count > 0)) for count in filled])
    valid = torch.stack((block.flatten(), torch.ones(len(filled) * size, dtype=torch.bool))).to(device)
    tensors = made(2, 1, 2, valid.shape[1], 16, torch.float32, device)
    settings = {"block_size": size, "scaling": 0.3, "valid_BT": valid}
    found, wanted = fused_attention(*tensors, **settings), grouped_attention_twin(*tensors, **settings)
    assert_same(tensors, found, wanted, seen=valid[:, None, :, None])


@needs_triton
@pytest.mark.parametrize("device", DEVICES)
def test_chosen_blocks_are_read_apart_and_put_together(device) -> None:
    random = torch.Generator().manual_seed(0)
    rows, keys, values = (
        torch.randn(shape, generator=random).to(device) for shape in ((1, 2, 1, 3, 16), *((1, 2, 1, 2, 17, 16),) * 2)
    )
    lengths = torch.tensor([16, 9], device=device).expand(1, 2, 1, 2)
    outs, gates = read_chosen_blocks(rows, keys, values, lengths, scaling=0.25)
    for found, wanted in zip((outs, gates), chosen_blocks_twin(rows, keys, values, lengths, scaling=0.25), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    local, value = torch.randn(2, 1, 2, 1, 3, 5, generator=random).to(device), values[..., 0, :5, :]
    _, shares = merge(outs, gates, local[0].softmax(-1) @ value, local[0].logsumexp(-1))
    torch.testing.assert_close(shares.sum(-1), 1 - (local[0].logsumexp(-1) - gates_and(local[0], gates)).exp())


def gates_and(local: Tensor, gates: Tensor) -> Tensor:
    return torch.cat((local, gates), -1).logsumexp(-1)


@needs_triton
@pytest.mark.parametrize("device", DEVICES)
def test_a_model_trains_through_the_kernels(device, monkeypatch) -> None:
    """They take the place of the plain form by themselves where they fit."""
    calls = []
    if device == "cpu":
        monkeypatch.setattr("model.attention.landmark_attention.fused_is_right", lambda *_: calls.append(1) is None)
    model = tiny_model(block_size=16).train().to(device)
    ids = torch.randint(0, 250, (1, 37), generator=torch.Generator().manual_seed(3)).to(device)
    ids[:, 15::16] = model.config.landmark_token_id
    gradients = []
    for plain in (False, True):
        context = model.context()
        context.weights = [] if plain else None  # asking for weights takes the plain form
        model.zero_grad()
        model.logits(model.encode(ids, context)).logsumexp(-1).mean().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert len(calls) == (model.num_layers if device == "cpu" else 0)
    for name, gradient in gradients[1].items():
        torch.testing.assert_close(gradients[0][name], gradient, atol=1e-5, rtol=1e-3, msg=name)


@needs_triton
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("voters", ["token", "group"])
@pytest.mark.parametrize("left_out", [(), ((3,),), ((), (3,), (1, 2))])
def test_decoding_reads_chosen_blocks_by_the_kernel(device, voters, left_out, monkeypatch) -> None:
    """The same states and gates as the plain form."""
    calls = []
    monkeypatch.setattr("model.attention.landmark_attention.fused_is_right", lambda *_: calls.append(1) is None)
    model = tiny_model(block_size=16).requires_grad_(False).to(device)
    text = torch.randint(0, 250, (100,), generator=torch.Generator().manual_seed(3)).tolist()
    memory = InMemoryReader.from_blocks(model.memory_layers, list(prefill(model, text)))
    found = []
    for kernel in (True, False):
        if not kernel:
            monkeypatch.setattr("model.attention.landmark_attention._kernel_reads", lambda *_: False)
        policy = SelectionPolicy(top_k=3, voters=voters, left_out=left_out)
        session = LandmarkSession(model, memory=memory, policy=policy)
        session.feed([5, 6, 7])
        calls.clear()
        output = session.feed([8])
        assert bool(calls) == kernel
        found.append((output.hidden_BTE, [read.gate_BHQS for read in output.selections[0]]))
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-5, rtol=1e-4)
    for gate, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(gate, other, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_where_there_is_no_gpu_the_plain_form_is_taken(dtype) -> None:
    assert not fused_fits(torch.zeros(1, 2, 40, 16, dtype=dtype), 16)


class OnGpu:
    """A tensor of a GPU, as far as `fused_fits` looks."""

    is_cuda, shape = True, torch.Size((1, 2, 40, 64))

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


def test_float32_and_large_blocks_never_take_the_kernels(monkeypatch) -> None:
    monkeypatch.setattr("model.attention.fused.triton_is_there", lambda: True)
    assert fused_fits(OnGpu(torch.bfloat16), 64) and fused_fits(OnGpu(torch.float16), 51)
    assert not fused_fits(OnGpu(torch.float32), 64)
    assert not fused_fits(OnGpu(torch.bfloat16), 128)


def test_sizes_that_no_tile_holds_are_refused() -> None:
    tensors = [torch.zeros(1, 1, 300, 16)] * 3
    with pytest.raises(ModelError, match="blocks of 2 to 64"):
        fused_attention(*tensors, block_size=200, scaling=1.0)


@needs_triton
@pytest.mark.gpu
def test_memory_on_a_gpu_is_linear_in_the_length() -> None:
    def peak(length: int) -> int:
        tensors = made(1, 2, 4, length, 64, torch.bfloat16, "cuda")
        torch.cuda.reset_peak_memory_stats()
        fused_attention(*tensors, block_size=64, scaling=0.125).sum().backward()
        return torch.cuda.max_memory_allocated()

    peak(512)
    assert peak(32768) / peak(8192) < 4.2
