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

_OF_PERSON = {
    "town": ("{} lives in {}.", "Where does {} live?"),
    "job": ("{} works as a {}.", "What does {} work as?"),
    "animal": ("{} keeps a {}.", "Which animal does {} keep?"),
    "colour": ("{} likes the colour {}.", "Which colour does {} like?"),
}
_OF_TOWN = {
    "day": ("The market in {} opens on {}.", "On which day does the market in {} open?"),
    "river": ("Through {} flows the {}.", "Which river flows through {}?"),
    "product": ("In {} people make {}.", "What do people make in {}?"),
}
_TWO_HOPS = {
    "day": "On which day does the market open in the town where {} lives?",
    "river": "Which river flows through the town where {} lives?",
    "product": "What do people make in the town where {} lives?",
}


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
    chance: random.Random, pairs: int, facts_each: int = 3, words: dict[str, list[str]] = WORDS
) -> MadeLibrary:
    """`pairs` people, each living in a town of their own, and these towns: two passages a pair, in random order.

    facts_each: facts about each, the town of a person being one of them. words: by kind, as in made_facts.toml.
    """
    people, towns = chance.sample(words["first_names"], pairs), chance.sample(words["towns"], pairs)
    facts: dict[str, dict[str, str]] = {}
    for person, town in zip(people, towns, strict=True):
        of_person = {
            "job": chance.choice(words["jobs"]),
            "animal": chance.choice(words["animals"]),
            "colour": chance.choice(words["colours"]),
        }
        of_town = {
            "day": chance.choice(words["days"]),
            "river": chance.choice(words["rivers"]),
            "product": chance.choice(words["products"]),
        }
        facts[person] = {"town": town} | _some(chance, of_person, facts_each - 1)
        facts[town] = _some(chance, of_town, facts_each)
    order = [*people, *towns]
    chance.shuffle(order)
    place = {title: number for number, title in enumerate(order)}
    sentences = {key: form[0] for key, form in (_OF_PERSON | _OF_TOWN).items()}

    def stated(title: str, key: str) -> str:
        return sentences[key].format(title, facts[title][key])

    passages = []
    for title in order:
        text = [stated(title, key) for key in facts[title]]
        chance.shuffle(text)
        passages.append(MadePassage(title, " ".join(text)))
    questions = [
        MadeQuestion(form[1].format(title), facts[title][key], stated(title, key), place[title], 1)
        for titles, forms in ((people, _OF_PERSON), (towns, _OF_TOWN))
        for title in titles
        for key, form in forms.items()
        if key in facts[title]
    ]
    questions += [
        MadeQuestion(
            form.format(person), facts[town][key], f"{stated(person, 'town')} {stated(town, key)}", place[town], 2
        )
        for person, town in zip(people, towns, strict=True)
        for key, form in _TWO_HOPS.items()
        if key in facts[town]
    ]
    chance.shuffle(questions)
    return MadeLibrary(tuple(passages), tuple(questions))


def _some(chance: random.Random, facts: dict[str, str], number: int) -> dict[str, str]:
    return {key: facts[key] for key in chance.sample(list(facts), number)}
