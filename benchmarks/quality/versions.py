"""Two versions of a document that say the same with other numbers: how often does the later one answer?

    python benchmarks/quality/versions.py [--model FOLDER]

Five documents in two versions each, two questions about each pair, none of which says which version it means; all ten
are in one library. What a version is worth otherwise: `held_out.py --model` with a checkpoint whose `ranker.json`
weighs `later_version` with 0.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine

from app.assembly import open_library
from app.settings import load_settings

# name, text, the two questions, and of each version its date or stage and the two numbers
DOCUMENTS = [
    ("Travel policy", "The daily meal allowance is {} euros. Hotel costs are paid up to {} euros a night.",
     ("What is the daily meal allowance?", "Up to how much are hotel costs paid?"),
     ("January 2024", 28, 120), ("March 2026", 34, 145)),
    ("Pump manual", "The pump must be serviced every {} hours. The pressure limit is {} bar.",
     ("How often must the pump be serviced?", "What is the pressure limit of the pump?"),
     ("version 1.2", 400, 63), ("version 2.0", 550, 87)),
    ("House rules", "The gate closes at {} o'clock. A lost key costs {} francs.",
     ("When does the gate close?", "What does a lost key cost?"),
     ("2023-05-01", 21, 40), ("2025-02-11", 23, 65)),
    ("Price list", "A season ticket costs {} dollars. Children pay {} dollars.",
     ("What does a season ticket cost?", "How much do children pay?"),
     ("1 June 2022", 180, 60), ("1 June 2025", 210, 75)),
    ("Data protection guideline", "Records are kept for {} months. Requests are answered within {} days.",
     ("How long are records kept?", "Within how many days are requests answered?"),
     ("draft", 18, 30), ("final", 24, 21)),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of a checkpoint (default: the shipped one)")
    model = parser.parse_args().model
    print(json.dumps(machine.described()))
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        given = {"home": Path(folder) / "library"} | ({"model": model} if model else {})
        with open_library(load_settings(**given)) as library:
            for name, text, _, *versions in DOCUMENTS:
                for which, *numbers in versions:
                    file = Path(folder) / f"{name} {which}.txt"
                    file.write_text(f"{name}, {which}\n\n{text.format(*numbers)}\n", encoding="utf-8")
                    library.jobs.run(library.documents.submit(file).id)
            for _, _, questions, earlier, later in DOCUMENTS:
                for question, old, new in zip(questions, earlier[1:], later[1:], strict=True):
                    answer = list(library.ask(question))[-1].text
                    said = [which for which, number in (("earlier", old), ("later", new)) if str(number) in answer]
                    counts[" and ".join(said) or "neither"] += 1
                    print(f"{question} {answer.splitlines()[0] if answer else ''}")
    print(dict(counts))


if __name__ == "__main__":
    main()
