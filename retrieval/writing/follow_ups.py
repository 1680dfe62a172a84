"""A follow-up as a question that stands alone, reworded by the writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from retrieval.query.follow_up import with_conversation
from retrieval.writers.protocol import Turn, Writer, WriterOptions, WriterRequest
from retrieval.writing.checking.facts import content_words
from retrieval.writing.instructions import REWRITE

TURNS = 3
_ANSWER_CHARACTERS = 600
_LONGEST = 400
_MAX_TOKENS = 96


def standalone_question(
    writer: Writer, question: str, earlier: Sequence[Turn], cancelled: Callable[[], bool] = lambda: False
) -> str:
    """`earlier`: the conversation, oldest first. What is no single question, or another one, is not used: then the
    one before is put in front, as for the model that quotes. Raises as `Writer.write`."""
    if not earlier:
        return question
    turns = tuple(Turn(turn.question, turn.answer[:_ANSWER_CHARACTERS]) for turn in earlier[-TURNS:])
    options = WriterOptions(max_tokens=_MAX_TOKENS)
    request = WriterRequest(REWRITE, question, conversation=turns, options=options)
    written = "".join(token.text for token in writer.write(request, cancelled)).strip().strip('"“”')
    first = written.splitlines()[0].strip() if written else ""
    first = first.removeprefix("Question:").strip()
    if not first or len(first) > _LONGEST or not _keeps_to(first, question, turns):
        return with_conversation(question, [turn.question for turn in earlier])
    return first


def _keeps_to(rewritten: str, question: str, turns: Sequence[Turn]) -> bool:
    """Whether a rewriting says at least half of the question's words, and hardly any that were never said. Small models
    answer the question instead, or repeat another."""
    words, asked = set(content_words(rewritten)), set(content_words(question))
    said = asked.union(*(content_words(f"{turn.question} {turn.answer}") for turn in turns))
    return 2 * len(words & asked) >= len(asked) and 3 * len(words - said) <= len(words)
