"""Questions about a numbered part of a document, "What does section 4.2 of TITLE say?": is what is quoted from there?

    python benchmarks/quality/numbered_parts.py --home DIR [--each 8]

Of every document of the library in DIR (as `quality/held_out.py` leaves it) so many parts are drawn: what stands
between a line of a number and a title ("4.2 Payment", "Rule 8. Fuel") and the next one, if the number heads one line
only. An answer is right if at least half of what it quotes stands there.
"""

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine

from app.assembly import open_library
from app.settings import load_settings

LINES = {
    "section": re.compile(
        r"^[ \t]*()(\d{1,2}(?:\.\d{1,2}){1,3})\.?[ \t]+[^\W\d_a-z](?:[^.\n]|\.(?! ?\.)){2,70}(?<!\d)$", re.M
    ),
    "named": re.compile(r"^[ \t]*(Article|Rule|Step|Clause|Artikel|Chapter|Appendix|§) ?(\d{1,2})\b.{0,80}$", re.M),
}
SHORTEST, LONGEST = 120, 4000  # characters of a part


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--each", type=int, default=8, help="parts of a document, of each kind")
    arguments = parser.parse_args()
    print(json.dumps(machine.described()))
    drawn, right, documents = random.Random(3), Counter[str](), Counter[str]()
    asked = Counter[str]()
    with open_library(load_settings(home=arguments.home / "library")) as library:
        library.warm_up()
        for document in sorted(library.documents.list(), key=lambda one: one.source):
            text = "\n".join(page.text for page in library.documents.read(document.id))
            for kind in LINES:
                found = sorted(parts(text, kind))
                some = drawn.sample(found, min(arguments.each, len(found)))
                documents[kind] += bool(some)
                asked[kind] += len(some)
                for name, part in some:
                    answer = list(library.ask(f"What does {name} of {document.title or document.source} say?"))[-1]
                    quoted = answer.quotation.passage if answer.found and answer.quotation else None
                    right[kind] += (
                        quoted is not None and quoted.document_id == document.id and within(quoted.text, part)
                    )
    for kind in LINES:
        share = right[kind] / max(1, asked[kind])
        print(f"{kind}: {right[kind]} of {asked[kind]} right ({share:.2f}), of {documents[kind]} documents")


def parts(text: str, kind: str) -> Iterator[tuple[str, str]]:
    """("section 4.2", what stands there) of a document's text."""
    lines = list(LINES[kind].finditer(text))
    times = Counter(line.groups() for line in lines)
    for line, following in zip(lines, lines[1:], strict=False):
        if SHORTEST < following.start() - line.end() < LONGEST and times[line.groups()] == 1:
            yield f"{(line[1] or 'section').lower()} {line[2]}", text[line.start() : following.start()]


def within(quoted: str, part: str) -> bool:
    whole = " ".join(part.split())
    sentences = [" ".join(one.split()) for one in re.split(r"(?<=[.!?:])\s+|\n+", quoted) if one.strip()]
    return 2 * sum(len(one) for one in sentences if one in whole) >= sum(map(len, sentences))


if __name__ == "__main__":
    main()
