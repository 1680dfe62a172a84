"""Questions about what documents say of themselves: addresses, dates, licences, numbers, authors.

Two kinds: addresses in running text ("email sitessupport@gsa.gov"), asked with the words before them, and made front
matter, put before a stretch of real text, as manuals, papers and packages have it.
"""

import random
import re
from calendar import month_name
from collections.abc import Callable, Iterator, Sequence

from research.train.data.questions.pseudo_queries import MadeQuestion
from research.train.data.questions.word_tables import word_table

_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|https?://[^\s)\]>,]{6,70}[\w/]")
_WORDS_BEFORE = re.compile(r"[A-Za-z][\w’'-]+")
_SMALL = frozenset(
    ("the", "a", "an", "at", "to", "of", "and", "or", "by", "is", "us", "in", "on", "via", "for")
    + ("http", "https", "www", "email", "e-mail", "mailto", "please", "contact", "fax", "website")
)
_FIELD = re.compile(
    r"\b(?P<name>DOI|Submitted|Published|License|Start Date|RFC PR|Rust Issue|Feature Name|Editor|Version|Last updated"
    r"|Effective Date|Date|Author|Header|Library|DLL|Minimum supported client|Target Platform): ?"
    r"(?P<value>[^\n]{3,60}?)(?= (?:Submitted|Published|License|Software|Authors)\b|\n|$)"
)
_ASK_FIELD = {
    "DOI": ("What is the DOI?", "doi", "Which DOI does the paper have?"),
    "Submitted": ("When was it submitted?", "submission date", "When was the paper submitted?"),
    "Published": ("When was it published?", "publication date", "When was the paper published?"),
    "License": ("Under which licence is it released?", "license", "What is the license?"),
    "Start Date": ("When was it started?", "start date", "What is the start date?"),
}
WEB_ADDRESSES = 0.3
"""Share of the web addresses that are asked for."""


def address_questions(text: str, random_: random.Random) -> Iterator[MadeQuestion]:
    """Questions for mail and web addresses in a text, worded with the words before them."""
    for found in _ADDRESS.finditer(text):
        words = _WORDS_BEFORE.findall(text[max(0, found.start() - 90) : found.start()])[1:]
        words = [word for word in words if word.lower() not in _SMALL][-4:]
        if len(words) < 2 or ("@" not in found[0] and random_.random() > WEB_ADDRESSES):
            continue
        topic = " ".join(words)
        kind = "e-mail address" if "@" in found[0] else "web address"
        asked = random_.choice(
            (f"What is the {kind} for {topic}?", f"{topic} {kind}", f"Which {kind} is given for {topic}?")
            if kind == "web address"
            else (f"What is the {kind} for {topic}?", f"{topic} email", "Which e-mail address is given?")
        )
        yield MadeQuestion(asked, *found.span())


def field_questions(text: str, random_: random.Random) -> Iterator[MadeQuestion]:
    """Questions for fields with a name, as papers and proposals have them at their head."""
    for found in _FIELD.finditer(text):
        name = found["name"]
        generic = (f"What is the {name.lower()}?", f"{name.lower()}", f"Which {name.lower()} is given?")
        value = found["value"].rstrip(" .,")
        start = found.start("value")
        yield MadeQuestion(random_.choice(_ASK_FIELD.get(name, generic)), start, start + len(value))


def made_front_matter(random_: random.Random) -> tuple[str, Sequence[MadeQuestion]]:
    """Front matter of a made document, and a question for each of some of its lines."""
    table, words = word_table("front_matter"), word_table("tables")
    name = random_.choice(table["names"])
    fields = random_.sample(table["fields"], random_.randint(3, 6))
    text, made = "", []
    if random_.random() < 0.5:
        text += f"{name}\n\n"
    between = random_.choice(("\n", "\n", " ", "\n\n"))
    for field in fields:
        value = _value(field["kind"], name, random_, words)
        before, after = random_.choice(field["stated"]).replace("{name}", name).split("{value}")
        start = len(text) + len(before)
        text += before + value + after + between
        asked = random_.choice(field["asked"]).replace("{name}", name if random_.random() < 0.6 else "it")
        made.append(MadeQuestion(_with_it(asked, name), start, start + len(value)))
    return text, made


def _with_it(asked: str, name: str) -> str:
    return re.sub(r"\bof it\b", "of the document", asked) if name not in asked else asked


def _value(kind: str, name: str, random_: random.Random, words: dict[str, list[str]]) -> str:
    short = re.sub(r"[^a-z]", "", name.lower())[:8]
    return _MAKERS[kind](short, random_, words)


def _person(short: str, random_: random.Random, words: dict[str, list[str]]) -> str:
    people: list[str] = []
    while not people or (random_.random() < 0.4 and len(people) < 3):
        people.append(f"{random_.choice(words['first_names'])} {random_.choice(words['last_names'])}")
    return ", ".join(people)


def _host(short: str, random_: random.Random) -> str:
    return random_.choice(("example.org", "lists.example.net", "gnu.org", "debian.org", f"{short}.org", "example.com"))


def _mail(short: str, random_: random.Random, words: dict[str, list[str]]) -> str:
    first, last = random_.choice(words["first_names"]), random_.choice(words["last_names"])
    user = random_.choice((f"bug-{short}", f"{short}-bugs", first, f"{first}.{last}")).lower()
    return f"{user}@{_host(short, random_)}"


def _web(short: str, random_: random.Random, words: dict[str, list[str]]) -> str:
    path = random_.choice(("", short, f"{short}/issues"))
    return f"https://{random_.choice(('www.', ''))}{_host(short, random_)}/{path}"


def _date(short: str, random_: random.Random, words: dict[str, list[str]]) -> str:
    day, number, year = random_.randint(1, 28), random_.randint(1, 12), random_.randint(1988, 2026)
    month = month_name[number]
    return random_.choice((f"{day} {month} {year}", f"{month} {day}, {year}", f"{year}-{number:02}-{day:02}"))


def _month(short: str, random_: random.Random, words: dict[str, list[str]]) -> str:
    return f"{month_name[random_.randint(1, 12)]} {random_.randint(1988, 2026)}"


def _version(short: str, random_: random.Random, words: dict[str, list[str]]) -> str:
    last = random_.choice(("", ".1", ".2", ".12", "-rc1"))
    return f"{random_.randint(0, 12)}.{random_.randint(0, 30)}{last}"


def _organisation(short: str, random_: random.Random, words: dict[str, list[str]]) -> str:
    kind = random_.choice(("Institute", "Foundation", "Laboratory", "GmbH", "Software Ltd.", "University"))
    return f"{random_.choice(words['last_names'])} {kind}"


def _file(short: str, random_: random.Random, words: dict[str, list[str]]) -> str:
    return random_.choice((f"/etc/{short}.conf", f"~/.{short}rc", f"{short}.toml", f"/var/log/{short}.log"))


def _doi(short: str, random_: random.Random, words: dict[str, list[str]]) -> str:
    return f"10.{random_.randint(1000, 99999)}/{short}.{random_.randint(1, 9999):05}"


Maker = Callable[[str, random.Random, dict[str, list[str]]], str]


def _listed(name: str) -> Maker:
    return lambda short, random_, words: str(random_.choice(word_table("front_matter")[name]))


_MAKERS: dict[str, Maker] = {
    "person": _person,
    "mail": _mail,
    "web": _web,
    "date": _date,
    "month": _month,
    "version": _version,
    "doi": _doi,
    "file": _file,
    "organisation": _organisation,
    "licence": _listed("licences"),
    "language": _listed("languages"),
    "tool": _listed("tools"),
}
