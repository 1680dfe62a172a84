"""Does the quoted sentence hold the answer? The default way of answering against a BM25 search over the same sentences.

Stores the contexts of a question set, asks for the sentence that Cairn would quote (out of the best blocks of
`search`), and counts it as right if a gold answer stands in it. BM25 ranks all sentences of all contexts. Run:

    python benchmarks/quality/sentence_quality.py FOLDER/squad11.dev.jsonl.xz --contexts 300 --questions 400
"""

import argparse
import json
import lzma
import random
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import bm25s
import machine
import torch

from model.checkpoint.load import load_backbone
from model.scoring.sentences import sentence_borders
from retrieval.library import Library
from retrieval.types.passages import Answer

DEFAULT_MODEL = ROOT / "model" / "default"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("questions_file", type=Path)
    arguments.add_argument("--model", type=Path, default=DEFAULT_MODEL)
    arguments.add_argument("--contexts", type=int, default=300)
    arguments.add_argument("--questions", type=int, default=400)
    arguments.add_argument("-k", type=int, default=8)
    given = arguments.parse_args()

    with lzma.open(given.questions_file, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    contexts = list(dict.fromkeys(row["context"] for row in rows))[: given.contexts]
    kept = set(contexts)
    asked = [row for row in rows if row["answers"] and row["context"] in kept]
    asked = random.Random(0).sample(asked, min(given.questions, len(asked)))
    print(machine.described(torch.get_num_threads()))
    print(f"{len(contexts)} contexts, {len(asked)} questions of {given.questions_file.name}")

    sentences = [context[start:stop] for context in contexts for start, stop in sentence_borders(context)]
    bm25 = bm25s.BM25()
    bm25.index(bm25s.tokenize(sentences, stopwords="en", show_progress=False), show_progress=False)
    tokens = bm25s.tokenize([row["question"] for row in asked], stopwords="en", show_progress=False)
    found, _ = bm25.retrieve(tokens, k=1, show_progress=False)
    baseline = [sentences[number] for number in found[:, 0].tolist()]

    with tempfile.TemporaryDirectory() as folder:
        library = Library.open(Path(folder) / "home", load_backbone(given.model))
        text = Path(folder) / "contexts.txt"
        text.write_text("\n\n".join(contexts), encoding="utf-8")
        assert library.run_job(library.submit(text).id).state == "done"
        quoted = []
        for row in asked:
            *_, answer = library.ask(row["question"], k=given.k, quote=True)
            assert isinstance(answer, Answer)
            quoted.append(answer.text)
        library.close()

    for name, answers in (("Cairn, quoted sentence", quoted), ("BM25, best sentence", baseline)):
        right = sum(
            any(gold.lower() in answer.lower() for gold in row["answers"])
            for row, answer in zip(asked, answers, strict=True)
        )
        words = sum(len(answer.split()) for answer in answers) / len(answers)
        print(f"{name:24s} holds the answer: {right / len(asked):.3f}   {words:.0f} words on average")


if __name__ == "__main__":
    main()
