"""The first hour on a GPU in one command: tests, kernels, ingestion, answers and training, in one dated file.

    python benchmarks/speed/gpu_check.py [--out benchmarks/results] [--model smollm2-landmark]    # or: make gpu-check
    python benchmarks/speed/gpu_check.py --check --out FOLDER    # anywhere: every part in tiny, its numbers say nothing

- tests: `pytest -m gpu`, which compare the kernels and whole models with the CPU.
- kernels: `attention_kernels.py`, against causal SDPA, plain torch and the device's memory bandwidth.
- library: texts are ingested and asked about: tokens a second, seconds to the first token and from token to token, and
  how often the host waits for the device.
- training: one step of forward, backward and AdamW, by the kernels and without.

A part that fails is named in the file with its error, and the others run all the same; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import torch
from torch.nn.functional import cross_entropy

from model.attention import landmark_attention
from model.attention.fused import triton_is_there
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from research.train.recipes.presets import Architecture, RowSettings
from research.train.recipes.pretrain import new_model
from retrieval.library import Library
from retrieval.types.answers import Answer, AnswerToken
from tests.mission.passkey_model import QUESTION, text_with_key
from tests.tiny_model import byte_tokenizer, tiny_model

Figures = dict[str, Any]
SMALL = Architecture(
    hidden_size=1024, intermediate_size=4096, num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=8,
    max_position_embeddings=4096, tie_word_embeddings=True,
)  # fmt: skip
TINY = Architecture(
    hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=512, tie_word_embeddings=True,
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="without a GPU: tiny sizes")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--model", default="smollm2-landmark", help="landmark language model for ingestion and answers")
    given = parser.parse_args()
    if not (given.check or torch.cuda.is_available()):
        raise SystemExit("No CUDA device: --check runs every part in tiny, without measuring.")
    device = "cpu" if given.check else "cuda"
    parts: dict[str, Callable[[], Figures]] = {
        "tests": lambda: gpu_tests(only_collected=given.check),
        "kernels": lambda: kernels(tiny=given.check),
        "library": lambda: library(tiny_model() if given.check else load_backbone(given.model, device=device)),
        "training": lambda: training(device),
    }
    results = {name: run(name, part) for name, part in parts.items()}
    file = given.out / f"{date.today()}-gpu-check{'-tiny' if given.check else ''}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(report(device, results), encoding="utf-8")
    print(file)
    sys.exit(any("failed" in figures for figures in results.values()))


def run(name: str, part: Callable[[], Figures]) -> Figures:
    """The part's figures, or what it failed with: an hour on a GPU is too dear to lose the other parts."""
    print(f"{name} ...", flush=True)
    began = time.perf_counter()
    try:
        figures = part()
    except Exception as error:
        traceback.print_exc()
        figures = {"failed": f"{type(error).__name__}: {error}"}
    return figures | {"seconds": round(time.perf_counter() - began, 1)}


def report(device: str, results: dict[str, Figures]) -> str:
    name = torch.cuda.get_device_name() if device == "cuda" else "none (every part in tiny: the numbers say nothing)"
    lines = [f"# GPU check, {date.today()}", "", f"GPU: {name}. {json.dumps(machine.described())}", ""]
    lines += ["`python benchmarks/speed/gpu_check.py`", ""]
    for part, figures in results.items():
        lines += [f"## {part}", "", "| figure | value |", "|---|---|"]
        lines += [f"| {figure} | {value} |" for figure, value in figures.items()] + [""]
    return "\n".join(lines)


def gpu_tests(*, only_collected: bool) -> Figures:
    """`pytest -m gpu` in a process of its own. Raises RuntimeError where a test fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/model", *(["--co"] if only_collected else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-200:]
    if done.returncode:
        raise RuntimeError(last)
    return {"pytest -m gpu": last}


def kernels(*, tiny: bool) -> Figures:
    """Every line of `attention_kernels.py`. Raises RuntimeError where it fails."""
    if tiny and not triton_is_there():
        return {"left out": "Triton is not installed: make kernels"}
    command = [sys.executable, "benchmarks/speed/attention_kernels.py", *(["--check"] if tiny else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {f"{line.pop('figure')} {number}": json.dumps(line) for number, line in enumerate(lines) if "figure" in line}


def library(model: LandmarkModel) -> Figures:
    """Texts with a pass key are ingested by themselves and asked about: what is measured is the speed."""
    sentences, documents, tokens = (400, 8, 40) if model.device.type == "cuda" else (10, 2, 4)
    rng, gaps, first, waits = random.Random(0), list[float](), list[float](), 0
    with tempfile.TemporaryDirectory() as folder, Library.open(Path(folder) / "home", model) as opened:
        files = [Path(folder) / f"{number}.txt" for number in range(documents)]
        for file in files:
            file.write_text(text_with_key(rng, sentences)[0])
        began = time.perf_counter()
        jobs = [opened.jobs.run(opened.documents.submit(file).id) for file in files]
        seconds = time.perf_counter() - began
        assert all(job.state == "done" for job in jobs), jobs
        read = sum(document.tokens for document in opened.documents.list())
        for _ in range(4):
            with host_waits(model) as waited:
                at = [time.perf_counter()]
                *given, answer = (stamped(piece, at) for piece in opened.ask(QUESTION, k=4, max_tokens=tokens))
            assert isinstance(answer, Answer) and given, "nothing was generated"
            first.append(at[1] - at[0])
            gaps += [after - before for before, after in zip(at[1:-2], at[2:-1], strict=True)]
            waits = len(waited)
    return {
        "tokens read": read,
        "tokens a second, with extraction and storing": round(read / seconds),
        "seconds to the first token, median": round(median(first), 4),
        "seconds from token to token, median": round(median(gaps), 4) if gaps else None,
        "waits of the host, whole last answer": waits,
        "decided by": answer.decided_by,
    }


def stamped(piece: AnswerToken | Answer, at: list[float]) -> AnswerToken | Answer:
    at.append(time.perf_counter())
    return piece


class host_waits:  # noqa: N801 - read as a verb: with host_waits(model) as waited
    """Collects torch's warnings of operations that make the host wait for a GPU."""

    def __init__(self, model: LandmarkModel) -> None:
        self._gpu, self._caught = model.device.type == "cuda", warnings.catch_warnings(record=True)

    def __enter__(self) -> list[warnings.WarningMessage]:
        caught = self._caught.__enter__()
        warnings.simplefilter("always")
        if self._gpu:
            torch.cuda.set_sync_debug_mode("warn")
        assert caught is not None
        return caught

    def __exit__(self, *_: object) -> None:
        if self._gpu:
            torch.cuda.set_sync_debug_mode("default")
        self._caught.__exit__(None, None, None)


def training(device: str) -> Figures:
    """Tokens a second of one step, the third of its kind, with the kernels and without them."""
    gpu = device == "cuda"
    shape, rows, blocks = (SMALL, 16, 32) if gpu else (TINY, 2, 3)
    settings = RowSettings(raw_tokens=63 * blocks, block_size=64, rows=rows)
    found: Figures = {"weights": None}
    trusted = landmark_attention.fused_is_right
    for name in ("kernels", "plain") if gpu else ("plain",):
        landmark_attention.fused_is_right = trusted if name == "kernels" else lambda *_: False
        try:
            model = new_model(shape, byte_tokenizer(), settings, seed=0).to(device).train()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
            seconds = [step(model, optimizer, rows, blocks) for _ in range(3)][-1]
        finally:
            landmark_attention.fused_is_right = trusted
        found["weights"] = sum(weight.numel() for weight in model.parameters())
        found[f"tokens a second, {name}"] = round(rows * blocks * 64 / seconds)
    return found


def step(model: LandmarkModel, optimizer: torch.optim.Optimizer, rows: int, blocks: int) -> float:
    """Seconds of one step over random tokens in bfloat16."""
    random_ids = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 250, (rows, blocks * 64), generator=random_ids).to(model.device)
    ids[:, 63::64] = model.config.landmark_token_id
    began = time.perf_counter()
    with torch.autocast(model.device.type, torch.bfloat16):
        loss = cross_entropy(model(ids)[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
    torch.autograd.backward(loss)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    assert torch.isfinite(loss)  # waits for the device, too
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
