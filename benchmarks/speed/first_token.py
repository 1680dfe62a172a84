"""First token of `ask` over a stored document, against Hugging Face `generate` re-reading the document with the same
weights.

    python benchmarks/speed/first_token.py --tokens 32768

Both on the CPU, in one run, with the same number of threads. Ours is measured before and after theirs: cold (library
just opened, nothing resident; the model is loaded) and warm. Prints one JSON object.
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

from model.checkpoint.landmark_model import LandmarkModel
from retrieval.library import Library
from retrieval.types.passages import Answer
from retrieval.types.records import Scope

QUESTION = "What moves the people near water?"


def ask_seconds(library: Library, within: Scope | None = None) -> float:
    """As the library's user sees it: from the call to the first token."""
    began = time.perf_counter()
    steps = library.ask(QUESTION, k=8, max_tokens=2, within=within)
    first = next(steps)
    seconds = time.perf_counter() - began
    assert not isinstance(first, Answer), "the model answered with nothing; its first token cannot be timed"
    steps.close()
    return seconds


def ours(home: Path, model: LandmarkModel, runs: int) -> tuple[float, list[float]]:
    with Library.open(home, model) as library:
        library._workspace.loaded()  # the weights' digest belongs to loading the model
        return ask_seconds(library), [ask_seconds(library) for _ in range(runs)]


def theirs(model: LandmarkModel, text: str) -> float:
    twin = subject.plain_twin(model)
    ids = torch.tensor([model.tokenize(text).ids + model.prompt(QUESTION).ids])
    settings = {"max_new_tokens": 1, "do_sample": False, "pad_token_id": 0}
    with torch.inference_mode():
        twin.generate(ids[:, :64], **settings)
        began = time.perf_counter()
        twin.generate(ids, attention_mask=torch.ones_like(ids), **settings)
        return time.perf_counter() - began


def main() -> None:
    parser = subject.options(__doc__)
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--runs", type=int, default=7)
    arguments = subject.chosen(parser)
    model = subject.load(arguments.model)
    text = subject.text_of(model, arguments.tokens)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "document.txt"
        path.write_text(text)
        with Library.open(Path(folder) / "home", model) as library:
            job = library.run_job(library.submit(path).id)
            assert job.state == "done", job.error
        cold, warm = ours(Path(folder) / "home", model, arguments.runs)
        reread = theirs(model, text)
        cold_after, warm_after = ours(Path(folder) / "home", model, arguments.runs)
    warm += warm_after
    result = {
        **machine.described(arguments.threads),
        "model": model.source,
        "tokens": job.tokens,
        "ask_cold_seconds": [cold, cold_after],
        "ask_warm_seconds_median": statistics.median(warm),
        "ask_warm_seconds_worst": max(warm),
        "generate_seconds": reread,
        "ratio_warm": reread / statistics.median(warm),
        "ratio_warm_worst": reread / max(warm),
        "ratio_cold": reread / max(cold, cold_after),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
