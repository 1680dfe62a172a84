"""Made-up facts of the kind that documents state about themselves and about others, to be inserted into other text."""

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

from research.train.data.questions.word_tables import word_table

_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"
"""Without those that look like digits."""


@dataclass(frozen=True)
class Relation:
    """Ways to state something and to ask for it; `{subject}` occurs in all of them or in none."""

    kind: str
    """Of the value: see `_value`."""
    stated: tuple[str, ...]
    asked: tuple[str, ...]


@cache
def relations_about_subjects() -> tuple[Relation, ...]:
    """Relations of a named subject: one for each noun of the table, then the listed ones."""
    table = word_table("facts")
    of_nouns = (
        {"kind": "code"}
        | {key: [text.replace("{noun}", noun) for text in texts] for key, texts in table["noun"].items()}
        for noun in table["nouns"]
    )
    return tuple(_relation(entry) for entry in (*of_nouns, *table["about_subject"]))


@cache
def standalone_relations() -> tuple[Relation, ...]:
    """Relations without a subject; the pass key comes first."""
    return tuple(_relation(entry) for entry in word_table("facts")["standalone"])


def _relation(entry: dict[str, Any]) -> Relation:
    return Relation(entry["kind"], tuple(entry["stated"]), tuple(entry["asked"]))


@dataclass(frozen=True)
class Fact:
    """A sentence to insert, the question that asks for it, and the characters of the sentence that answer."""

    sentence: str
    question: str
    start: int
    stop: int
    relation: Relation
    subject: str | None

    @property
    def value(self) -> str:
        return self.sentence[self.start : self.stop]


class Facts:
    """Facts for texts that are searched together: no two answer the same question."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_
        self._subjects: dict[Relation, set[str | None]] = {}

    def draw(self) -> Fact:
        """Any fact; one in three is about the text itself, while unused relations of that kind are left."""
        unused = [relation for relation in standalone_relations() if relation not in self._subjects]
        if unused and self._random.random() < 1 / 3:
            # The pass key is the published test of the method (Mohtashami & Jaggi 2023, section 4.2): it comes first.
            return self._stated(unused[0] if self._random.random() < 0.5 else self._random.choice(unused), None)
        return self._stated(self._random.choice(relations_about_subjects()), self._subject())

    def distractor(self, fact: Fact) -> Fact:
        """One that is easily mistaken for `fact`: the same subject or relation, or a value of the same kind."""
        about_subjects = relations_about_subjects()
        if fact.subject is None:
            alike = [relation for relation in about_subjects if relation.kind == fact.relation.kind] or about_subjects
            return self._stated(self._random.choice(alike), self._subject())
        if self._random.random() < 0.5:
            return self._stated(fact.relation, self._subject())
        others = [other for other in about_subjects if other != fact.relation]
        return self._stated(self._random.choice(others), fact.subject)

    def _subject(self) -> str:
        table = word_table("facts")
        return str(self._random.choice(table["subjects"]).format(self._random.choice(table["names"])))

    def _stated(self, relation: Relation, subject: str | None) -> Fact:
        taken = self._subjects.setdefault(relation, set())
        while subject in taken:
            subject = f"{self._subject()} {self._random.randrange(2, 1000)}"
        taken.add(subject)
        value, stated = _value(relation.kind, self._random), self._random.choice(relation.stated)
        start = len(stated.partition("{value}")[0].format(subject=subject))
        sentence = stated.format(subject=subject, value=value)
        question = self._random.choice(relation.asked).format(subject=subject)
        return Fact(_capital(sentence), _capital(question), start, start + len(value), relation, subject)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _value(kind: str, random_: random.Random) -> str:
    """A value of a kind. Number and dates are drawn for every kind, so that every kind advances the generator alike."""
    words, one = word_table("facts"), random_.choice
    number = random_.randrange(2, 10 ** random_.randrange(1, 6))
    day = f"{random_.randrange(1, 29)} {one(words['months'])}"
    date = f"{one(words['months'])} {random_.randrange(1, 29)}, {random_.randrange(1960, 2030)}"
    match kind:
        case "passkey":
            return str(random_.randrange(1000, 100_000))
        case "date":
            return one((day, date))
        case "year":
            return str(random_.randrange(1500, 2030))
        case "person":
            return f"{one(('', '', 'Dr. ', 'Ms '))}{one(words['people'])} {one(words['names'])}"
        case "town":
            return str(one(words["towns"]))
        case "money":
            return one((f"${number:,}", f"{number:,} euros", f"{number} million dollars"))
        case "count":
            return f"{number:,}"
        case "time":
            return f"{random_.randrange(2, 90)} {one(('minutes', 'hours', 'days', 'weeks', 'months', 'years'))}"
        case "organisation":
            return f"the {one(words['names'])} {one(('Foundation', 'Institute', 'Ministry', 'Council', 'Agency'))}"
        case "purpose":
            return f"{one(words['actions'])} {one(words['objects'])}"
        case "formats":
            first, second, third = random_.sample(words["formats"], 3)
            return one((f"{first} and {second}", f"{first}, {second} and {third}"))
        case "license":
            return str(one(words["licenses"]))
    assert kind == "code", kind
    letters = one(_LETTERS) + one(_LETTERS)
    serial = f"{letters}-{random_.randrange(100, 1000)}"
    return one((str(number), str(number), day, serial, f"{one(words['names'])} {one(words['names'])}"))
