"""Seconds to the first token, to the whole answer and of ingestion, measured in one checkout.

    python benchmarks/speed/answer_speed.py --data FOLDER [--questions 40]

Stores the passages of the drawn development questions, a document each, in a fresh library, asks every question once
to warm up and then `--rounds` times; then stores all passages as one document. It uses nothing but the facade, so an
older checkout can run this file too: compare two by running them in turns. Prints one JSON object.
"""

import argparse
import json
import lzma
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch

from app.assembly import open_library
from app.settings import load_settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with qa/")
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for file in sorted((arguments.data / "qa").glob("*.dev.jsonl.xz")):
        with lzma.open(file, "rt", encoding="utf-8") as lines:
            rows += [json.loads(line) for line in lines]
    drawn = random.Random(0).sample(rows, arguments.questions)
    searched, first, whole, tokens = [], [], [], 0
    with tempfile.TemporaryDirectory() as home, open_library(load_settings(home=Path(home) / "home")) as library:
        contexts = sorted({row["context"] for row in drawn})
        for number, context in enumerate(contexts):
            file = Path(home) / f"{number}.txt"
            file.write_text(context, encoding="utf-8")
            library.jobs.run(library.documents.submit(file).id)
        library.warm_up()
        for round_number in range(1 + arguments.rounds):
            for row in drawn:
                answer = list(library.ask(row["question"]))[-1]
                if round_number and answer.found:
                    searched.append(answer.timings.search_seconds)
                    first.append(answer.timings.first_token_seconds)
                    whole.append(answer.timings.seconds)
                    tokens += len(answer.tokens)
        file = Path(home) / "all.txt"
        file.write_text("\n\n".join(contexts), encoding="utf-8")
        began = time.perf_counter()
        library.jobs.run(library.documents.submit(file).id)
        ingestion = time.perf_counter() - began
    result = {
        "torch": torch.__version__,
        "threads": arguments.threads,
        "cores": os.cpu_count(),
        "answers": len(whole),
        "tokens_per_answer": tokens / len(whole),
        "ingestion_seconds": round(ingestion, 3),
    }
    for name, seconds in (("search", searched), ("first_token", first), ("whole_answer", whole)):
        result[f"{name}_seconds_median"] = round(statistics.median(seconds), 4)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
