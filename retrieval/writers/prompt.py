"""A request as a prompt: one system message, one user message, the same for every writer.

The user message is, in this order, what may be kept and what may not: the passages, each a short label of its own and a
body that never changes, then the conversation and the question.

Text of documents is material. What would read as a citation or as a model's control token is taken out of it.
"""

from __future__ import annotations

import re

from retrieval.writers.protocol import WriterPassage, WriterRequest

# Marks of references in papers would pass for numbers of passages.
_NUMBER_IN_BRACKETS = re.compile(r"\[(\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*)\]")
# How chat templates of the known families mark turns: <|im_start|>, <|eot_id|>, <start_of_turn>, [INST], <<SYS>>, </s>.
_CONTROL = re.compile(
    r"<\|[^|<>\n]{1,40}\|>|</?(?:start|end)_of_(?:turn|image)>|\[/?[A-Z_]{3,20}\]|<</?SYS>>|</?s>|</?think>|<(?:bos|eos)>",
)


def system_text(request: WriterRequest) -> str:
    """Content of the system message."""
    return request.instruction.strip()


def passage_label(passage: WriterPassage) -> str:
    """Stands before the body and names the number that an answer cites."""
    return f"[{passage.number}] "


def passage_body(passage: WriterPassage) -> str:
    """The same for the same segment, whatever its number and the question."""
    pages = passage.pages
    span = "" if not pages else f", page {pages[0]}" if len(pages) == 1 else f", pages {pages[0]}-{pages[-1]}"
    return f"{without_marks(passage.title)}{span}\n{without_marks(passage.text.strip())}\n\n"


def closing_text(request: WriterRequest) -> str:
    """The end of the user message: notes, what was said before, and the question."""
    turns = [
        f"Earlier question: {without_controls(turn.question)}\nEarlier answer: {without_controls(turn.answer)}\n\n"
        for turn in request.conversation
    ]
    notes = "".join(f"{without_controls(note.strip())}\n\n" for note in request.notes)
    return f"{notes}{''.join(turns)}Question: {without_controls(request.question.strip())}"


def user_text(request: WriterRequest) -> str:
    """Content of the user message."""
    passages = (passage_label(passage) + passage_body(passage) for passage in request.passages)
    return "".join(passages) + closing_text(request)


def messages(request: WriterRequest) -> list[dict[str, str]]:
    """For a chat template, or a server that applies one."""
    return [
        {"role": "system", "content": system_text(request)},
        {"role": "user", "content": user_text(request)},
    ]


def without_controls(text: str) -> str:
    """`text` without what a tokenizer would take for the end of a turn."""
    return _CONTROL.sub(" ", text)


def without_marks(text: str) -> str:
    """Text of a document as a writer may see it: `[12]` becomes `(12)`, control tokens go."""
    return _NUMBER_IN_BRACKETS.sub(r"(\1)", without_controls(text))
