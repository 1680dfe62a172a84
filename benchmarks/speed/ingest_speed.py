"""Tokens per second of ingestion against a bare forward pass of the same weights over the same tokens.

    python benchmarks/speed/ingest_speed.py --tokens 20000

Bare: Hugging Face's base model with its fastest attention, window by window of the same length, keeping nothing. Ours:
everything from tokens to a committed document (search of earlier blocks, casting, checksums, fsync, SQL), and, as a
second number, the whole job with reading the file. Runs alternate; medians are compared. Prints one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import subject
import torch

from retrieval.library import Library


def main() -> None:
    parser = subject.options(__doc__)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = subject.chosen(parser)
    model = subject.load(arguments.model)
    twin = subject.plain_twin(model).model
    window = model.config.window_blocks * model.config.tokens_per_block
    bare, reading, whole = [], [], []
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
            job = library.documents.submit(path)
            began = time.perf_counter()
            job = library.jobs.run(job.id)
            assert job.state == "done", job.error
            reading.append(job.tokens_per_second)
            whole.append(job.tokens / (time.perf_counter() - began))
    bare_median, reading_median, whole_median = (statistics.median(speeds[1:]) for speeds in (bare, reading, whole))
    result = {
        **machine.described(arguments.threads),
        "model": model.source,
        "tokens": job.tokens,
        "bare_tokens_per_second": bare_median,
        "ingest_tokens_per_second": reading_median,
        "job_tokens_per_second": whole_median,
        "ratio": reading_median / bare_median,
        "ratio_with_reading_the_file": whole_median / bare_median,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
