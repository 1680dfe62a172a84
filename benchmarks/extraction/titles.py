"""Titles of real PDFs: how many are what a reader would call the document, with and without what the metadata states.

    python benchmarks/extraction/titles.py --pdfs FOLDER [--titles FILE.json]

`--titles`: file name -> the wordings that are right. Comparing ignores case, punctuation and white space.
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine

from retrieval.extraction.extract import extract

TITLES = ROOT / "benchmarks" / "questions" / "public_titles.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pdfs", type=Path, required=True)
    parser.add_argument("--titles", type=Path, default=TITLES)
    arguments = parser.parse_args()
    print(json.dumps(machine.described()))
    wanted = json.loads(arguments.titles.read_text(encoding="utf-8"))
    right = stated_right = 0
    for name, titles in wanted.items():
        document = extract(arguments.pdfs / name)
        stated = document.metadata.get("title", "")
        is_right = plain(document.title) in map(plain, titles)
        right += is_right
        stated_right += plain(stated) in map(plain, titles)
        print(f"{'right' if is_right else 'WRONG':6}{name}: {document.title!r} (metadata: {stated!r})")
    print(f"{right} of {len(wanted)} titles are right; of those in the metadata {stated_right}")


def plain(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()


if __name__ == "__main__":
    main()
