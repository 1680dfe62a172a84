"""What it costs that windows see both ways: the same weights read the same text and take the same training step, causal
and both ways, one after the other in one process; processor seconds, medians.

    python benchmarks/speed/both_ways.py [--model model/default] [--windows 12] [--runs 5]
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import subject
import torch

from model.attention.blockwise import blockwise_attention
from model.attention.grouped_softmax import windows_view
from model.checkpoint.config import WINDOW_ATTENTION
from model.inference.prefill import prefill


def main() -> None:
    parser = subject.options(__doc__)
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--runs", type=int, default=5)
    arguments = subject.chosen(parser)
    print(machine.described(arguments.threads))
    given = subject.load(arguments.model)
    config = given.config
    models = {name: given.with_config(window_attention=name) for name in WINDOW_ATTENTION}
    text = torch.randint(
        100, given.backbone.config.vocab_size, (arguments.windows, config.window_blocks * 63)
    ).flatten()
    heads, length = given.num_heads, config.window_blocks * config.block_size
    tensors = [torch.randn(8, heads, length, given.head_dim, requires_grad=True) for _ in range(3)]
    views = {"causal": None, "both": windows_view(config.window_blocks, config.window_blocks)}
    reading: dict[str, list[float]] = {name: [] for name in models}
    training: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(arguments.runs + 1):
        for name, model in models.items():
            began = time.process_time()
            for _block in prefill(model, text.tolist()):
                pass
            reading[name].append(time.process_time() - began)
            began = time.process_time()
            out = blockwise_attention(*tensors, block_size=config.block_size, scaling=0.2, view=views[name])
            torch.autograd.grad(out.sum(), tensors)
            training[name].append(time.process_time() - began)
    for what, seconds in (("prefill", reading), ("attention of a training row, forward and backward", training)):
        medians = {name: statistics.median(each[1:]) for name, each in seconds.items()}  # the first warms up
        print(f"{what}: {medians} s; both / causal {medians['both'] / medians['causal']:.3f}")
    print(f"prefill, causal: {len(text) / statistics.median(reading['causal'][1:]):.0f} tokens a processor second")


if __name__ == "__main__":
    main()
