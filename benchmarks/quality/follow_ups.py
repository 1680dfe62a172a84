"""Questions that follow another one in a conversation, about the documents of the seventh set.

    python benchmarks/quality/follow_ups.py FOLDER --home DIR

Each is asked behind the first question of its conversation (`benchmarks/questions/follow_ups`: "And when?"). The same
question is also asked in full, as the set has it, behind that first question, and behind one about another document.
FOLDER: the files of the set; conversations about others are left out. Prints the share that is answered.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean

from held_out import held_by, store

from app.assembly import open_library
from app.settings import load_settings
from benchmarks.questions.fresh import documents as fresh
from retrieval.types.writer import Turn

QUESTIONS = Path(__file__).parents[1] / "questions" / "follow_ups" / "conversations.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--home", type=Path, required=True, help="of the library, which is kept")
    given = parser.parse_args()
    row_of = {row["id"]: row for row in fresh.read_questions("seventh")}
    files = fresh.documents(given.folder, "seventh")
    read = [each for each in map(json.loads, QUESTIONS.open(encoding="utf-8")) if each["document"] in files]
    right: dict[str, list[tuple[bool, float]]] = {"follow-up": [], "in full": [], "other subject": []}
    with open_library(load_settings(home=given.home)) as library:
        for digest in {each["document"] for each in read}:
            store(library, files[digest])
        library.warm_up()
        for number, each in enumerate(read):
            row, first = row_of[each["follow_id"]], row_of[each["first_id"]]["question"]
            apart = [one for one in read if one["document"] != each["document"]]
            other = row_of[apart[7 * number % len(apart)]["first_id"]]["question"]
            pairs = ((first, each["follow_up"]), (first, row["question"]), (other, row["question"]))
            for found, (before, question) in zip(right.values(), pairs, strict=True):
                answer = list(library.ask(question, earlier=[Turn(before, "")]))[-1]
                share = held_by(row)([answer.text if answer.found else ""])
                found.append((row["language"] == "en", share))
    for name, found in right.items():
        english, others = ([share for is_english, share in found if is_english is kind] for kind in (True, False))
        print(f"{name:14} {fmean(english + others):.3f} of {len(found)}; English {fmean(english):.3f}", end="; ")
        print(f"others {fmean(others):.3f} of {len(others)}")


if __name__ == "__main__":
    main()
