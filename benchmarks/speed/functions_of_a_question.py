"""How much code does one warm question pass? Functions and files of the product, counted by sys.setprofile.

    python benchmarks/speed/functions_of_a_question.py [--show]

A made text is stored, one question warms everything up, and the next one is counted: distinct functions (lambdas and
comprehensions aside), files, and calls. `--show` lists the functions with their calls, by file.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import made_facts

from app.assembly import open_library
from app.settings import load_settings

PACKAGES = ("app", "model", "retrieval", "storage")


def calls_of(work: Callable[[], Any]) -> Counter[CodeType]:
    """Calls of every function of the product, in this thread."""
    calls: Counter[CodeType] = Counter()
    inside = tuple(str(ROOT / package) + "/" for package in PACKAGES)

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(inside):
            calls[frame.f_code] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    made = made_facts.made_library(random.Random(0), 6)
    with tempfile.TemporaryDirectory() as folder, open_library(load_settings(home=Path(folder) / "home")) as library:
        file = Path(folder) / "facts.txt"
        file.write_text("\n\n".join(f"{each.title}\n{each.text}" for each in made.passages), encoding="utf-8")
        library.jobs.run(library.documents.submit(file).id)
        library.warm_up()
        list(library.ask(made.questions[0].text))
        calls = calls_of(lambda: list(library.ask(made.questions[1].text)))
    named = {code: count for code, count in calls.items() if not code.co_name.startswith("<")}
    files: dict[str, list[str]] = {}
    for code, count in named.items():
        name = str(Path(code.co_filename).relative_to(ROOT))
        files.setdefault(name, []).append(f"{code.co_qualname} {count}")
    for name in sorted(files) if arguments.show else ():
        print(name, *sorted(files[name]), sep="\n    ")
    found = {"functions": len(named), "files": len(files), "calls": sum(named.values())}
    print(json.dumps(machine.described() | found))


if __name__ == "__main__":
    main()
