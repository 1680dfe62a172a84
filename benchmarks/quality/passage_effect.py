"""Is it the quoted passage that makes the answer? Without it, the same choice has to come out otherwise.

    python benchmarks/quality/passage_effect.py --realdocs FOLDER --text FOLDER --home DIR [--answers 50] [--every 5]

Questions about documents that nothing was made for (`held_out.py`, whose library is used) are asked until so many
answers are right. Of each, the passage of the quoted sentence is taken away, then one that was not quoted, and the
sentence is chosen again:

- quoted: another sentence or none is given, or its probability falls to half
- unused: the same of the last passage shown that has no part in the quotation
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / "benchmarks" / each) for each in ("", "quality", "questions/held_out"))]

import machine
from documents import read_questions, write_documents
from held_out import held_by, store

from app.assembly import open_library
from app.settings import load_settings
from retrieval.types.answers import Answer, PassageEffect

Question = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--realdocs", type=Path, required=True, help="folder with the whole files")
    parser.add_argument("--text", type=Path, required=True, help="folder with records to cut from")
    parser.add_argument("--home", type=Path, required=True, help="of the library, which is kept")
    parser.add_argument("--answers", type=int, default=50, help="right answers to look at")
    parser.add_argument("--every", type=int, default=5, help="ask only every so many questions")
    given = parser.parse_args()
    print(json.dumps(machine.described()))
    of_document: dict[str, list[Question]] = defaultdict(list)
    for question in read_questions():
        if question["split"] == "development":
            of_document[question["document"]].append(question)
    files = write_documents(of_document, given.realdocs, given.text, given.home / "files")
    questions = [one for digest in sorted(of_document) for one in of_document[digest] if one["answers"]]
    with open_library(load_settings(home=given.home / "library")) as library:
        for path in files.values():
            store(library, path)
        report(measured(library, questions[:: given.every], given.answers))


def measured(library: Any, questions: list[Question], wanted: int) -> list[tuple[PassageEffect, PassageEffect | None]]:
    """What taking away the quoted passage, and one that was not quoted, does to so many right answers."""
    found: list[tuple[PassageEffect, PassageEffect | None]] = []
    for question in questions:
        *_, answer = library.ask(question["question"])
        assert isinstance(answer, Answer)
        if not answer.found or answer.quotation is None or held_by(question)([answer.text]) < 1:
            continue
        quoted = set(answer.quotation.passage.block_ids)
        apart = [number for number, one in enumerate(answer.passages) if not quoted & set(one.block_ids)]
        unused = library.answers.effect_of_passage(answer.id, apart[-1]) if apart else None
        found.append((library.answers.effect_of_passage(answer.id, 0), unused))
        if len(found) == wanted:
            break
    return found


def changes(effect: PassageEffect) -> bool:
    before, after = effect.probability_with or 0.0, effect.probability_without or 0.0
    return not effect.same or after <= before / 2


def report(pairs: list[tuple[PassageEffect, PassageEffect | None]]) -> None:
    quoted, unused = [one for one, _ in pairs], [other for _, other in pairs if other is not None]
    for name, effects in (("quoted", quoted), ("unused", unused)):
        gone = sum(not effect.found for effect in effects)
        other = sum(effect.found and not effect.same for effect in effects)
        print(
            f"{name}: {sum(map(changes, effects))} of {len(effects)} change ({gone} to no answer, {other} to another)"
        )


if __name__ == "__main__":
    main()
