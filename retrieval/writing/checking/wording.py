"""What becomes of a writer's words once they were looked up: they stay, get the citations that the check found, or give
way to what the model that searches would have quoted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from retrieval.types.defaults import Outcome
from retrieval.types.outcomes import NOTHING_FOUND
from retrieval.types.passages import AnswerToken, Passage, QuotedSentence
from retrieval.types.written import Citation, Claim
from retrieval.writing.checking.quoted_beside import Beside


@dataclass(frozen=True)
class Wording:
    """The text of an answer with all that refers to places in it. `set_aside`: what the writer wrote, where the text is
    not its own."""

    text: str
    tokens: tuple[AnswerToken, ...]
    citations: tuple[Citation, ...]
    claims: tuple[Claim, ...]
    passages: tuple[Passage, ...]
    outcome: Outcome = "found"
    set_aside: str = ""


def in_its_place(wording: Wording, beside: Beside) -> Wording:
    """The quotation instead of the writer's words, or that there is none."""
    if beside.quotation is None:
        nothing = AnswerToken(NOTHING_FOUND, None, 0.0, ())
        return Wording(NOTHING_FOUND, (nothing,), (), (), wording.passages, "not_found", wording.text)
    sentence = beside.quotation.passage
    passages = list(wording.passages)
    place = next((at for at, one in enumerate(passages) if one.holds(sentence)), len(passages))
    if place == len(passages):
        passages.append(sentence)
    quoted = sentence.text.rstrip()
    text = f"{quoted} [{place + 1}]"
    citation = Citation(place + 1, place, len(quoted) + 1, len(text))
    claim = Claim(" ".join(quoted.split()), "supported", place, sentence.text, 1.0, 0, len(text))
    tokens = _tokens_of(beside.quotation, f" [{place + 1}]")
    return Wording(text, tokens, (citation,), (claim,), tuple(passages), beside.outcome, wording.text)


def cited_by_check(wording: Wording, given: Sequence[Passage]) -> Wording:
    """With the number of the passage behind each sentence that one supports. `given`: what the writer was
    given, in the order of its numbers; what else a sentence was found in has the number of its place in the answer."""
    text, added = wording.text, 0
    passages, citations, claims = list(wording.passages), [], []
    for claim in sorted(wording.claims, key=lambda one: one.start):
        moved = _moved(claim, added)
        if claim.passage is not None and claim.verdict == "supported":
            number, place = _number_of(wording.passages[claim.passage], claim.passage, given, passages)
            at = _behind_words(text, moved.start, moved.end)
            mark = f" [{number}]"
            text = text[:at] + mark + text[at:]
            citations.append(Citation(number, place, at + 1, at + len(mark)))
            added += len(mark)
            moved = replace(moved, end=moved.end + len(mark))
        claims.append(moved)
    return replace(wording, text=text, citations=tuple(citations), claims=tuple(claims), passages=tuple(passages))


def with_cited_passages_only(wording: Wording) -> Wording:
    """Without the passages that neither a number nor a sentence leads to."""
    used = {one.passage for one in wording.citations} | {one.passage for one in wording.claims}
    kept = [place for place in range(len(wording.passages)) if place in used]
    place_of = {place: at for at, place in enumerate(kept)}
    return replace(
        wording,
        passages=tuple(wording.passages[place] for place in kept),
        citations=tuple(replace(one, passage=place_of[one.passage]) for one in wording.citations),
        claims=tuple(
            one if one.passage is None else replace(one, passage=place_of[one.passage]) for one in wording.claims
        ),
    )


def _number_of(sentence: Passage, place: int, given: Sequence[Passage], passages: list[Passage]) -> tuple[int, int]:
    """(number, place among `passages`) as which `sentence`, the passage at `place`, is cited. May add to `passages`."""
    at = next((at for at, one in enumerate(given) if one.holds(sentence)), None)
    if at is None:
        return place + 1, place
    for other, passage in enumerate(passages):
        if (passage.document_id, passage.start_index) == (given[at].document_id, given[at].start_index):
            return at + 1, other
    passages.append(given[at])
    return at + 1, len(passages) - 1


def _moved(claim: Claim, by: int) -> Claim:
    unfounded = tuple((start + by, end + by) for start, end in claim.unfounded)
    return replace(claim, start=claim.start + by, end=claim.end + by, unfounded=unfounded)


def _behind_words(text: str, start: int, end: int) -> int:
    """Before the full stop, and before the last border of a table's row."""
    return start + len(text[start:end].rstrip(" \n.!?…|"))


def _tokens_of(quotation: QuotedSentence, behind: str) -> tuple[AnswerToken, ...]:
    """The sentence, its answer span apart, as tokens of which no attention is known."""
    before, span, after = quotation.parts
    parts: Sequence[tuple[str, bool]] = ((before, False), (span, True), (after.rstrip() + behind, False))
    return tuple(AnswerToken(part, None, 0.0, (), pointed=pointed) for part, pointed in parts if part)
