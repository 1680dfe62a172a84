"""Documents and questions for the span head: those whose answers are known word for word."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.checkpoint.landmark_model import LandmarkModel
from model.training.data.batches.span_batches import SpanShape
from model.training.data.examples import LONGEST_ANSWER, TokenDocuments, TokenQuestion, questions_of_text
from model.training.data.questions.fact_insertion import insert_facts, sentence_ends, tokenize_fact
from model.training.data.questions.facts import Facts
from model.training.data.questions.pseudo_queries import definitions


def build_span_dataset(
    model: LandmarkModel,
    data: TokenDocuments,
    held_out: Sequence[TokenQuestion],
    texts: Sequence[NDArray[np.uint16]],
    shape: SpanShape,
) -> tuple[dict[int, NDArray[Any]], list[TokenQuestion]]:
    """Documents by number and the questions about them whose answers are known word for word: those with most
    questions for their length, as many as shall be stored, and made-up facts inserted into texts (negative numbers).
    Sentences that say what something is become questions, too."""
    size = model.config.tokens_per_block
    end = int(model.tokenizer.eos_token_id)
    exact = [
        question
        for question in (*data.questions, *held_out)
        if (question.exact and question.answer[-1] == end) or not question.answerable
    ]
    count = Counter(question.document for question in exact)
    length = {number: -(-len(data.ids[number]) // size) for number in count}
    densest = sorted(count, key=lambda number: (-count[number] / length[number], number))
    room = np.cumsum([length[number] for number in densest]) <= shape.stored_blocks
    documents = {number: data.ids[number] for number, fits in zip(densest, room, strict=True) if bool(fits)}
    questions = [question for question in exact if question.document in documents]
    random_ = random.Random(0)
    facts, ends = Facts(random_), sentence_ends(model.tokenizer)
    for number in range(-shape.facts, 0):
        text, wanted = random_.choice(texts), shape.fact_blocks * size
        start = random_.randrange(max(1, len(text) - wanted))
        drawn = facts.draw()
        fact, distractor = (tokenize_fact(model.tokenizer, each) for each in (drawn, facts.distractor(drawn)))
        around = text[start : start + wanted - len(fact.ids) - len(distractor.ids)].astype(np.int64)
        documents[number], (at, _) = insert_facts(around, (fact, distractor), ends, random_)
        value = slice(at + fact.value.start, at + fact.value.stop)
        answer = (*fact.ids[fact.value], end)
        passage = (0, len(documents[number]))
        questions.append(
            TokenQuestion("fact", number, fact.question, value.start, value.stop, answer, True, passage, exact=True)
        )
    for number, ids in documents.items():
        questions += itertools.islice(_definitions(model, number, ids, random_), shape.definitions)
    # Read in one block, an end token behind them, so that no landmark stands in the prompt.
    return documents, [each for each in questions if len(model.prompt_of(each.ids).ids) + 1 < model.config.block_size]


def _definitions(
    model: LandmarkModel, number: int, ids: NDArray[Any], random_: random.Random
) -> Iterator[TokenQuestion]:
    """Questions for what something is, answered by the first words that say so."""
    raw = ids.tolist()
    made = questions_of_text(model, raw, lambda text: definitions(text, random_), longest=LONGEST_ANSWER)
    for asked, start, stop in made:
        answer = (*raw[start:stop], int(model.tokenizer.eos_token_id))
        near = (max(0, start - model.config.tokens_per_block), min(len(raw), stop + model.config.tokens_per_block))
        yield TokenQuestion("definition", number, asked, start, stop, answer, True, near, exact=True)


def same_titles(
    questions: Sequence[TokenQuestion], titles: Sequence[str], held_out: Sequence[TokenQuestion]
) -> list[int]:
    """Numbers of the questions about held-out documents, and about others of the same title: question sets share
    articles."""
    documents = {question.document for question in held_out}
    held = {titles[document] for document in documents} - {""}
    return [
        number
        for number, question in enumerate(questions)
        if question.document >= 0 and (question.document in documents or titles[question.document] in held)
    ]
