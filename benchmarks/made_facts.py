"""Made facts about people and towns, in short passages, with questions of one hop (a fact stands in one passage) and of
two hops (the passage about a person names the town whose passage holds the answer).

Nobody's weights know these facts, so an answer can only come from the passages.
"""

from __future__ import annotations

import random
import tomllib
from dataclasses import dataclass
from pathlib import Path

WORDS: dict[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

_OF_PERSON = {"job": "jobs", "pet": "animals", "colour": "colours"}
_OF_TOWN = {"holiday": "days", "river": "rivers", "product": "products"}
"""Keys of facts, and the kind of word that is their value. A person has a home besides: one of the towns."""
_STATED = "The {key} of {title} is {value}."
_ASKED = "What is the {key} of {title}?"
_ASKED_IN_TWO_HOPS = "What is the {key} of the home of {title}?"


@dataclass(frozen=True)
class MadePassage:
    title: str
    text: str


@dataclass(frozen=True)
class MadeQuestion:
    text: str
    answer: str
    sentence: str
    """The answer as the passages put it: one sentence for each hop."""
    passage: int
    """Index of the passage that holds the answer."""
    hops: int


@dataclass(frozen=True)
class MadeLibrary:
    passages: tuple[MadePassage, ...]
    questions: tuple[MadeQuestion, ...]


def made_library(
    rng: random.Random, pairs: int, facts_each: int = 3, words: dict[str, list[str]] = WORDS
) -> MadeLibrary:
    """`pairs` people, each living in a town of their own, and these towns: two passages a pair, in random order.

    facts_each: facts about each, the home of a person being one of them. words: by kind, as in made_facts.toml; there
    must be as many of a kind as pairs.
    """
    people, towns = rng.sample(words["first_names"], pairs), rng.sample(words["towns"], pairs)
    home = dict(zip(people, towns, strict=True))
    facts = _values(rng, people, _OF_PERSON, words) | _values(rng, towns, _OF_TOWN, words)
    for person in people:
        facts[person] = {"home": home[person]} | _some(rng, facts[person], facts_each - 1)
    for town in towns:
        facts[town] = _some(rng, facts[town], facts_each)
    order = [*people, *towns]
    rng.shuffle(order)
    place = {title: number for number, title in enumerate(order)}

    def stated(title: str, key: str) -> str:
        return _STATED.format(key=key, title=title, value=facts[title][key])

    passages = []
    for title in order:
        text = [stated(title, key) for key in facts[title]]
        rng.shuffle(text)
        passages.append(MadePassage(title, " ".join(text)))
    questions = [
        MadeQuestion(_ASKED.format(key=key, title=title), value, stated(title, key), place[title], 1)
        for title in order
        for key, value in facts[title].items()
    ]
    questions += [
        MadeQuestion(
            _ASKED_IN_TWO_HOPS.format(key=key, title=person),
            value,
            f"{stated(person, 'home')} {stated(town, key)}",
            place[town],
            2,
        )
        for person, town in home.items()
        for key, value in facts[town].items()
    ]
    rng.shuffle(questions)
    return MadeLibrary(tuple(passages), tuple(questions))


def _values(
    rng: random.Random, titles: list[str], kinds: dict[str, str], words: dict[str, list[str]]
) -> dict[str, dict[str, str]]:
    """By title and key: no two titles have the same value, so that an answer must come from the right one."""
    drawn = {key: rng.sample(words[kind], len(titles)) for key, kind in kinds.items()}
    return {title: {key: values[n] for key, values in drawn.items()} for n, title in enumerate(titles)}


def _some(rng: random.Random, facts: dict[str, str], number: int) -> dict[str, str]:
    return {key: facts[key] for key in rng.sample(list(facts), number)}
