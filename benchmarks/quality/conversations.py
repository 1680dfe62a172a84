"""Does a conversation keep its subject? Three turns each, the second and third of which lean on what was asked before.

    python benchmarks/quality/conversations.py --home DIR

The conversations (benchmarks/questions/conversations.jsonl) are about the development documents of `held_out.py`, whose
library is used. Right is an answer that holds what it should.
"""

import argparse
import json
import sys
from pathlib import Path
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / "benchmarks" / each) for each in ("", "quality", "questions/held_out"))]

import machine
from held_out import held_by

from app.assembly import open_library
from app.settings import load_settings

QUESTIONS = ROOT / "benchmarks" / "questions" / "conversations.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True, help="of the library that held_out.py made")
    given = parser.parse_args()
    print(json.dumps(machine.described()))
    rows = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    right, run = [0, 0, 0], uuid4().hex
    with open_library(load_settings(home=given.home / "library")) as library:
        for number, row in enumerate(rows):
            for turn, asked in enumerate(row["turns"]):
                *_, answer = library.ask(asked["question"], conversation_id=f"{run}-{number}")
                good = answer.found and held_by(asked)([answer.text]) == 1
                right[turn] += good
                print("right" if good else "wrong", answer.settings["asked"], "->", answer.text[:100], sep=" | ")
    print(f"right of {len(rows)}: " + ", ".join(f"turn {turn + 1}: {count}" for turn, count in enumerate(right)))


if __name__ == "__main__":
    main()
