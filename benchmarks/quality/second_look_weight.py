"""How the second look and the stored keys share the choice of the sentence, and what the reader's chances are worth.

    python benchmarks/quality/second_look_weight.py --pdfs FOLDER [--questions FILE] [--weights 0,25,80] [--home DIR]

The questions and their marks are those of `real_documents.py`. Every question is searched and read once; the sentence
is then chosen with each weight of the late-interaction score (`MATCH_WEIGHT` of quotation). Printed:

- the share of answerable questions whose sentence holds the answer, by weight: all, and for the first and second half
  of the documents, so that a weight chosen on one half can be judged on the other
- how often the sentence chosen with the shipped weight holds the answer, by the reader's chance of it
- how well "not here" tells unanswerable questions from others (area under the ROC curve), and who would be refused at
  several thresholds of it, by the reader alone and where the search's own threshold refuses, too
"""

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
from answer_threshold import separation
from real_documents import QUESTIONS, home_folder, marks, store

from app.assembly import open_library
from app.settings import load_settings
from model.reading.second_look import Reading, ReadPassage
from retrieval.library import Library
from retrieval.query.question import Question
from retrieval.query.quotation import quoting
from retrieval.query.quotation.sentence_search import best_sentences, quoting_from
from retrieval.query.retrieve import retrieve
from retrieval.types.defaults import DEFAULT_K

SHIPPED = quoting.MATCH_WEIGHT
THRESHOLDS = (0.5, 0.6, 0.65, 0.7, 0.8, 0.9, 1.01)
BORDERS = (0.01, 0.03, 0.1, 0.2, 0.4, 0.6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pdfs", type=Path, required=True, help="folder with the PDFs that the questions name")
    parser.add_argument("--questions", type=Path, default=QUESTIONS)
    parser.add_argument("--weights", default="0,3,8,15,25,40,80", help="separated by commas")
    parser.add_argument("--every", type=int, default=1, help="ask only every so many questions")
    parser.add_argument("--model", help="folder of a checkpoint with a reader (default: the shipped one)")
    parser.add_argument("--home", type=Path, help="keep the library there; documents stored already are not read again")
    arguments = parser.parse_args()
    print(json.dumps(machine.described()))
    weights = sorted({SHIPPED, *map(float, arguments.weights.split(","))})
    questions = [json.loads(line) for line in arguments.questions.read_text(encoding="utf-8").splitlines()]
    questions = questions[:: arguments.every]
    with home_folder(arguments.home) as home:
        given = {"home": home} | ({"model": arguments.model} if arguments.model else {})
        with open_library(load_settings(**given)) as library:
            for name in sorted({question["document"] for question in questions}):
                store(library, arguments.pdfs / name)
            report([judged(library, question, weights) for question in questions], weights)


def judged(library: Library, question: dict[str, Any], weights: Sequence[float]) -> dict[str, Any]:
    """The question with `right`: by weight, whether the sentence chosen holds the answer; chance and "not here"."""
    workspace, index, passages = library._workspace, library._index, library._passages
    look = workspace.loaded().second_look
    if look is None:
        raise SystemExit("This checkpoint has no reader, so there is nothing to weigh.")
    asked = Question(text=question["question"], k=DEFAULT_K, anyway=True)
    held = marks(question)
    readings: list[Reading] = []

    def read(shown: Sequence[ReadPassage]) -> Reading:
        if not readings:
            readings.append(look.read(asked.text, shown))
        return readings[0]

    @cache
    def text_of(document_id: str) -> str:
        return passages.text(document_id)

    right: dict[float, float] = {}
    chance = not_here = 0.0
    with workspace.scheduler.question_open(), index.open_snapshot(workspace.catalogue) as snapshot:
        retrieved = retrieve(workspace, index, snapshot, asked)
        quotes = quoting_from(workspace, retrieved.candidates)
        for weight in weights:
            quoting.MATCH_WEIGHT = weight
            best = best_sentences(
                workspace, index, passages, retrieved.found, retrieved.candidates, quotes, 1, read=read
            )[0]
            spans = [quotes.place(*place) for place in best.places]
            right[weight] = held(["".join(text_of(document)[start:stop] for document, start, stop in spans)])
            if weight == SHIPPED:
                chance, not_here = best.chance or 0.0, best.not_here or 0.0
    return {**question, "right": right, "chance": chance, "not_here": not_here, "searched": not retrieved.insisted}


def report(records: Sequence[dict[str, Any]], weights: Sequence[float]) -> None:
    documents = sorted({record["document"] for record in records})
    first = set(documents[: len(documents) // 2])
    answerable = [record for record in records if record["answers"]]
    print(f"\n{len(answerable)} answerable questions; the first half are about {', '.join(sorted(first))}")
    print(f"{'weight':>8}{'all':>8}{'first half':>12}{'second half':>13}")
    for weight in weights:
        halves = ([r for r in answerable if (r["document"] in first) is half] for half in (True, False))
        shares = (share(half, weight) for half in halves)
        print(f"{weight:8.0f}{share(answerable, weight):8.3f}" + "{:12.3f}{:13.3f}".format(*shares))
    by_chance: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        by_chance[sum(record["chance"] >= border for border in BORDERS)].append(record)
    print(f"\n{'chance from':>12}{'answers':>9}{'right':>8}   (all questions, weight {SHIPPED:.0f})")
    for number, group in sorted(by_chance.items()):
        print(f"{(0, *BORDERS)[number]:12.2f}{len(group):9}{share(group, SHIPPED):8.2f}")
    if unanswerable := [record["not_here"] for record in records if not record["answers"]]:
        area = separation(unanswerable, [record["not_here"] for record in answerable])
        print(f"\nnot here: {len(unanswerable)} unanswerable questions, AUC {area:.3f}")
        print(f"{'not here from':>14}{'refused: reader alone':>24}{'with search':>14}   (answerable, unanswerable)")
        for threshold in THRESHOLDS:
            alone, both = refused(records, threshold, search=False), refused(records, threshold, search=True)
            print(f"{threshold:14.2f}{alone[0]:17.3f} {alone[1]:.2f}{both[0]:10.3f} {both[1]:.2f}")


def refused(records: Sequence[dict[str, Any]], threshold: float, *, search: bool) -> tuple[float, float]:
    """The share of answerable and of unanswerable questions that would get no answer."""

    def share_of(group: list[dict[str, Any]]) -> float:
        return statistics.fmean(r["not_here"] >= threshold or (search and not r["searched"]) for r in group)

    return share_of([r for r in records if r["answers"]]), share_of([r for r in records if not r["answers"]])


def share(records: Sequence[dict[str, Any]], weight: float) -> float:
    return statistics.fmean(record["right"][weight] for record in records) if records else 0.0


if __name__ == "__main__":
    main()
