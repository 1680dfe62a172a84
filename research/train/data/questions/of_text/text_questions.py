"""Questions made from training text of many kinds, each with the passage that answers it and others of its document."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Container, Sequence, Set
from pathlib import Path

from research.train.data.corpus import Text, sample_texts
from research.train.data.questions.of_text.abbreviations import abbreviation_questions
from research.train.data.questions.of_text.listed_items import listed_questions
from research.train.data.questions.of_text.manual_entries import manual_entry_questions
from research.train.data.questions.of_text.real_tables import with_tables
from research.train.data.questions.of_text.stated_details import address_questions, field_questions, made_front_matter
from research.train.data.questions.pseudo_queries import MadeQuestion
from research.train.data.questions.sentence_questions import sentence_questions
from research.train.data.span_questions import LONGEST_ANSWER, SpanQuestion, cut

KINDS = ("abbreviations", "entries", "lists", "addresses", "fields", "front_matter", "real_tables", "sentences")
LONGEST_STRETCH = 12_000
"""Characters of a document that questions are made of."""
MOST_OF_A_KIND = 3
"""Questions of one kind about a document."""
_NEAREST = 6
_WORD = re.compile(r"\b[a-z]{2,}\b")


def make_text_questions(
    data: Path, counts: dict[str, int], *, characters: int = 30_000_000, seed: int = 0, held_out: Container[str] = ()
) -> list[SpanQuestion]:
    """About `counts[kind]` questions of each kind in `KINDS`, fewer where the text has fewer, from `characters` of
    text."""
    if not counts:
        return []
    pools: dict[str, list[SpanQuestion]] = defaultdict(list)
    texts = sample_texts(data, characters=characters, seed=seed, longest=LONGEST_STRETCH)
    counted = Counter(word for text in texts for word in _WORD.findall(text.text))
    words = {word for word, count in counted.items() if count > 2}
    for number, text in enumerate(texts):
        if text.title in held_out:
            continue
        random_ = random.Random(f"text-{seed}-{number}")
        for kind, written, made in _made(text, random_, words):
            if counts.get(kind, 0) > len(pools[kind]):
                kept = random_.sample(made, min(MOST_OF_A_KIND, len(made)))
                pools[kind] += _questions(kind, f"{kind}-{seed}-{number}", Text(text.title, written), kept)
    return [question for kind in KINDS for question in pools[kind][: counts.get(kind, 0)]]


def _made(text: Text, random_: random.Random, words: Set[str]) -> list[tuple[str, str, list[MadeQuestion]]]:
    """(kind, text in which the answers stand, questions)."""
    plain = text.text
    head, about_head = made_front_matter(random_)
    tables, about_tables = with_tables(plain, random_)
    return [
        ("abbreviations", plain, list(abbreviation_questions(plain, random_))),
        ("entries", plain, list(manual_entry_questions(plain, random_))),
        ("lists", plain, list(listed_questions(plain, random_))),
        ("addresses", plain, list(address_questions(plain, random_))),
        ("fields", plain, list(field_questions(plain, random_))),
        ("front_matter", f"{head}\n{plain[:4000]}", list(about_head)),
        ("real_tables", tables, about_tables),
        ("sentences", plain, list(sentence_questions(plain, text.title, random_, words.__contains__))),
    ]


def _questions(kind: str, id_: str, text: Text, made: Sequence[MadeQuestion]) -> list[SpanQuestion]:
    pieces = cut(text.text)
    words = {piece: set(text.text[slice(*piece)].lower().split()) for piece in pieces}
    questions = []
    for number, each in enumerate(made):
        answer = text.text[each.start : each.stop]
        home = next((piece for piece in pieces if piece[0] <= each.start and each.stop <= piece[1]), None)
        if home is None or not 0 < len(answer) <= LONGEST_ANSWER:
            continue
        asked = {word.strip("?,.") for word in each.question.lower().split()}
        others = [piece for piece in pieces if piece != home and answer not in text.text[slice(*piece)]]
        others.sort(key=lambda piece: -len(asked & words[piece]))
        spans = ((0, each.start - home[0], each.stop - home[0]),)
        wrong = tuple(text.text[slice(*piece)] for piece in others[:_NEAREST])
        passage = text.text[slice(*home)]
        questions.append(
            SpanQuestion(f"{id_}-{number}", kind, each.question, (passage,), spans, (answer,), text.title, wrong)
        )
    return questions
