"""What a question returns: passages, answers and the attention behind them. Plain values, JSON-able through `to_dict`.

- Pages count from 1; boxes are fractions 0..1 of the displayed page, origin top left.
- Character positions index the document's extracted text; `end` is exclusive.
- "Gate mass" is attention: the landmark probability of a block, between 0 and 1 for each query and head.

Defaults of a question, and the words for outcomes and evidence, are here only: the facade, the command line, HTTP, MCP,
exports, chat clients and the page (`/ui/words.js`) take them from here (tests/app/test_defaults.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

from retrieval.types.serialisation import Record

Outcome = Literal["found", "perhaps", "not_found"]
"""Of a question: an answer, a guess (the best candidates, to be shown as such), or nothing but the nearest passages."""

DecidedBy = Literal["attention", "reader", "search", "rows", "writer"]
"""What chose the words of an answer: the attention of the model that wrote it, features of sentences with a reader's
probability among them or without one (search), the rows of a table that it was computed from, or a writer."""

Space = Literal["memory", "candidates"]
"""What attention chose from: all that is in scope, or the candidates of the search."""

DEFAULT_K = 8
"""Blocks that may be read at a time; passages of a search."""
DEFAULT_QUOTE: bool | None = None
"""Word for word from the documents (True), in the model's own words (False), or as suits the model (None)."""
DEFAULT_MAX_TOKENS: int | None = None
"""As suits the writer or the model."""
QUOTED_TOKENS = 128
"""Longest answer of the model that searches, in its tokens."""
WRITTEN_TOKENS = 512
"""Longest answer of a writer, in its tokens."""
DEFAULT_POSITIONS: Final = "library"
"""The positions of the blocks that attention reads; see `model.attention.positions`."""
DEFAULT_VOTERS: Final = "group"
"""The granularity of the selection: who chooses blocks together; see `model.attention.selection.SelectionPolicy`."""


def longest_answer(max_tokens: int | None, *, written: bool) -> int:
    """`max_tokens` where the caller does not say."""
    if max_tokens is not None:
        return max_tokens
    return WRITTEN_TOKENS if written else QUOTED_TOKENS


def place_of(pages: Sequence[int], labels: Sequence[str], total: int = 0) -> str:
    """ "page iv (6 of 40)", "pages 3–4", "slide 2", "sheet Budget"; "" where a file has one part only. `pages` count
    from 1; `total`: pages of the document, 0 where it is not known.

    Labels are printed page numbers, or for files in other parts what the part is, in several words.
    """
    names = [label or str(page) for page, label in zip(pages, labels, strict=True)] if any(labels) else []
    if not labels:
        names = [str(page) for page in pages]
    names = list(dict.fromkeys(names))
    if not names:
        return ""
    first, last = names[0], names[-1]
    if " " in first or " " in last:
        return first if first == last else f"{first} – {last}"
    named = f"page {first}" if first == last else f"pages {first}–{last}"
    if not labels or names == list(dict.fromkeys(map(str, pages))):
        return named
    counted = str(pages[0]) if pages[0] == pages[-1] else f"{pages[0]}–{pages[-1]}"
    return f"{named} ({counted} of {total})" if total else f"{named} ({counted})"


Verdict = Literal["supported", "partly", "not_found"]


@dataclass(frozen=True)
class WriterUse(Record):
    """Who wrote. `kind`: "local" or "server". `stored_share`: share of the passages' tokens whose keys and values were
    stored; `repair`: share of these that was computed again; None where nothing is stored. `leaves_machine`: whether
    passages were sent to another machine."""

    name: str
    kind: str
    stored_share: float | None = None
    repair: float | None = None
    leaves_machine: bool = False


@dataclass(frozen=True)
class Citation(Record):
    """A number in the answer: characters `start` to `end` (exclusive) of its text. `passage`: index in the answer's
    passages."""

    number: int
    passage: int
    start: int
    end: int


@dataclass(frozen=True)
class Claim(Record):
    """One sentence of the answer, looked up in the documents as a question of its own.

    `sentence` supports it best; it stands in the answer's passage of index `passage`. Both are empty (None) for
    `not_found`. `score`: 0..1, how much of the claim the sentence says. `start`, `end`: the claim's characters in the
    answer's text. `unfounded`: (start, end) of figures and names in it that stand in no passage that it cites.
    """

    text: str
    verdict: Verdict
    passage: int | None
    sentence: str
    score: float
    start: int = 0
    end: int = 0
    unfounded: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Progress(Record):
    """How far a task over whole documents is: `done` of `total` parts were read; `note` says what is being done."""

    done: int
    total: int
    note: str


NOTHING_FOUND: Final = "No answer was found in the documents."
"""It never says that the documents hold no answer: the nearest passages may."""

OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "found": ("", ""),
    "perhaps": ("Perhaps.", "This may not be the answer: check it on its page."),
    "not_found": (NOTHING_FOUND, "No passage answers the question clearly."),
}
"""The name of each outcome, and what it means."""

SET_ASIDE: Final = "The documents support nothing of what {writer} wrote."
"""For a writer's words that are replaced by the search's quotation."""

QUOTED_INSTEAD: Final = "So a sentence is quoted."

WHO_CHOSE: dict[DecidedBy, str] = {
    "attention": "Attention chose these passages among the stored blocks, and the model wrote the answer from them.",
    "reader": "Search found these passages, and the sentence was chosen with a reader. Attention decided nothing.",
    "search": "Search found these passages, and the sentence was chosen without a reader. Attention decided nothing.",
    "rows": "Computed from the rows of one table, which are shown. No model chose anything.",
    "writer": "",
}
"""Who chose the words of an answer. What a writer was given is said with its answer."""

WRITER_SET_UP: Final = (
    'ollama run qwen3:4b-instruct ""',
    "CAIRN_WRITER=http://localhost:11434/v1#qwen3:4b-instruct cairn serve",
)
"""Two lines that set a writer up (docs/writers.md)."""

NEEDS_WRITER: Final = "This needs a writer. Two lines set one up (docs/writers.md):\n  " + "\n  ".join(WRITER_SET_UP)

FOR_WRITERS: Final = "Summaries, lists, counts and comparisons of whole documents need a writer. Two lines set one up:"
ONE_SENTENCE: Final = f"This is one sentence. {FOR_WRITERS}"
_SURVEY = re.compile(
    r"\b(?:summari[sz]e|summary|overview|outline|compare|comparison|list (?:all|every|each)|"
    r"main (?:points|topics|ideas|findings)|how many (?:rows|records)|(?:sum|average|mean) of (?:all|the)|"
    r"what is (?:this|the) (?:document|paper|report|file|chapter) about)\b",
    re.IGNORECASE,
)


def asks_for_a_survey(question: str) -> bool:
    """Whether no single sentence can be the answer."""
    return _SURVEY.search(question) is not None


def understood_note(answer: Answer) -> str:
    """How a question was understood, if not as it was typed: with what a follow-up refers to."""
    asked = str(answer.settings.get("asked", ""))
    return f"Understood as: {asked}" if asked and asked.strip() != answer.question.strip() else ""


def survey_note(answer: Answer) -> str:
    """The note on one sentence where a whole document was meant; else empty."""
    note = "\n  ".join((ONE_SENTENCE if answer.found else FOR_WRITERS, *WRITER_SET_UP))
    return note if answer.settings.get("survey") and answer.text and answer.writer is None else ""


EARLIER_VERSION: Final = "An earlier version says otherwise"
"""Over `Answer.earlier_version`."""

FROM_ITSELF: Final = (
    "The model wrote this from itself: leaving out the passage that it read most changes the answer no more than "
    "leaving out any other. So no passage is shown."
)
"""For an answer that does not depend on what attention read."""


def who_chose(answer: Answer) -> str:
    """The line for the passages of an answer; empty where there is none, and for a writer's."""
    if answer.decided_by == "attention" and not answer.shows_attention:
        return FROM_ITSELF
    return WHO_CHOSE[answer.decided_by] if answer.found else ""


def set_aside_note(answer: Answer) -> str:
    """The note on an answer that is not in its writer's words; else empty."""
    if not answer.set_aside or answer.writer is None:
        return ""
    note = SET_ASIDE.format(writer=answer.writer.name)
    return f"{note} {QUOTED_INSTEAD}" if answer.found else note


def outcome_note(answer: Answer) -> str:
    """The note on an answer that is a guess, or one sentence where more was asked for; else empty."""
    notes = [*OUTCOMES["perhaps"]] if answer.outcome == "perhaps" else []
    return " ".join(filter(None, [*notes, survey_note(answer)]))


ANSWER_FORMAT = "cairn-answer/2"
_PAGES_FROM_0 = "cairn-answer/1"


@dataclass(frozen=True)
class PageBox(Record):
    """One rectangle on one page."""

    page: int
    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True)
class PassageBlock(Record):
    """One stored block inside a passage: its characters, its boxes, and its score (0..1, see `Passage`)."""

    block_id: int
    score: float
    start: int
    end: int
    boxes: tuple[PageBox, ...] = ()


@dataclass(frozen=True)
class Passage(Record):
    """Readable text around one or more neighbouring blocks of one document.

    `score` (0..1): in an answer that attention decided, the attention that its blocks received (the sum of their gate
    mass); in one that a reader decided (`Answer.probability` is set), how likely its best sentence answers. Else that
    of the search: the gate mass that the question gives them, or for a model that ranks by tokens the best
    late-interaction score of its blocks (0 for scores below). `text` is the document's text from `start_index` to
    `end_index`, cut at sentence borders where there are any; the blocks may reach a little beyond it. `place` names
    pages, slides or cells as people do ("page 12", "slide 4", "sheet Budget, B17:D17"); "" where a file has one part
    only.
    """

    document_id: str
    source: str
    title: str
    pages: tuple[int, ...]
    page_labels: tuple[str, ...]
    start_index: int
    end_index: int
    text: str
    score: float
    block_ids: tuple[int, ...]
    blocks: tuple[PassageBlock, ...]
    total_pages: int = 0
    place: str = ""

    def __post_init__(self) -> None:
        if not self.place:
            object.__setattr__(self, "place", place_of(self.pages, self.page_labels, self.total_pages))

    @property
    def boxes(self) -> tuple[PageBox, ...]:
        return tuple(box for block in self.blocks for box in block.boxes)

    def holds(self, sentence: Passage) -> bool:
        """Whether the middle of `sentence` stands in it."""
        middle = (sentence.start_index + sentence.end_index) // 2
        return self.document_id == sentence.document_id and self.start_index <= middle < self.end_index


def _next_pages(passage: Passage) -> Passage:
    """The passage with 1 added to all its pages."""
    blocks = (
        replace(block, boxes=tuple(replace(box, page=box.page + 1) for box in block.boxes)) for block in passage.blocks
    )
    return replace(passage, pages=tuple(page + 1 for page in passage.pages), blocks=tuple(blocks), place="")


@dataclass(frozen=True)
class QuotedSentence(Record):
    """A sentence that may answer: `passage` holds it alone. Its score is the probability that it answers, or without a
    reader its late-interaction score.

    `pointed`: (start, end) of the predicted answer span in it, as characters of the document's text.
    """

    passage: Passage
    pointed: tuple[int, int]

    @property
    def parts(self) -> tuple[str, str, str]:
        """The text before the answer span, the span, and the text after it."""
        text = self.passage.text
        start, end = (min(max(0, at - self.passage.start_index), len(text)) for at in self.pointed)
        return text[:start], text[start:end], text[end:]

    @property
    def short(self) -> str:
        """The answer span; empty where no reader marked one."""
        return self.parts[1].strip(" ,;:")


@dataclass(frozen=True)
class AnswerToken(Record):
    """One token of an answer, or a word of a quotation; where it was generated, the stored blocks that it attended to.

    `blocks`: (block id, gate mass averaged over memory layers and heads), strongest first. `memory_share`: their sum,
    the part of this token's attention that went to documents. `logprob`: None where a sentence is quoted as it stands,
    or a writer does not tell.
    `quoted_from`: (document id, start, end) of the characters that this token was copied from, in quote mode.
    `pointed`: whether it belongs to the answer span, the words of a quoted sentence that a reader marked.
    """

    text: str
    logprob: float | None
    memory_share: float
    blocks: tuple[tuple[int, float], ...]
    quoted_from: tuple[str, int, int] | None = None
    token_id: int = -1
    pointed: bool = False


@dataclass(frozen=True)
class Timings(Record):
    """Wall-clock seconds since the question arrived: search done, first token out, all done."""

    search_seconds: float
    first_token_seconds: float
    seconds: float


@dataclass(frozen=True)
class EvidenceCheck(Record):
    """Whether an answer depends on what attention read: its log-probability was taken again without the block read
    most, and without some others that were read, one at a time.

    `effect`, `others`: change in nats over the whole answer, negative where it became less likely. `decided`: whether
    the block read most did more than any of the others, which are the noise.
    """

    block_id: int
    effect: float
    others: tuple[float, ...]
    decided: bool


@dataclass(frozen=True)
class Answer(Record):
    """A finished answer with its evidence, as it is stored, reopened and exported.

    `decided_by`: who chose its words; `check`: where attention did, whether what it read mattered (None: not measured).
    `passages`: where attention did, what it read, by gate mass over the whole answer; where a reader did, by how likely
    they answer, so that of the quoted sentence is first; else by search, after that of a quoted sentence.
    `near_misses`: the next best candidates that were not read, by search score. `quotation`: where a whole sentence is
    quoted, that sentence with its place; `other_sentences`: those that came next, best first; `earlier_version`: what
    an earlier version of its document says instead. `heat`, only where attention decided: the attention map, block id
    -> [memory layer][head] mean gate mass over the answer's tokens; its rows follow `layers` (absolute numbers).
    `outcome`: whether it is an answer, a guess, or nothing but the nearest passages, in `near_misses`; `found` is
    False for the last. `confidence`: 0..1, of the search. `probability`: where it was chosen with a reader, how
    likely it answers; None for others and in older answers. `memory_share`: mean over tokens.

    `writer`: who worded it, None where the model that searches did. Then `passages` are what the writer was given, the
    best first, with the writer's attention as score where it tells, else that of the search; and there is no `heat`.
    `problem`: what kept it from being finished. `quotation`: what would have been quoted, beside it; `set_aside`: what
    the writer wrote, where that stands in its place because the documents support none of it.
    """

    id: str
    conversation_id: str | None
    question: str
    text: str
    found: bool
    confidence: float
    quote: bool
    tokens: tuple[AnswerToken, ...]
    passages: tuple[Passage, ...]
    near_misses: tuple[Passage, ...]
    memory_share: float
    layers: tuple[int, ...]
    heads: int
    heat: Mapping[int, tuple[tuple[float, ...], ...]]
    timings: Timings
    model: str
    memory: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    created_at: str = ""
    other_sentences: tuple[QuotedSentence, ...] = ()
    quotation: QuotedSentence | None = None
    writer: WriterUse | None = None
    citations: tuple[Citation, ...] = ()
    claims: tuple[Claim, ...] = ()
    problem: str = ""
    outcome: Outcome = "found"
    set_aside: str = ""
    decided_by: DecidedBy = "search"
    check: EvidenceCheck | None = None
    probability: float | None = None
    earlier_version: QuotedSentence | None = None

    def to_dict(self, *names: str) -> dict[str, Any]:
        """Whole, with `format`, which names the version of what is stored and exported."""
        return super().to_dict(*names) if names else {"format": ANSWER_FORMAT, **super().to_dict()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`, also of what earlier releases stored, without `format`, and exported."""
        outcome = "found" if plain.get("found", True) else "not_found"
        answer = super().from_dict({"outcome": outcome, "decided_by": _decided_by(plain), **plain})
        return answer._pages_from_1() if plain.get("format", _PAGES_FROM_0) == _PAGES_FROM_0 else answer

    def _pages_from_1(self) -> Self:
        """This answer with its pages counted from 1, after they were counted from 0."""
        others = (replace(other, passage=_next_pages(other.passage)) for other in self.other_sentences)
        return replace(
            self,
            passages=tuple(map(_next_pages, self.passages)),
            near_misses=tuple(map(_next_pages, self.near_misses)),
            other_sentences=tuple(others),
        )

    @property
    def shows_attention(self) -> bool:
        """Whether attention chose the words, and what it read made a difference."""
        return self.decided_by == "attention" and (self.check is None or self.check.decided)

    @property
    def beside(self) -> QuotedSentence | None:
        """The quotation, where a writer worded the answer and rests no sentence on any of it."""
        if self.writer is None or self.quotation is None:
            return None
        quoted = self.quotation.passage.text
        return None if any(claim.sentence and claim.sentence in quoted for claim in self.claims) else self.quotation

    @property
    def short(self) -> str:
        """The answer span within the quoted sentence; empty where no reader marked one."""
        return "".join(token.text for token in self.tokens if token.pointed).strip(" ,;:")


def _decided_by(plain: Mapping[str, Any]) -> DecidedBy:
    """Of an answer stored before this was: earlier releases replayed a quoted sentence and stored its attention."""
    if plain.get("writer") is not None:
        return "writer"
    if plain.get("settings", {}).get("second_look"):
        return "reader"
    return "search" if plain.get("quotation") is not None or not plain.get("heat") else "attention"


@dataclass(frozen=True)
class AnswerHead(Record):
    """One line of the answer history."""

    id: str
    question: str
    text: str
    created_at: str
    conversation_id: str | None


@dataclass(frozen=True)
class BlockEffect(Record):
    """Causal check of one block: log-probability of the stored answer with all blocks it read, and without this one.

    `delta` = logprob_without - logprob_with, in nats over the whole answer; negative when the block made the answer
    likelier. Not an attention weight.
    """

    block_id: int
    logprob_with: float
    logprob_without: float
    delta: float


@dataclass(frozen=True)
class PassageEffect(Record):
    """What would be quoted if one passage of an answer were not in the library: the choice, made again without it.

    `block_ids`: what was left out. `found`: whether anything is quoted then; `same`: whether it is the same sentence;
    `quotation`: that sentence. `probability_with`, `probability_without`: of the sentence quoted, today and without the
    passage; None without a reader.
    """

    passage: int
    block_ids: tuple[int, ...]
    found: bool
    same: bool
    quotation: QuotedSentence | None
    probability_with: float | None
    probability_without: float | None
