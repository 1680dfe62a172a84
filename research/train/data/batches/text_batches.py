"""Rows of plain text for `distillation_batches.py`, with questions made from their sentences and inserted facts."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.checkpoint.landmark_model import LandmarkModel
from research.train.data.examples import TokenQuestion, questions_of_text
from research.train.data.questions.cloze_questions import cloze_questions
from research.train.data.questions.fact_insertion import insert_facts, sentence_ends, tokenize_fact
from research.train.data.questions.facts import Facts
from research.train.data.questions.pseudo_queries import MadeQuestion, definitions
from research.train.data.questions.sentence_questions import sentence_questions


@dataclass(frozen=True, kw_only=True)
class TextRowShape:
    """What is made of a row of plain text."""

    stretches: int = 3
    """Rows of one text: questions made of one of them meet the others, which are about the same."""
    facts: float = 0.4
    """How often a made-up fact is inserted into a row, with the question about it."""
    distractors: float = 0.5
    """How often a distractor is inserted with it."""
    made: int = 2
    """Questions made of the sentences of a row, at most."""


@dataclass(frozen=True)
class TextRow:
    """A stretch of a text and the questions about it."""

    ids: NDArray[np.uint16]
    document: int
    """A number of its own, however many rows the text has."""
    title: str
    asked: list[TokenQuestion]


class TextRows:
    """Draws rows of `length` tokens at most; every token of the texts is equally likely."""

    def __init__(
        self,
        model: LandmarkModel,
        texts: Sequence[NDArray[np.uint16]],
        titles: Sequence[str],
        shape: TextRowShape,
        *,
        length: int,
        longest_question: int,
    ) -> None:
        self._model, self._texts, self._titles, self._shape = model, texts, titles, shape
        self._length, self._longest_question = length, longest_question
        sizes = np.array([len(text) for text in texts], np.float64)
        self._chance = sizes / sizes.sum()
        strings = (model.tokenizer.decode([token]) for token in range(len(model.tokenizer)))
        self._words = {string[1:] for string in strings if string.startswith(" ")}
        self._ends = sentence_ends(model.tokenizer)

    def draw(
        self, rows: int, document: int, facts: Facts, pick: random.Random, draw: np.random.Generator
    ) -> Iterator[TextRow]:
        """So many rows, as documents `document`, `document - 1` and so on."""
        last = document - rows
        while document > last:
            index = int(draw.choice(len(self._texts), p=self._chance))
            title = self._titles[index]
            for ids in self._stretches(self._texts[index], min(self._shape.stretches, document - last), draw):
                about_fact = []
                if pick.random() < self._shape.facts:
                    ids, question = self._with_fact(ids, document, facts, pick)
                    about_fact = [question]
                yield TextRow(ids, document, title, [*about_fact, *self._made(ids, document, title, pick)])
                document -= 1

    def _stretches(self, tokens: NDArray[np.uint16], most: int, draw: np.random.Generator) -> list[NDArray[np.uint16]]:
        """Up to so many stretches of a text that do not overlap."""
        length = self._length
        begin = int(draw.integers(0, max(1, min(length, len(tokens) - length))))
        starts = np.arange(begin, max(begin + 1, len(tokens) - length + 1), length)
        chosen = draw.choice(starts, min(most, len(starts)), replace=False)
        return [tokens[start : start + length] for start in chosen]

    def _made(self, ids: NDArray[np.uint16], document: int, title: str, pick: random.Random) -> list[TokenQuestion]:
        """Questions made of sentences; rough ones only if no sentence gives a better one."""

        def questions(make: Callable[[str], Iterator[MadeQuestion]]) -> list[TokenQuestion]:
            found = questions_of_text(self._model, ids.tolist(), make, longest=self._longest_question)
            made = [
                TokenQuestion("made", document, asked, start, stop, (), True, exact=True)
                for asked, start, stop in found
            ]
            return pick.sample(made, len(made))

        most = self._shape.made
        defined = questions(lambda text: definitions(text, pick))[: most - 1]
        asked = questions(lambda text: sentence_questions(text, title, pick, self._words.__contains__))
        return [*defined, *asked][:most] or questions(lambda text: cloze_questions(text, pick))[:1]

    def _with_fact(
        self, ids: NDArray[np.uint16], document: int, facts: Facts, pick: random.Random
    ) -> tuple[NDArray[np.uint16], TokenQuestion]:
        """The tokens with a made-up fact put in somewhere, and the question that asks for it."""
        drawn = facts.draw()
        inserted = [tokenize_fact(self._model.tokenizer, drawn)]
        if pick.random() < self._shape.distractors:
            inserted.append(tokenize_fact(self._model.tokenizer, facts.distractor(drawn)))
        room = self._length - sum(len(fact.ids) for fact in inserted)
        joined, (place, *_) = insert_facts(ids[:room], inserted, self._ends, pick)
        value = (place + inserted[0].value.start, place + inserted[0].value.stop)
        asked = inserted[0].question[: self._longest_question]
        return joined, TokenQuestion("fact", document, asked, *value, (), True, exact=True)
