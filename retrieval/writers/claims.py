"""Checks claims: each sentence of an answer is looked up in the documents, as a question of its own.

A claim is

- supported: one sentence, with its neighbours and the title, holds most of its words; the sentence itself every figure
  and, with its neighbours, every name;
- partly: a sentence holds a good part of its words;
- not_found: none does.

This compares words, not meaning: a claim that turns a sentence into its opposite, or names the right people in the
wrong roles, passes (benchmarks/quality/claim_check.py measures how often it is right).

A writer may be weaker than the search. So the sentence that would have been quoted without it stands next to the
writer's words, and in their place where the documents support none of them (`search_quotation`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from model.scoring.sentences import sentence_borders
from retrieval.engine.workspace import Workspace
from retrieval.index.blocks import MemorySnapshot
from retrieval.index.snapshot import MemoryIndex, naming_damage
from retrieval.query.answer import quotation_of
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.passage_spans import Hit, join_neighbours
from retrieval.query.question import Question
from retrieval.query.rank import candidate_sentences, quotable_blocks, quote_best, score_sentences
from retrieval.query.retrieve import choose_candidates
from retrieval.query.search import find_blocks, hits_of
from retrieval.types.answers import Citation, Claim, Outcome, Passage, QuotedSentence, Verdict
from retrieval.types.records import Scope
from retrieval.writers.citations import BRACKETS, without_citations
from retrieval.writers.facts import Fact, content_words, facts_of, first_word, forms_of
from retrieval.writers.output_filter import is_refusal
from retrieval.writers.prompt import LEAD_IN

_FEWEST_WORDS = 2
# Marks of lists and tables, and dashes that draw lines.
_MARKS = re.compile(r"^[\s>*•#|–—-]+(?=\S)|^\d{1,2}[.)]\s+|[\s|*]+$")
_RULE = re.compile(r"[\s|:–—=-]*")
# "[2]" after a full stop belongs to the sentence before it.
_LATE_CITATION = re.compile(r"([.!?…])((?:\s*\[\s*\d[\d\s,;]*\])+)")


def claims_of(answer: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, text) of every sentence, item or row that says something; the text without marks and citations."""
    moved = _LATE_CITATION.sub(r"\2\1", answer)  # as long as before: places stay
    for start, end in sentence_borders(moved):
        if _RULE.fullmatch(moved[start:end]) or moved[start:end].endswith((":", "?")):
            continue
        text = " ".join(_MARKS.sub("", _MARKS.sub("", without_citations(moved[start:end]))).split())
        if is_refusal(text):
            continue
        if lead := LEAD_IN.match(text):
            text = text[lead.end() :]
        if len(content_words(text)) >= _FEWEST_WORDS:
            yield start, end, text


SUPPORTED_COVERAGE = 0.6
PARTLY_COVERAGE = 0.45
_SENTENCES, _BLOCKS = 6, 6
_ENDS = ".!?…。！？।؟\"'”’»)]"
# What stands around a sentence and may name what it speaks of.
_AROUND_CHARACTERS = 400


@dataclass(frozen=True)
class Support:
    """How well one sentence of a document supports a claim. `coverage`: share of the claim's content words that it and
    its surroundings say; `missing`: facts that they do not."""

    sentence: Passage
    coverage: float
    missing: int

    @property
    def verdict(self) -> Verdict:
        if self.coverage >= SUPPORTED_COVERAGE and not self.missing:
            return "supported"
        return "partly" if self.coverage >= PARTLY_COVERAGE else "not_found"

    @property
    def rank(self) -> tuple[bool, float, int]:
        return self.verdict == "supported", self.coverage, -self.missing


def without_unfinished(claims: Sequence[Claim], text: str) -> tuple[Claim, ...]:
    """The claims of a text that broke off, without a last sentence that has no end."""
    written = text.rstrip()
    finished = not written or written[-1] in _ENDS
    return tuple(claim for claim in claims if finished or claim.end < len(written))


class ClaimChecker:
    """Looks sentences up in the documents of a scope."""

    def __init__(self, workspace: Workspace, index: MemoryIndex, builder: PassageBuilder, scope: Scope | None):
        self._workspace, self._index, self._builder, self._scope = workspace, index, builder, scope

    def check(
        self,
        answer: str,
        passages: Sequence[Passage],
        citations: Sequence[Citation],
        cancelled: Callable[[], bool] = lambda: False,
    ) -> tuple[tuple[Claim, ...], tuple[Passage, ...]]:
        """All claims of an answer over `passages`; and these passages, with further sentences that support a claim.
        Cancelled: the claims so far."""
        shown, claims = list(passages), []
        with self._index.open_for_question(self._workspace.catalogue) as snapshot:
            for start, end, text in claims_of(answer):
                if cancelled():
                    break
                cited = {citation.passage for citation in citations if start <= citation.start <= end}
                support = self._best_support(snapshot, text, [shown[number] for number in sorted(cited)])
                claim = _claim(text, support, shown)
                read = [passages[number] for number in sorted(cited)] or passages
                facts = _unfounded(answer[start:end], read)
                unfounded = tuple(dict.fromkeys((start + fact.start, start + fact.end) for fact in facts))
                claims.append(replace(claim, start=start, end=end, unfounded=unfounded))
        return tuple(claims), tuple(shown)

    def support(self, claim: str) -> Support | None:
        """The best support for one sentence; None without any."""
        with self._index.open_for_question(self._workspace.catalogue) as snapshot:
            return self._best_support(snapshot, claim, ())

    def _best_support(self, snapshot: MemorySnapshot, claim: str, cited: Sequence[Passage]) -> Support | None:
        words = content_words(claim)
        sentences = [*self._found(snapshot, claim), *(one for passage in cited for one in self._sentences_of(passage))]
        supports = (self._support(sentence, claim, words) for sentence in sentences)
        return max(supports, key=lambda support: support.rank, default=None)

    def _support(self, sentence: Passage, claim: str, words: Sequence[str]) -> Support:
        # The capital of a first word says nothing. It is a name if the document never has it without one.
        lower = re.compile(rf"\b{re.escape(first_word(claim).lower())}\b")
        name = lower.search(self._builder.text(sentence.document_id)) is None
        own, near = forms_of(sentence.text), forms_of(self._around(sentence))
        said = sum((word in own) + (word not in own and word in near) * 0.5 for word in words)
        facts = facts_of(claim, first_is_name=name)
        missing = sum(fact.form not in (own if fact.is_figure else near) for fact in facts)
        return Support(sentence, said / len(words) if words else 0.0, missing)

    def _found(self, snapshot: MemorySnapshot, claim: str) -> list[Passage]:
        """The sentences that search finds for the claim."""
        opened = self._workspace.loaded()
        config = opened.model.config
        with naming_damage(self._index):
            found = find_blocks(self._workspace, snapshot, claim, 4 * _BLOCKS, self._scope)
        if not config.quotes_sentences:
            groups = join_neighbours(hits_of(snapshot, found.indices_C, found.scores_C), _BLOCKS, found.joined)
            passages = self._builder.passages(groups, found.joined)
            return [sentence for passage in passages for sentence in self._sentences_of(passage)]
        candidates = choose_candidates(snapshot, found, config, _BLOCKS, whole_sentences=True)
        if not len(candidates):
            return []
        quotable = quotable_blocks(self._workspace, self._builder, candidates)
        parts = (self._workspace, self._index, self._builder)
        sentences = candidate_sentences(*parts, found, candidates, quotable, None)
        best = quote_best(score_sentences(sentences, opened.ranker), _SENTENCES) if sentences.items else []
        made = (self._builder.sentence(quotable.hits(one), one.start, one.stop) for one in best if one.start < one.stop)
        return [sentence for sentence in made if sentence is not None]

    def _sentences_of(self, passage: Passage) -> Iterable[Passage]:
        text = self._builder.text(passage.document_id)
        for start, end in sentence_borders(text, passage.start_index, passage.end_index):
            blocks = [block for block in passage.blocks if block.start < end and start < block.end]
            hits = [Hit(block.block_id, passage.document_id, 0, block.score) for block in blocks]
            sentence = self._builder.sentence(hits, start, end) if hits else None
            if sentence is not None:
                yield sentence

    def _around(self, sentence: Passage) -> str:
        """The sentence with the one before, the one behind, and the title."""
        text, start, end = self._builder.text(sentence.document_id), sentence.start_index, sentence.end_index
        low, high = max(0, start - _AROUND_CHARACTERS), min(len(text), end + _AROUND_CHARACTERS)
        before = [text[a:b] for a, b in sentence_borders(text, low, start)] if low < start else []
        behind = [text[a:b] for a, b in sentence_borders(text, end, high)] if end < high else []
        return " ".join([sentence.title, *before[-1:], sentence.text, *behind[:1]])


def _claim(text: str, support: Support | None, shown: list[Passage]) -> Claim:
    """Adds the supporting sentence to `shown` where none of these holds it."""
    if support is None or support.verdict == "not_found":
        return Claim(text, "not_found", None, "", round(support.coverage, 4) if support else 0.0)
    sentence = support.sentence
    place = next((number for number, passage in enumerate(shown) if passage.holds(sentence)), len(shown))
    if place == len(shown):
        shown.append(sentence)
    return Claim(text, support.verdict, place, sentence.text, round(support.coverage, 4))


def _unfounded(sentence: str, passages: Sequence[Passage]) -> list[Fact]:
    """Figures and names of the sentence, citations aside, that stand in none of the passages."""
    masked = BRACKETS.sub(lambda match: " " * len(match[0]), sentence)  # every other character stays in its place
    known: set[str] = set()
    for passage in passages:
        known |= forms_of(f"{passage.title} {passage.text}")
    return [fact for fact in facts_of(masked) if fact.form not in known]


# Letters by which forms of a word are one: inspect, inspection.
_BEGINNING = 5


@dataclass(frozen=True)
class SearchQuotation:
    """What search alone would have quoted. `outcome`: of the quotation; "not_found" without one."""

    quotation: QuotedSentence | None
    outcome: Outcome


def search_quotation(
    workspace: Workspace, index: MemoryIndex, builder: PassageBuilder, question: Question, asked: str
) -> SearchQuotation | None:
    """The sentence that would have been quoted without a writer. `asked`: the question reworded to stand alone. None if
    the model does not quote sentences. Raises like `query.search.search`."""
    if not workspace.loaded().model.config.quotes_sentences:
        return None
    alone = replace(question, text=asked, quote=True, conversation_id=None, earlier=())
    draft, sentence = quotation_of(workspace, index, builder, alone)
    if sentence is None or draft.outcome == "not_found":
        return SearchQuotation(None, "not_found")
    return SearchQuotation(sentence, draft.outcome)


def is_supported(question: str, text: str, claims: Sequence[Claim], by_search: SearchQuotation, *, small: bool) -> bool:
    """Whether the documents support a text without citations, beyond what the question says itself.

    One supported sentence is enough if something would be quoted; else most must be supported, and one of those must be
    about what was asked, since copying any sentence of a document is support. A small writer must also agree with the
    search if that is sure: it copies what is next to the answer just as readily.
    """
    asked, quotation = set(content_words(question)), by_search.quotation
    supported = [claim for claim in claims if claim.verdict == "supported" and set(content_words(claim.text)) - asked]
    if quotation is None:
        speaks = any(_share_a_word(asked, content_words(claim.text)) for claim in supported)
        return 2 * len(supported) > len(claims) and (speaks or not asked)
    if small and by_search.outcome == "found" and (short := set(content_words(quotation.short))):
        supported = [claim for claim in supported if 2 * len(short & set(content_words(claim.text))) > len(short)]
    if not supported and by_search.outcome == "perhaps":  # a guess: nearly supported is better
        supported = [claim for claim in claims if claim.score >= SUPPORTED_COVERAGE and not claim.unfounded]
        supported = [claim for claim in supported if set(content_words(claim.text)) - asked]
    words = set(content_words(without_citations(text)))  # too short to be looked up, like a name
    named = not claims and bool(words - asked) and words <= set(content_words(quotation.passage.text))
    return bool(supported) or named


def _share_a_word(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether two texts have a word in common, as far as its beginning tells."""
    begins = {word[:_BEGINNING] for word in others}
    return any(word[:_BEGINNING] in begins for word in some)
