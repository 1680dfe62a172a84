"""Ends a writer's text where a small model runs on: it asks and answers further questions, or repeats itself.

Text that may begin another question is held back until that is known; all other text passes at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator
from dataclasses import replace

from model.scoring.sentences import sentence_borders
from retrieval.types.answers import NOTHING_FOUND
from retrieval.types.writer import Cancelled, Finish, Writer, WriterRequest, WriterToken, Written
from retrieval.writers.prompt import LEAD_IN, OWN_NAMES
from storage.names import encodable

_SOURCES = r"(?:passages?|documents?|texts?|context|sources?|notes|excerpts?|information)"
_SAY = (
    r"(?:mention|say|state|contain|provide|specify|include|give|answer|address|tell|indicate|discuss|describe|explain|"
    r"have)"
)
_SAID = r"(?:mentioned|said|stated|specified|provided|given|answered|found|available|indicated|contained|described)"
_NOT = r"(?:not|n['’]t)"
_REFUSAL = re.compile(
    rf"\b{_SOURCES}\b[^.!?;]{{0,60}}?\b(?:do|does|did)(?: {_NOT}|{_NOT})\b[^.!?;]{{0,30}}?\b{_SAY}\b"
    rf"|\bnot (?:\w+ ){{0,2}}?{_SAID} (?:\w+ )?(?:in|by|from) (?:\w+ ){{0,3}}?{_SOURCES}\b"
    rf"|\bno (?:\w+ )?(?:answer|mention|information) (?:\w+ ){{0,2}}?(?:to|of|about|on|for|in|regarding)\b"
    rf"|\b(?:I|we) (?:can(?:not|['’]t| not)|could(?: not|n['’]t)) (?:find|answer|determine|tell)\b",
    re.IGNORECASE,
)


def refuses(text: str) -> bool:
    """Whether a text says nothing but that the documents do not answer (`is_refusal`)."""
    sentences = [text[start:end] for start, end in sentence_borders(text) if text[start:end].strip()]
    return bool(sentences) and all(is_refusal(sentence) for sentence in sentences)


def is_refusal(sentence: str) -> bool:
    """Whether a sentence says that the documents do not answer."""
    sentence = sentence.strip()
    return sentence.startswith(NOTHING_FOUND.rstrip(".")) or _REFUSAL.search(sentence) is not None


# How requests name their parts (`retrieval.writers.prompt`): a model that goes on writes the next one.
_QUESTION = "Question:"
_OTHER_PARTS = (_QUESTION, "Earlier question:", "Earlier answer:")
# The end of a sentence, an item or a row.
_UNIT = re.compile(r"(?:\s*\d{1,3}[.)]\s+)?[^\n.!?]*(?:[.!?](?!\s|$)[^\n.!?]*)*(?:[.!?]+(?=\s)|\n)")
_MARKS = re.compile(r"^\W*(?:\d{1,3}[.):\]]+\W*)?|\W+$")
_AT_ONCE_WORDS, _EVER_WORDS, _EVER_TIMES = 6, 3, 3
_EMPTY_ITEMS = re.compile(r"(?:^|\n)(?:\s*\d{1,3}[.)]\s*\n){2,}\s*$")
_LOOP = re.compile(r"(.{1,40}?)\1{3,}$", re.DOTALL)
_LOOP_CHARACTERS = 100


class OutputFilter:
    """Takes text piece by piece. `ended`: why the rest is not wanted; None while it is."""

    def __init__(self) -> None:
        self.ended: Finish | None = None
        self._given, self._held = "", ""
        self._checked = 0  # characters of what was given whose sentences were counted
        self._units: Counter[str] = Counter()
        self._last = ""
        self._announced = 0
        """Lead-ins without an answer behind them."""

    def add(self, piece: str) -> str:
        """What is final now; empty once it has ended."""
        if self.ended:
            return ""
        self._held += encodable(piece)
        return self._release(*self._cut())

    def flush(self) -> str:
        """What was held back at the end of the text."""
        held, self._held = self._held, ""
        if not self._given.strip():  # no more of a name is to come
            held = (_without_heads(f"{held}\n") or "").rstrip("\n")
        return "" if self.ended else held

    def _cut(self) -> tuple[str, str]:
        """(what passes, what waits) of what is held."""
        text = self._held
        if not self._given.strip():
            begun = _without_heads(text)
            if begun is None:
                return "", text
            text = begun
        lines = text.split("\n")
        fresh = self._given.endswith("\n")
        for at, line in enumerate(lines):
            if at == 0 and not fresh:
                continue
            behind = sum(len(before) + 1 for before in lines[:at])
            if line.startswith(_OTHER_PARTS) and (self._given + text[:behind]).strip():
                self.ended = "stop"
                return text[:behind].rstrip(), ""
            last = at == len(lines) - 1
            if last and any(part.startswith(line) for part in _OTHER_PARTS):
                return text[:behind], line
        return text, ""

    def _release(self, passed: str, waiting: str) -> str:
        self._given += passed
        self._held = waiting
        if passed and (self._repeats() or self._loops()):
            self.ended = self.ended or "repeated"
        return passed

    def _repeats(self) -> bool:
        """Whether a sentence was said twice running, or a third time."""
        for unit in _UNIT.finditer(self._given, self._checked):
            self._checked = unit.end()
            if _EMPTY_ITEMS.search(self._given[: unit.end()]):
                return True
            words = _normalised(unit[0])
            count = len(words.split())
            if count < _EVER_WORDS and LEAD_IN.match(_MARKS.sub("", unit[0].casefold())):  # "The answer is: 7."
                self._announced += 1
                if self._announced >= _EVER_TIMES:
                    return True
            if not words:
                continue
            self._units[words] += 1
            at_once = words == self._last and count >= _AT_ONCE_WORDS
            self._last = words
            if at_once or (count >= _EVER_WORDS and self._units[words] >= _EVER_TIMES):
                return True
        return False

    def _loops(self) -> bool:
        """Whether the text ends in something that came over and over, without the end of a sentence."""
        found = _LOOP.search(self._given[-3 * _LOOP_CHARACTERS :])
        return found is not None and len(found[0]) >= _LOOP_CHARACTERS and any(map(str.isalnum, found[1]))


def _without_heads(text: str) -> str | None:
    """The beginning of an answer without its question repeated and without names; None while it may be one of these."""
    text = text.lstrip()
    for head in OWN_NAMES:
        if text and head.startswith(text):
            return None
        if text.startswith(head):
            return _without_heads(text.removeprefix(head))
    if text.startswith(_QUESTION):
        _, ended, behind = text.partition("\n")
        return _without_heads(behind) if ended else None
    return None if _QUESTION.startswith(text) else text


def _normalised(unit: str) -> str:
    """What a sentence says, to be compared: without marks, and without a name before it."""
    words = _MARKS.sub("", unit.casefold())
    return words[lead.end() :] if (lead := LEAD_IN.match(words)) else words


def without_repetition(text: str) -> str:
    """`text` without repeated sentences, where a writer had to be stopped, and without a loop at its end."""
    text = _EMPTY_ITEMS.sub("", text + "\n").rstrip()
    if loop := _LOOP.search(text):
        text = text[: loop.start()] + (loop[1] if " " in loop[1] else "")
    said: set[str] = set()
    kept = []
    at = 0
    for unit in _UNIT.finditer(text + "\n"):
        words = _normalised(unit[0])
        if not words or words not in said:
            kept.append(unit[0])
        said.add(words)
        at = unit.end()
    return ("".join(kept) + (text + "\n")[at:]).strip()


def filtered(writer: Writer, request: WriterRequest, cancelled: Cancelled) -> Generator[WriterToken, None, Written]:
    """As `Writer.write`, through an output filter."""
    output = OutputFilter()
    steps = writer.write(request, lambda: output.ended is not None or cancelled())
    try:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                written: Written = end.value
                break
            if not output.ended:
                yield replace(step, text=output.add(step.text))
    finally:
        steps.close()
    if rest := output.flush():
        yield WriterToken(rest)
    return replace(written, finish=output.ended) if output.ended else written
