"""Documents and questions as tokens: what the default model is trained on.

- A document is its raw tokens; a question knows the raw tokens of the document that answer it (its gold span).
- Where no answer stands in the passage word for word, gold is the stretch that shares most with question and answer, by
  idf.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from model.checkpoint.landmark_model import LandmarkModel
from research.train.data.corpus import Question, QuestionSet
from research.train.data.questions.pseudo_queries import MadeQuestion

LONGEST_ANSWER = 24
"""Tokens of an answer that are learned; longer ones are cut without an end."""
STRETCH = 40
"""Tokens of a passage that are compared when a question has no answer span."""
BATCH = 2000


@dataclass(frozen=True)
class TokenQuestion:
    """A question about `document`: gold raw tokens [start, stop) and the tokens to answer with."""

    source: str
    document: int
    ids: tuple[int, ...]
    start: int
    stop: int
    answer: tuple[int, ...]
    """Ends with the end token; empty answer = only that token: the passage does not say."""
    answerable: bool
    passage: tuple[int, int] = (0, 0)
    """Raw tokens of the passage that the question was asked about."""
    texts: tuple[str, ...] = ()
    """Acceptable answers as people wrote them."""
    exact: bool = False
    """Whether the gold span is the answer itself, not a stretch that probably holds it."""


@dataclass
class TokenDocuments:
    """Documents as raw tokens, and their questions."""

    ids: list[NDArray[np.uint16]]
    titles: list[str]
    questions: list[TokenQuestion]


def title_numbers(titles: Sequence[str]) -> list[int]:
    """A number for each document, the same for documents of the same title; untitled ones have their own."""
    names: dict[str, int] = {}
    return [names.setdefault(title, len(names)) if title else -1 - number for number, title in enumerate(titles)]


def encode_texts(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]
) -> list[tuple[NDArray[np.uint16], NDArray[np.int64]]]:
    """(raw tokens, character offsets [tokens, 2]) of every text; special tokens in them are plain text."""
    fast = tokenizer.backend_tokenizer
    fast.no_truncation()  # a checkpoint's file may ask for both
    fast.no_padding()
    fast.encode_special_tokens = True
    out = []
    for first in range(0, len(texts), BATCH):
        for encoding in fast.encode_batch(list(texts[first : first + BATCH]), add_special_tokens=False):
            out.append(
                (np.array(encoding.ids, dtype=np.uint16), np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2))
            )
    fast.encode_special_tokens = False
    return out


def document_frequency(
    token_lists: Iterable[Sequence[int] | NDArray[np.uint16]], vocab_size: int, tokens_per_block: int
) -> NDArray[np.float32]:
    """Inverse document frequency of every token, blocks counting as documents."""
    found, blocks = np.zeros(vocab_size), 0
    for ids in token_lists:
        for start in range(0, len(ids), tokens_per_block):
            found[np.unique(ids[start : start + tokens_per_block])] += 1
            blocks += 1
    return np.log((blocks - found + 0.5) / (found + 0.5) + 1).astype(np.float32)


def tokens_of_span(offsets: NDArray[np.int64], start: int, stop: int) -> tuple[int, int]:
    """Raw tokens [first, last) that cover characters [start, stop)."""
    first = int(np.searchsorted(offsets[:, 1], start, "right"))
    last = int(np.searchsorted(offsets[:, 0], stop, "left"))
    return first, max(last, first + 1)


def places_of(said: Sequence[int] | NDArray[np.integer], tokens_NL: NDArray[np.integer]) -> list[tuple[int, int]]:
    """(block, row) of every place where the tokens `said` begin and stand whole within a block."""
    if len(said) > tokens_NL.shape[1]:
        return []
    windows = np.lib.stride_tricks.sliding_window_view(tokens_NL, len(said), axis=1)
    blocks, rows = (windows[..., 0] == said[0]).nonzero()  # few places, then all of their tokens
    whole = (windows[blocks, rows] == said).all(-1)
    return list(zip(blocks[whole].tolist(), rows[whole].tolist(), strict=True))


def questions_of_text(
    model: LandmarkModel, ids: Sequence[int], make: Callable[[str], Iterable[MadeQuestion]], *, longest: int
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """(tokens of the question, first and behind the last token of its answer) of questions that `make` makes of the
    text; those of more than `longest` tokens or with longer answers than are learned are left out."""
    ends = np.array(model.token_text.ends(ids), dtype=np.int64)
    offsets = np.stack((np.concatenate(([0], ends[:-1])), ends), 1)
    for made in make(model.decode(ids)):
        start, stop = tokens_of_span(offsets, made.start, made.stop)
        asked = tuple(model.tokenize(made.question).ids)
        if stop - start <= LONGEST_ANSWER and len(asked) <= longest:
            yield asked, start, stop


def encode_questions(
    tokenizer: PreTrainedTokenizerBase, questions: QuestionSet, idf_V: NDArray[np.float32], *, longest_question: int
) -> TokenDocuments:
    """Tokenise a question set; questions longer than `longest_question` tokens are left out."""
    encoded = encode_texts(tokenizer, questions.texts)
    asked = encode_texts(tokenizer, [question.text for question in questions.questions])
    said = encode_texts(
        tokenizer, [" " + (question.answers[0] if question.answers else "") for question in questions.questions]
    )
    end = int(tokenizer.eos_token_id)
    result = TokenDocuments([ids for ids, _ in encoded], questions.titles, [])
    for question, (ids, _), (answer, _) in zip(questions.questions, asked, said, strict=True):
        document, offsets = encoded[question.document]
        if len(ids) > longest_question or not len(document):
            continue
        if question.spans:
            start, stop = tokens_of_span(offsets, *question.spans[0])
            answer = document[start:stop]
        else:
            start, stop = _likeliest(question, document, offsets, np.concatenate((ids, answer)), idf_V)
        tokens = tuple(int(token) for token in answer[:LONGEST_ANSWER]) if question.answers else ()
        tokens += (end,) if len(answer) <= LONGEST_ANSWER or not question.answers else ()
        result.questions.append(
            TokenQuestion(
                question.source,
                question.document,
                tuple(int(token) for token in ids),
                start,
                min(stop, start + LONGEST_ANSWER),
                tokens,
                bool(question.answers),
                tokens_of_span(offsets, *question.context),
                question.answers,
                bool(question.spans),
            )
        )
    return result


def _likeliest(
    question: Question,
    document: NDArray[np.uint16],
    offsets: NDArray[np.int64],
    wanted: NDArray[np.uint16],
    idf_V: NDArray[np.float32],
) -> tuple[int, int]:
    """The middle of the stretch of the passage that holds most of `wanted`, weighted by idf."""
    first, last = tokens_of_span(offsets, *question.context)
    passage = document[first:last]
    value = np.where(np.isin(passage, wanted), idf_V[passage], 0.0)
    repeated = np.zeros(len(passage), bool)  # a token counts less each time it comes again soon
    repeated[1:] = passage[1:] == passage[:-1]
    sums = np.convolve(np.where(repeated, 0, value), np.ones(min(STRETCH, len(passage))), "valid")
    middle = first + int(sums.argmax()) + min(STRETCH, len(passage)) // 2
    return max(first, middle - 4), min(last, middle + 4)
