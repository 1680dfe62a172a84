"""Describes the documents of a library, and prints what is suggested to be asked of each, with what answers it, for a
person to read: `python benchmarks/quality/suggested_questions.py --home FOLDER`.

Whatever descriptions there are already are made anew. Documents that are not ready (being read, failed, cancelled) are
named and left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from machine import described

from app.assembly import open_library
from app.settings import load_settings
from retrieval.describing.description import FILE
from retrieval.library import Library
from retrieval.types.passages import Answer
from retrieval.types.records import Document, Scope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    home = parser.parse_args().home
    for old in home.glob(f"pages/*/{FILE}"):
        old.unlink()
    print(described())
    with open_library(load_settings(home=home)) as library:
        library.warm_up()
        num_described = 0
        begun = time.perf_counter()
        while library.describe_next():
            num_described += 1
        seconds = time.perf_counter() - begun
        outcomes: Counter[str] = Counter()
        for document in library.documents(sort="source"):
            if document.state != "ready":
                print(f"\n{document.source}: {document.state}, left out")
            else:
                outcomes.update(ask_about(library, document))
        print(
            f"\n{num_described} documents described in {seconds:.1f} s; outcomes of their questions: {dict(outcomes)}"
        )


def ask_about(library: Library, document: Document) -> list[str]:
    """Prints the description and the answers to its questions; the outcome of each."""
    about = library.description(document.id)
    print(f"\n{document.source}: {', '.join(about.key_terms)}\n  {about.first_lines}")
    outcomes = []
    for question in about.questions:
        *_, answer = library.ask(question, within=Scope(document_ids=(document.id,)))
        assert isinstance(answer, Answer)
        print(f"  ? {question}\n    [{answer.outcome}] {' '.join(answer.text.split())[:160]}")
        library.delete_answer(answer.id)
        outcomes.append(answer.outcome)
    return outcomes


if __name__ == "__main__":
    main()
