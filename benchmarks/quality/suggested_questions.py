"""Describes the documents of a library, and prints what is suggested to be asked of each, with what answers it, for a
person to read: `python benchmarks/quality/suggested_questions.py --home FOLDER`.

Whatever descriptions there are already are made anew.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from app.assembly import open_library
from app.settings import load_settings
from retrieval.describing.description import FILE
from retrieval.types.passages import Answer
from retrieval.types.records import Scope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    home = parser.parse_args().home
    for old in home.glob(f"pages/*/{FILE}"):
        old.unlink()
    with open_library(load_settings(home=home)) as library:
        library.warm_up()
        num_described = 0
        begun = time.perf_counter()
        while library.describe_next():
            num_described += 1
        seconds = time.perf_counter() - begun
        for document in library.documents(sort="source"):
            about = library.description(document.id)
            print(f"\n{document.source}: {', '.join(about.key_terms)}\n  {about.first_lines}")
            for question in about.questions:
                *_, answer = library.ask(question, within=Scope(document_ids=(document.id,)))
                assert isinstance(answer, Answer)
                print(f"  ? {question}\n    [{answer.outcome}] {' '.join(answer.text.split())[:160]}")
                library.delete_answer(answer.id)
        print(f"\n{num_described} documents described in {seconds:.1f} s")


if __name__ == "__main__":
    main()
