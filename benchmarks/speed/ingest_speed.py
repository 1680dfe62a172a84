"""Tokens per second of ingestion against a bare forward pass of the same weights over the same tokens.

    python benchmarks/speed/ingest_speed.py --tokens 20000

Bare: Hugging Face's base model with its fastest attention, window by window of the same length, keeping nothing. Ours:
everything from tokens to a committed document (casting, checksums, fsync, SQL), and, as a second number, the whole job
with reading the file. Beside it, tokens into blocks alone, by one window a pass and by as
many as the product takes. Runs alternate; medians are compared. Prints one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import subject
import torch

from model.inference import prefill
from retrieval.library import Library


def blocks_per_pass(model: Any, ids: list[int], at_once: int) -> float:
    """Tokens a second into blocks, so many windows a pass."""
    began = time.perf_counter()
    with mock.patch.object(prefill, "windows_at_once", lambda _model: at_once):
        for _block in prefill.prefill(model, ids):
            pass
    return len(ids) / (time.perf_counter() - began)


def main() -> None:
    parser = subject.options(__doc__)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = subject.parse(parser)
    model = subject.load(arguments.model)
    twin = subject.plain_twin(model).model
    window = model.config.window_blocks * model.config.tokens_per_block
    bare, reading, whole, alone, together = [], [], [], [], []
    with tempfile.TemporaryDirectory() as folder, Library.open(Path(folder) / "home", model) as library:
        for run in range(arguments.runs + 1):  # the first warms up
            path = Path(folder) / "document.txt"
            path.write_text(text := subject.text_of(model, arguments.tokens, seed=run))
            ids = model.tokenize(text).ids
            began = time.perf_counter()
            with torch.inference_mode():
                for start in range(0, len(ids), window):
                    twin(input_ids=torch.tensor([ids[start : start + window]]), use_cache=False)
            bare.append(len(ids) / (time.perf_counter() - began))
            alone.append(blocks_per_pass(model, ids, 1))
            together.append(blocks_per_pass(model, ids, prefill.windows_at_once(model)))
            job = library.documents.submit(path)
            began = time.perf_counter()
            job = library.jobs.run(job.id)
            assert job.state == "done", job.error
            reading.append(job.tokens_per_second)
            whole.append(job.tokens / (time.perf_counter() - began))
    bare_median, reading_median, whole_median, alone_median, together_median = (
        statistics.median(speeds[1:]) for speeds in (bare, reading, whole, alone, together)
    )
    result = {
        **machine.described(arguments.threads),
        "model": model.source,
        "tokens": job.tokens,
        "bare_tokens_per_second": bare_median,
        "ingest_tokens_per_second": reading_median,
        "job_tokens_per_second": whole_median,
        "one_window_a_pass_tokens_per_second": alone_median,
        "windows_a_pass": prefill.windows_at_once(model),
        "windows_a_pass_tokens_per_second": together_median,
        "ratio_of_windows_a_pass": together_median / alone_median,
        "ratio": reading_median / bare_median,
        "ratio_with_reading_the_file": whole_median / bare_median,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
