"""Questions made from the text itself: sentences that look for their block, facts planted in other text, and questions
made of sentences."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

NOUNS = (
    "pass key",
    "access code",
    "budget",
    "phone number",
    "room number",
    "serial number",
    "password",
    "price",
    "deadline",
    "order number",
    "temperature",
    "population",
    "weight",
    "voltage",
    "license number",
    "locker code",
    "invoice number",
    "start date",
    "score",
    "magic number",
)
NAMES = (
    "Alder",
    "Boreal",
    "Cassandra",
    "Delphi",
    "Ember",
    "Falcon",
    "Granite",
    "Harbour",
    "Iris",
    "Juniper",
    "Kestrel",
    "Lantern",
    "Meridian",
    "Nimbus",
    "Orchid",
    "Pelican",
    "Quartz",
    "Raven",
    "Sierra",
    "Tundra",
    "Umbra",
    "Vesper",
    "Willow",
    "Xenon",
    "Yarrow",
    "Zephyr",
)
KINDS = ("Project", "Station", "Team", "Building", "Model", "Doctor", "Captain", "Department", "Ship", "Contract")
STATED = (
    "The {noun} of {owner} is {value}.",
    "For {owner}, the {noun} is {value}.",
    "{owner} has the {noun} {value}.",
    "Note that the {noun} for {owner} is {value}.",
    "{owner}'s {noun}: {value}.",
)
ASKED = (
    "What is the {noun} of {owner}?",
    "What is the {noun} for {owner}?",
    "Which {noun} does {owner} have?",
    "{owner}: what is the {noun}?",
    "Tell me the {noun} of {owner}.",
)
MONTHS = ("January", "March", "April", "June", "July", "August", "October", "November")
PASSKEY = "The pass key is {value}. Remember it. {value} is the pass key."
PASSKEY_ASKED = (
    "What is the pass key?",
    "What is the pass key? The pass key is",
    "Which pass key should be remembered?",
)


@dataclass(frozen=True)
class Fact:
    """A sentence to plant, the question that asks for it and its value (a part of the sentence)."""

    sentence: str
    question: str
    value: str


def draw_fact(random_: random.Random) -> Fact:
    """A made-up fact, or one time in four the pass key."""
    value = _value(random_)
    if random_.random() < 0.25:
        value = str(random_.randrange(1000, 100_000))
        return Fact(PASSKEY.format(value=value), random_.choice(PASSKEY_ASKED), value)
    names = {"noun": random_.choice(NOUNS), "owner": f"{random_.choice(KINDS)} {random_.choice(NAMES)}"}
    return Fact(random_.choice(STATED).format(value=value, **names), random_.choice(ASKED).format(**names), value)


def _value(random_: random.Random) -> str:
    kind = random_.random()
    if kind < 0.5:
        return str(random_.randrange(10, 10 ** random_.randrange(2, 7)))
    if kind < 0.7:
        return f"{random_.randrange(1, 29)} {random_.choice(MONTHS)}"
    if kind < 0.85:
        return "".join(random_.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(2)) + f"-{random_.randrange(100, 1000)}"
    return f"{random_.choice(NAMES)} {random_.choice(NAMES)}"


@dataclass(frozen=True)
class PlantedFact:
    """Tokens to put into a row, the question, and where in the tokens the value stands."""

    ids: tuple[int, ...]
    question: tuple[int, ...]
    value: slice


def plant(tokenizer: PreTrainedTokenizerBase, random_: random.Random) -> PlantedFact:
    """A tokenised fact."""
    fact = draw_fact(random_)
    fast = tokenizer.backend_tokenizer
    encoding = fast.encode(" " + fact.sentence, add_special_tokens=False)
    start = 1 + fact.sentence.index(fact.value)
    inside = [
        number
        for number, (first, last) in enumerate(encoding.offsets)
        if last > start and first < start + len(fact.value)
    ]
    question = fast.encode(fact.question, add_special_tokens=False).ids
    return PlantedFact(tuple(encoding.ids), tuple(question), slice(inside[0], inside[-1] + 1))


def pseudo_question(block_ids: Sequence[int], idf_V: NDArray[np.float32], random_: random.Random) -> tuple[int, ...]:
    """A piece of a block as if it were a question: a stretch of it, with tokens dropped, or only its rarest tokens."""
    length = random_.randrange(6, 20)
    start = random_.randrange(max(1, len(block_ids) - length))
    piece = [int(token) for token in block_ids[start : start + length]]
    if random_.random() < 0.5:
        kept = [token for token in piece if random_.random() < 0.7]
    else:
        bar = float(np.quantile(idf_V[piece], 0.5))
        kept = [token for token in piece if idf_V[token] >= bar]
        if random_.random() < 0.5:
            random_.shuffle(kept)
    return tuple(kept or piece)


DEFINES = re.compile(
    r"(?:(?<=[.!?]\s)|(?<=\n)|^)(?:The |(?P<article>An?) )?(?P<term>\w[\w-]*(?: [\w-]+){0,3}) "
    r"(?P<verb>is|are|was|were|refers to|means|is defined as) "
    r"(?P<said>(?:an?|the|any|one of) [^.;:\n]{12,140}?)(?=[.;])"
)
# fmt: off
NO_TERM = frozenset((
    "a", "i", "it", "this", "that", "there", "he", "she", "they", "these", "those", "what", "which", "who",
    "here", "we", "you", "one", "some", "such", "his", "her", "their", "its", "our", "my", "since", "but",
    "although", "if", "while", "when", "because", "as", "and", "for", "in", "on", "at",
))
# fmt: on
DEFINITION_ASKED = {
    "is": ("What is {term}?", "What is {article}{term}?", "Define {term}.", "What does {term} mean?"),
    "are": ("What are {term}?", "Define {term}.", "What is meant by {term}?"),
    "was": ("Who or what was {term}?", "What was {term}?", "What was {article}{term}?"),
}


@dataclass(frozen=True)
class MadeQuestion:
    """A question and the characters of the text that answer it."""

    question: str
    start: int
    stop: int


def definitions(text: str, random_: random.Random) -> Iterator[MadeQuestion]:
    """Sentences of the form "A cairn is a pile of stones." turned into questions."""
    for found in DEFINES.finditer(text):
        term, verb = found["term"], found["verb"]
        if term.split()[0].lower() in NO_TERM:
            continue
        asked = DEFINITION_ASKED[{"are": "are", "were": "are", "was": "was"}.get(verb, "is")]
        article = f"{found['article'].lower()} " if found["article"] else ""
        yield MadeQuestion(
            random_.choice(asked).format(term=term, article=article), found.start("said"), found.end("said")
        )
