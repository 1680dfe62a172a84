"""Questions that name a place of a document, made from the documents themselves: is what is quoted from there?

    python benchmarks/quality/named_places.py --home DIR [--each 8]

Of every document of the library in DIR (as `quality/held_out.py` leaves it) so many places of each kind are drawn:

- `section`, `part`: what stands between a line of a number and a title ("4.2 Payment", "Rule 8. Fuel") and the next,
  if the number heads one line only. "What does section 4.2 of TITLE say?"
- `option`: what a manual says under an option of one letter ("-P"), if it has one of the same letter in the other case
  too. "What does -P do, according to TITLE?"
- `month`, `4.3.2004`, ...: a row of a sheet that begins with a day in figures, and one of its columns. "What is PRICE
  in March 2004, according to TITLE?"; where a month has several, "on 4.3.2004", in each way to write it

An answer is right if at least half of what it quotes stands there; of an option, if that begins there.
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
from retrieval.index.terms import MONTH_NAMES, MONTHS_ELSEWHERE

LINES = {
    "section": re.compile(
        r"^[ \t]*()(\d{1,2}(?:\.\d{1,2}){1,3})\.?[ \t]+[^\W\d_a-z](?:[^.\n]|\.(?! ?\.)){2,70}(?<!\d)$", re.M
    ),
    "part": re.compile(r"^[ \t]*(Article|Rule|Step|Clause|Artikel|Chapter|Appendix|§) ?(\d{1,2})\b.{0,80}$", re.M),
}
OPTION = re.compile(r"^([ \t]*)(-[A-Za-z])\b.*$", re.M)
DAY = re.compile(r"^[^:;\n]{2,30}: (?:(\d{4})([-/])(\d\d)\2(\d\d)|(\d\d)\.(\d\d)\.(\d{4})); (.+)$", re.M)
WRITTEN = {
    "4 March 2004": "{day} {english} {year}",
    "2004-03-04": "{year}-{month:02}-{day:02}",
    "2004/3/4": "{year}/{month}/{day}",
    "4.3.2004": "{day}.{month}.{year}",
    "4. marz 2004": "{day}. {german} {year}",
    "4 mars 2004": "{day} {french} {year}",
}
SHORTEST, LONGEST = 120, 4000  # characters of a part
Place = tuple[str, str]  # a question, and what stands in its place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--each", type=int, default=8, help="places of a document, of each kind")
    arguments = parser.parse_args()
    print(json.dumps(machine.described()))
    drawn, right, asked, documents = random.Random(3), Counter[str](), Counter[str](), Counter[str]()
    with open_library(load_settings(home=arguments.home / "library")) as library:
        library.warm_up()
        for document in sorted(library.documents.list(), key=lambda one: one.source):
            text = "\n".join(page.text for page in library.documents.read(document.id))
            title = document.title or document.source
            for kind in ("option", *LINES, "month", *WRITTEN):
                found = sorted(places(text, title, kind, drawn))
                some = drawn.sample(found, min(arguments.each, len(found)))
                documents[kind] += bool(some)
                asked[kind] += len(some)
                for question, place in some:
                    answer = list(library.ask(question))[-1]
                    quoted = answer.quotation.passage if answer.found and answer.quotation else None
                    is_right = begins_in if kind == "option" else within
                    right[kind] += bool(quoted and quoted.document_id == document.id and is_right(quoted.text, place))
    for kind, count in (+asked).items():  # those that some document has
        print(f"{kind}: {right[kind]} of {count} right ({right[kind] / count:.2f}), of {documents[kind]} documents")


def places(text: str, title: str, kind: str, drawn: random.Random) -> Iterator[Place]:
    if kind == "option":
        return options(text, title)
    return parts(text, title, kind) if kind in LINES else days(text, title, kind, drawn)


def parts(text: str, title: str, kind: str) -> Iterator[Place]:
    lines = list(LINES[kind].finditer(text))
    times = Counter(line.groups() for line in lines)
    for line, following in zip(lines, lines[1:], strict=False):
        if SHORTEST < following.start() - line.end() < LONGEST and times[line.groups()] == 1:
            name = f"{line[1] or 'section'} {line[2]}".lower()
            yield f"What does {name} of {title} say?", text[line.start() : following.start()]


def options(text: str, title: str) -> Iterator[Place]:
    lines = list(OPTION.finditer(text))
    times = Counter(line[2] for line in lines)
    for line, following in zip(lines, lines[1:], strict=False):
        place = text[line.start() : following.start()]
        alone = times[line[2]] == 1 and times[line[2].swapcase()] == 1
        if alone and len(line[1]) == len(following[1]) and len(place) < LONGEST:
            yield f"What does {line[2]} do, according to {title}?", place


def days(text: str, title: str, kind: str, drawn: random.Random) -> Iterator[Place]:
    rows = {}
    for row in DAY.finditer(text):
        year, month, day = map(int, (row[1], row[3], row[4]) if row[1] else (row[7], row[6], row[5]))
        rows.setdefault((year, month, day), row)  # a wide row begins with its day several times
    by_month = len({day[:2] for day in rows}) == len(rows)
    if by_month != (kind == "month"):
        return
    english, german, french, *_ = (names.split() for names in (MONTH_NAMES, *MONTHS_ELSEWHERE))
    for (year, month, day), row in rows.items():
        columns = [name for cell in row[8].split("; ") for name, colon, _ in (cell.partition(": "),) if colon]
        if columns:
            names = {"english": english[month - 1], "german": german[month - 1], "french": french[month - 1]}
            written = WRITTEN.get(kind, "").format(year=year, month=month, day=day, **names)
            when = f"on {written}" if written else f"in {names['english']} {year}"
            yield f"What is {drawn.choice(columns)} {when}, according to {title}?", row[0]


def begins_in(quoted: str, place: str) -> bool:
    return " ".join(place.split())[:60] in " ".join(quoted.split())


def within(quoted: str, place: str) -> bool:
    whole = " ".join(place.split())
    sentences = [" ".join(one.split()) for one in re.split(r"(?<=[.!?:])\s+|\n+", quoted) if one.strip()]
    return 2 * sum(len(one) for one in sentences if one in whole) >= sum(map(len, sentences))


if __name__ == "__main__":
    main()
