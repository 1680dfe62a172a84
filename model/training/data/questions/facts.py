"""Made-up facts of the kind that documents state about themselves and about others, to be planted in other text."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

# fmt: off
NAMES = (
    "Alder", "Boreal", "Cassandra", "Delphi", "Ember", "Falcon", "Granite", "Harbour", "Iris", "Juniper", "Kestrel",
    "Lantern", "Meridian", "Nimbus", "Orchid", "Pelican", "Quartz", "Raven", "Sierra", "Tundra", "Umbra", "Vesper",
    "Willow", "Xenon", "Yarrow", "Zephyr",
)
PEOPLE = ("Amara", "Bjorn", "Carmen", "Dmitri", "Elena", "Farid", "Greta", "Hiro", "Ingrid", "Joao", "Kofi", "Leila")
TOWNS = ("Porto", "Graz", "Lyon", "Tampere", "Leeds", "Halifax", "Kyoto", "Nairobi", "Lima", "Pune", "Bergen", "Ghent")
MONTHS = ("January", "March", "April", "June", "July", "August", "October", "November")
FORMATS = ("JSON", "XML", "CSV", "YAML", "PDF", "HTML", "Markdown", "plain text")
LICENSES = ("MIT", "Apache 2.0", "BSD", "GPL version 3", "CC BY 4.0", "Mozilla Public")
DEEDS = ("reduce", "measure", "explain", "improve", "compare", "protect", "record", "simplify", "forecast", "replace")
THINGS = (
    "the noise of aircraft", "the quality of drinking water", "the training of nurses", "older heating systems",
    "the migration of birds", "access to public records", "the safety of bridges", "energy use in schools",
    "waiting times at clinics", "the reporting of accidents",
)
NOUNS = (
    "access code", "budget", "phone number", "room number", "serial number", "password", "price", "deadline",
    "order number", "temperature", "population", "weight", "voltage", "license number", "locker code",
    "invoice number", "start date", "score", "magic number",
)
OWNERS = (
    "Project {}", "Station {}", "Team {}", "Building {}", "Model {}", "Department {}", "Ship {}", "the {} report",
    "the {} Agreement", "the {} programme", "the {} study", "the {} Act",
)
# fmt: on
PASSKEY = "The pass key is {value}. Remember it. {value} is the pass key."
PASSKEY_ASKED = (
    "What is the pass key?",
    "What is the pass key? The pass key is",
    "Which pass key should be remembered?",
)


@dataclass(frozen=True)
class Relation:
    """Ways to state something and to ask for it; `{owner}` in all of them or in none."""

    kind: str
    """Of the value: see `_value`."""
    stated: tuple[str, ...]
    asked: tuple[str, ...]


STATED = (
    "The {noun} of {owner} is {value}.",
    "For {owner}, the {noun} is {value}.",
    "{owner} has the {noun} {value}.",
    "Note that the {noun} for {owner} is {value}.",
    "{owner}: {noun} {value}.",
)
ASKED = (
    "What is the {noun} of {owner}?",
    "What is the {noun} for {owner}?",
    "Which {noun} does {owner} have?",
    "{owner}: what is the {noun}?",
    "Tell me the {noun} of {owner}.",
)
OWNED = (
    *(
        Relation(
            "code",
            tuple(text.replace("{noun}", noun) for text in STATED),
            tuple(text.replace("{noun}", noun) for text in ASKED),
        )
        for noun in NOUNS
    ),
    Relation(
        "date",
        ("{owner} takes effect on {value}.", "The effective date of {owner} is {value}."),
        ("When does {owner} take effect?", "What is the effective date of {owner}?"),
    ),
    Relation(
        "date",
        ("{owner} was published on {value}.", "On {value}, {owner} was made public."),
        ("When was {owner} published?", "What is the publication date of {owner}?"),
    ),
    Relation(
        "date", ("{owner} expires on {value}.", "{owner} is valid until {value}."), ("When does {owner} expire?",)
    ),
    Relation(
        "year",
        ("{owner} was founded in {value}.", "{owner} dates from {value}."),
        ("When was {owner} founded?", "In what year was {owner} set up?"),
    ),
    Relation(
        "person",
        ("{owner} was written by {value}.", "{value} is the author of {owner}."),
        ("Who wrote {owner}?", "Who is the author of {owner}?"),
    ),
    Relation(
        "person",
        ("{owner} is led by {value}.", "{value} has been in charge of {owner} since spring."),
        ("Who leads {owner}?", "Who is in charge of {owner}?"),
    ),
    Relation(
        "person",
        ("Questions about {owner} should be sent to {value}.", "{value} answers questions about {owner}."),
        ("Whom can I ask about {owner}?", "Who is the contact for {owner}?"),
    ),
    Relation(
        "town", ("{owner} is located in {value}.", "{owner} is based in {value}."), ("Where is {owner} located?",)
    ),
    Relation(
        "money",
        ("{owner} costs {value}.", "In all, {value} was spent on {owner}."),
        ("How much does {owner} cost?", "What did {owner} cost?"),
    ),
    Relation(
        "count",
        ("{owner} has {value} members.", "{value} people belong to {owner}."),
        ("How many members does {owner} have?", "How many people belong to {owner}?"),
    ),
    Relation(
        "time", ("{owner} lasts {value}.", "It takes {value} to complete {owner}."), ("How long does {owner} last?",)
    ),
    Relation(
        "body",
        ("{owner} is funded by {value}.", "{value} pays for {owner}."),
        ("Who funds {owner}?", "Where does the money for {owner} come from?"),
    ),
    Relation(
        "deed",
        ("The purpose of {owner} is to {value}.", "{owner} was set up to {value}."),
        ("What is the purpose of {owner}?", "Why was {owner} set up?", "What is {owner} for?"),
    ),
    Relation(
        "formats",
        ("{owner} is available in {value}.", "{owner} supports {value}."),
        ("Which formats does {owner} support?", "In which formats is {owner} available?"),
    ),
    Relation(
        "license", ("{owner} is released under the {value} license.",), ("Under which license is {owner} released?",)
    ),
)
ALONE = (
    Relation("passkey", (PASSKEY,), PASSKEY_ASKED),
    Relation(
        "date",
        ("Comments must be received by {value}.", "We will accept comments until {value}."),
        ("When are comments due?", "By when must comments be received?"),
    ),
    Relation(
        "date",
        ("This rule becomes effective on {value}.", "The rule applies from {value} on."),
        ("When does the rule become effective?", "From when on does the rule apply?"),
    ),
    Relation(
        "date",
        ("The next meeting will take place on {value}.", "Next meeting: {value}."),
        ("When is the next meeting?",),
    ),
    Relation(
        "date",
        ("Applications have to be submitted by {value}.", "The application period ends on {value}."),
        ("What is the deadline for applications?", "Until when can one apply?"),
    ),
    Relation(
        "person",
        ("This report was prepared by {value}.", "The author of this report is {value}."),
        ("Who prepared the report?", "Who is the author of the report?"),
    ),
    Relation("body", ("The study was funded by {value}.", "{value} supported this study."), ("Who funded the study?",)),
    Relation(
        "money", ("A fee of {value} is charged.", "The fee is {value}."), ("How much is the fee?", "What is the fee?")
    ),
    Relation(
        "count",
        ("A total of {value} people took part in the survey.", "The survey had {value} participants."),
        ("How many people took part in the survey?", "How many participants did the survey have?"),
    ),
    Relation(
        "count",
        ("The data set contains {value} examples.", "There are {value} examples in the data set."),
        ("How many examples does the data set contain?", "How large is the data set?"),
    ),
    Relation("count", ("The experiment was repeated {value} times.",), ("How often was the experiment repeated?",)),
    Relation("time", ("The warranty lasts {value}.", "We give a warranty of {value}."), ("How long is the warranty?",)),
    Relation(
        "time",
        ("Records are kept for {value}.", "After {value}, records are destroyed."),
        ("How long are records kept?", "For how long must records be retained?"),
    ),
    Relation("time", ("Requests are answered within {value}.",), ("How quickly are requests answered?",)),
    Relation("deed", ("The agency proposes to {value}.",), ("What does the agency propose?",)),
    Relation(
        "deed",
        ("The aim of this study is to {value}.", "In this study we {value}."),
        ("What is the aim of the study?",),
    ),
    Relation("license", ("The text may be used under the {value} license.",), ("What license does the text have?",)),
    Relation("town", ("The conference will be held in {value}.",), ("Where will the conference take place?",)),
)


@dataclass(frozen=True)
class Fact:
    """A sentence to plant, the question that asks for it, and the characters of the sentence that answer."""

    sentence: str
    question: str
    start: int
    stop: int
    relation: Relation
    owner: str | None

    @property
    def value(self) -> str:
        return self.sentence[self.start : self.stop]


class Facts:
    """Facts for texts that are searched together: no two answer the same question."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_
        self._owners: dict[Relation, set[str | None]] = {}

    def draw(self) -> Fact:
        """Any fact; one in three of those that texts state about themselves, while there are such left."""
        alone = [relation for relation in ALONE if relation not in self._owners]
        if alone and self._random.random() < 1 / 3:
            # The pass key is what the method is known by (Mohtashami & Jaggi 2023, section 4.2): it comes first.
            return self._stated(alone[0] if self._random.random() < 0.5 else self._random.choice(alone), None)
        return self._stated(self._random.choice(OWNED), self._owner())

    def rival(self, fact: Fact) -> Fact:
        """One that is easily taken for `fact`: of the same owner or relation, or with a value of the same kind."""
        if fact.owner is None:
            alike = [relation for relation in OWNED if relation.kind == fact.relation.kind] or OWNED
            return self._stated(self._random.choice(alike), self._owner())
        if self._random.random() < 0.5:
            return self._stated(fact.relation, self._owner())
        return self._stated(self._random.choice([other for other in OWNED if other != fact.relation]), fact.owner)

    def _owner(self) -> str:
        return self._random.choice(OWNERS).format(self._random.choice(NAMES))

    def _stated(self, relation: Relation, owner: str | None) -> Fact:
        taken = self._owners.setdefault(relation, set())
        while owner in taken:
            owner = f"{self._owner()} {self._random.randrange(2, 1000)}"
        taken.add(owner)
        value, stated = _value(relation.kind, self._random), self._random.choice(relation.stated)
        start = len(stated.partition("{value}")[0].format(owner=owner))
        sentence, question = (
            stated.format(owner=owner, value=value),
            self._random.choice(relation.asked).format(owner=owner),
        )
        return Fact(_capital(sentence), _capital(question), start, start + len(value), relation, owner)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _value(kind: str, random_: random.Random) -> str:
    """A value of a kind."""
    number = random_.randrange(2, 10 ** random_.randrange(1, 6))
    one = random_.choice
    date = (
        f"{random_.randrange(1, 29)} {one(MONTHS)}",
        f"{one(MONTHS)} {random_.randrange(1, 29)}, {random_.randrange(1960, 2030)}",
    )
    match kind:
        case "passkey":
            return str(random_.randrange(1000, 100_000))
        case "date":
            return one(date)
        case "year":
            return str(random_.randrange(1500, 2030))
        case "person":
            return f"{one(('', '', 'Dr. ', 'Ms '))}{one(PEOPLE)} {one(NAMES)}"
        case "town":
            return one(TOWNS)
        case "money":
            return one((f"${number:,}", f"{number:,} euros", f"{number} million dollars"))
        case "count":
            return f"{number:,}"
        case "time":
            return f"{random_.randrange(2, 90)} {one(('minutes', 'hours', 'days', 'weeks', 'months', 'years'))}"
        case "body":
            return f"the {one(NAMES)} {one(('Foundation', 'Institute', 'Ministry', 'Council', 'Agency'))}"
        case "deed":
            return f"{one(DEEDS)} {one(THINGS)}"
        case "formats":
            first, second, third = random_.sample(FORMATS, 3)
            return one((f"{first} and {second}", f"{first}, {second} and {third}"))
        case "license":
            return one(LICENSES)
        case "code":
            letters = "".join(one("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(2))
            return one(
                (
                    str(number),
                    str(number),
                    date[0],
                    f"{letters}-{random_.randrange(100, 1000)}",
                    f"{one(NAMES)} {one(NAMES)}",
                )
            )
    raise AssertionError(kind)


@dataclass(frozen=True)
class PlantedFact:
    """Tokens to put into a row, the question, and where in the tokens the value stands."""

    ids: tuple[int, ...]
    question: tuple[int, ...]
    value: slice


def plant(tokenizer: PreTrainedTokenizerBase, fact: Fact) -> PlantedFact:
    """A tokenised fact."""
    fast = tokenizer.backend_tokenizer
    encoding = fast.encode(" " + fact.sentence, add_special_tokens=False)
    inside = [
        number
        for number, (first, last) in enumerate(encoding.offsets)
        if last > 1 + fact.start and first < 1 + fact.stop
    ]
    question = fast.encode(fact.question, add_special_tokens=False).ids
    return PlantedFact(tuple(encoding.ids), tuple(question), slice(inside[0], inside[-1] + 1))


def sentence_ends(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Tokens behind which a sentence may begin."""
    marks = (".", "?", "!", "\n")
    return frozenset(token for token in range(len(tokenizer)) if str(tokenizer.decode([token])).endswith(marks))


def put_into(
    tokens: NDArray[Any], planted: Sequence[PlantedFact], ends: frozenset[int], random_: random.Random
) -> tuple[NDArray[Any], list[int]]:
    """Tokens with facts in random places, mostly between sentences; and where each fact begins."""
    between = [place + 1 for place, token in enumerate(tokens.tolist()) if token in ends]
    drawn = [
        random_.choice(between) if between and random_.random() < 0.8 else random_.randrange(len(tokens) + 1)
        for _ in planted
    ]
    pieces, starts, taken, length = [], [0] * len(planted), 0, 0
    for place, number in sorted(zip(drawn, range(len(planted)), strict=True)):
        starts[number] = length + place - taken
        pieces += [tokens[taken:place], np.array(planted[number].ids, tokens.dtype)]
        length, taken = starts[number] + len(planted[number].ids), place
    return np.concatenate((*pieces, tokens[taken:])), starts
