"""Does a sentence hold each answer whole? Sentence borders against the answers of a question set.

    python benchmarks/quality/sentence_borders.py FOLDER/squad11.dev.jsonl.xz [--show]

An answer counts as cut if no single sentence of its context contains it; each answer of a context counts once.
"""

import argparse
import json
import lzma
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine

from model.scoring.sentences import sentence_borders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions_files", type=Path, nargs="+")
    parser.add_argument("--show", action="store_true", help="print the answers that are cut")
    arguments = parser.parse_args()
    print(json.dumps(machine.described()))
    for file in arguments.questions_files:
        answers: dict[str, set[str]] = defaultdict(set)
        with lzma.open(file, "rt") as lines:
            for row in map(json.loads, lines):
                answers[row["context"]] |= {answer for answer in row["answers"] if answer in row["context"]}
        began = time.process_time()
        sentences = {context: [context[a:b] for a, b in sentence_borders(context)] for context in answers}
        seconds = time.process_time() - began
        cut = [
            (context, answer)
            for context, wanted in answers.items()
            for answer in sorted(wanted)
            if not any(answer in sentence for sentence in sentences[context])
        ]
        total, count = sum(map(len, answers.values())), sum(map(len, sentences.values()))
        print(
            f"{file.name}: {len(answers)} contexts, {count:,} sentences, {1000 * seconds / len(answers):.2f} ms each, "
            f"{len(cut)} of {total:,} answers cut ({len(cut) / max(1, total):.1%})"
        )
        for context, answer in cut if arguments.show else ():
            place = context.index(answer)
            print(f"    {answer!r} in ...{context[max(0, place - 40) : place + len(answer) + 40]!r}")


if __name__ == "__main__":
    main()
