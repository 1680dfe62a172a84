"""Grouped softmax on a GPU: kernels against plain torch and causal attention, landmark search, fetching of blocks.

    python benchmarks/speed/attention_kernels.py            # ten minutes of a GPU
    python benchmarks/speed/attention_kernels.py --check    # anywhere: tiny, kernels interpreted without a GPU

- training: forward and backward at 2,048 to 32,768 tokens, bf16, 32 query and 8 KV heads of 128: kernels, plain torch
  (`model.attention.blockwise`), causal SDPA; peak memory of each, and how it grows from 8,192 to 32,768.
- decoding: chosen blocks read by the kernel and merged, against SDPA over the same keys in a row; launched one by one
  and from a CUDA graph.
- search: exact landmark logits and their best 8 for all layers of a 1B-class model, against reading the same bytes.
- fetch: blocks gathered on the host and sent, against one pinned copy of the same size.

Sides alternate, 7 times each; medians. Before anything is timed both sides are compared. One JSON line a figure.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
if "--check" in sys.argv:
    os.environ.setdefault("TRITON_INTERPRET", "1")

import machine
import torch
from torch import Tensor, nn

from model.attention.blockwise import blockwise_attention
from model.attention.fused import fused_attention, merge, read_chosen_blocks
from model.attention.grouped_softmax import fold_slots
from model.attention.rotary import exact_scores
from model.attention.selection import choose_blocks

BLOCK = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="tiny sizes; numbers say nothing")
    parser.add_argument("--repeat", type=int, default=7)
    given = parser.parse_args()
    gpu = torch.cuda.is_available()
    if not gpu and not given.check:
        raise SystemExit("No CUDA device: --check runs everything in tiny, without measuring.")
    if gpu and given.check:
        raise SystemExit("--check is for machines without a GPU.")
    about = machine.described() | {"gpu": torch.cuda.get_device_name() if gpu else "none: interpreted"}
    print(json.dumps(about), flush=True)
    bench = Bench(
        "cuda" if gpu else "cpu", torch.bfloat16 if gpu else torch.float32, 1 if given.check else given.repeat
    )
    for length in (2048, 8192, 32768) if gpu else (70,):
        training(bench, length, *((32, 8, 128) if gpu else (2, 1, 16)))
    for rows in (1, 32) if gpu else (3,):
        decoding(bench, rows, *((8, 8, 128) if gpu else (1, 2, 16)))
    for blocks in (16_000, 160_000) if gpu else (40,):
        search(bench, blocks, *((16, 8, 64) if gpu else (2, 2, 16)))
    fetch(bench, 1024 if gpu else 4)


class Bench:
    """Times functions in turn on one device."""

    def __init__(self, device: str, dtype: torch.dtype, repeat: int) -> None:
        self.device, self.dtype, self.repeat = device, dtype, repeat
        self.random = torch.Generator(device).manual_seed(0)

    def made(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.random, device=self.device, dtype=self.dtype)

    def times(self, sides: dict[str, Callable[[], object]]) -> dict[str, float]:
        """Median milliseconds of each side."""
        for side in sides.values():
            side()
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(self.repeat):
            for name, side in sides.items():
                self.wait()
                began = time.perf_counter()
                side()
                self.wait()
                taken[name].append((time.perf_counter() - began) * 1e3)
        return {name: round(statistics.median(values), 4) for name, values in taken.items()}

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def peak(self, side: Callable[[], object]) -> int | None:
        """Bytes at the most while a side runs."""
        if self.device != "cuda":
            return None
        torch.cuda.reset_peak_memory_stats()
        side()
        return torch.cuda.max_memory_allocated()

    def compare(self, found: Tensor, wanted: Tensor) -> float:
        error = float((found.float() - wanted.float()).norm() / wanted.float().norm())
        assert error < (0.02 if self.dtype == torch.bfloat16 else 1e-4), f"the sides differ by {error}"
        return round(error, 6)


def training(bench: Bench, length: int, heads: int, groups: int, dim: int) -> None:
    """Goal: at least 0.5 of causal SDPA at 8,192 tokens; memory at 32,768 at most 4.2 times that at 8,192."""
    tensors = [bench.made(1, count, length, dim).requires_grad_() for count in (heads, groups, groups)]
    upstream = bench.made(1, heads, length, dim)
    settings = {"block_size": BLOCK if length > BLOCK * 4 else 16, "scaling": dim**-0.5}
    forms: dict[str, Callable[[], Tensor]] = {
        "kernels": lambda: fused_attention(*tensors, **settings),  # type: ignore[arg-type]
        "plain": lambda: blockwise_attention(*tensors, **settings),  # type: ignore[arg-type]
        "causal": lambda: nn.functional.scaled_dot_product_attention(*tensors, is_causal=True, enable_gqa=True),
    }
    with torch.no_grad():
        error = bench.compare(forms["kernels"](), forms["plain"]())
    sides = {name: (lambda form=form: torch.autograd.grad(form(), tensors, upstream)) for name, form in forms.items()}
    for a, b in zip(sides["kernels"](), sides["plain"](), strict=True):
        bench.compare(a, b)
    times, peaks = bench.times(sides), {name: bench.peak(side) for name, side in sides.items()}
    ratios = {f"causal/{name}": round(times["causal"] / times[name], 3) for name in ("kernels", "plain")}
    figure = {"figure": "training", "tokens": length, "error": error, "milliseconds": times, "peak_bytes": peaks}
    print(json.dumps(figure | ratios), flush=True)


def decoding(bench: Bench, rows: int, groups: int, slots: int, dim: int) -> None:
    size = BLOCK if bench.device == "cuda" else 17
    query, keys, values = bench.made(1, groups, 1, rows, dim), *(
        bench.made(1, groups, 1, slots, size, dim) for _ in range(2)
    )  # fmt: skip
    lengths = torch.full((1, groups, 1, slots), size - 1, device=bench.device)
    nothing = torch.zeros_like(query, dtype=torch.float32)  # no local window
    none = torch.full(query.shape[:-1], -1e30, device=bench.device)

    def ours() -> Tensor:
        outs, gates = read_chosen_blocks(query, keys, values, lengths, scaling=dim**-0.5)
        return merge(outs, gates, nothing, none)[0]

    def plain() -> Tensor:
        scores = exact_scores(query, keys.flatten(3, 4)).unflatten(-1, (slots, size)) * dim**-0.5
        weights = fold_slots(scores, lengths[:, :, :, None]).flatten(4).softmax(-1)
        return weights @ values.flatten(3, 4).float()

    def sdpa() -> Tensor:
        flat = (x.flatten(3, 4)[:, :, 0] for x in (keys, values))
        return nn.functional.scaled_dot_product_attention(query[:, :, 0], *flat)

    sides: dict[str, Callable[[], object]] = {"kernel": ours, "sdpa": sdpa}
    error = bench.compare(ours(), plain())
    if bench.device == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ours()
        sides["kernel, CUDA graph"] = graph.replay
    print(
        json.dumps({"figure": "decoding", "rows": rows, "error": error, "milliseconds": bench.times(sides)}), flush=True
    )


def search(bench: Bench, blocks: int, layers: int, groups: int, dim: int) -> None:
    """Goal: at least 0.6 of the device's memory bandwidth."""
    landmarks = [bench.made(1, groups, blocks, dim) for _ in range(layers)]
    queries = [bench.made(1, groups, 1, 4 * 32, dim) for _ in range(layers)]
    copies = [torch.empty_like(keys) for keys in landmarks]
    times = bench.times(
        {
            "search": lambda: [choose_blocks(q, k, 8) for q, k in zip(queries, landmarks, strict=True)],
            "product": lambda: [q @ k.unsqueeze(2).mT for q, k in zip(queries, landmarks, strict=True)],
            "copy": lambda: [to.copy_(k) for to, k in zip(copies, landmarks, strict=True)],
        }
    )
    size = sum(keys.numel() * keys.element_size() for keys in landmarks)
    # A copy moves every byte twice.
    share = round(times["copy"] / 2 / times["search"], 3)
    figure = {"figure": "search", "blocks": blocks, "bytes": size, "milliseconds": times, "of_bandwidth": share}
    print(json.dumps(figure), flush=True)


def fetch(bench: Bench, count: int) -> None:
    """Goal: at least 0.5 of a pinned copy. Blocks of 64 KiB, drawn from 64 times as many."""
    held = torch.randn(64 * count, 64 * 1024 // 4)
    wanted = torch.randperm(len(held))[:count]
    pinned = torch.empty(count, held.shape[1])
    pinned = pinned.pin_memory() if bench.device == "cuda" else pinned

    def gathered() -> Tensor:
        torch.index_select(held, 0, wanted, out=pinned)
        return pinned.to(bench.device, non_blocking=True)

    times = bench.times({"gathered": gathered, "pinned copy": lambda: pinned.to(bench.device, non_blocking=True)})
    figure = {"figure": "fetch", "bytes": pinned.numel() * 4, "milliseconds": times}
    print(json.dumps(figure | {"of_copy": round(times["pinned copy"] / times["gathered"], 3)}), flush=True)


if __name__ == "__main__":
    main()
