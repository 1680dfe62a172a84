"""What the model that searches would have quoted, beside an answer that a writer words.

A writer may be weaker than the search: whoever names one shall not get a worse answer for it. So the quotation stands
beside the writer's words, and in their place where the documents support none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from retrieval.engine.workspace import Workspace
from retrieval.index.snapshot import MemoryIndex
from retrieval.query.answer import quoted_sentences
from retrieval.query.decode import Decoder
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.question import Question
from retrieval.query.retrieve import retrieve
from retrieval.types.defaults import Outcome
from retrieval.types.passages import QuotedSentence
from retrieval.types.written import Claim
from retrieval.writing.checking.claims import SUPPORTED_COVERAGE
from retrieval.writing.checking.facts import content_words
from retrieval.writing.citations import without_citations

# Letters by which forms of a word are one: inspect, inspection.
_BEGINNING = 5


@dataclass(frozen=True)
class Beside:
    """`outcome`: of the quotation; "not_found" without one."""

    quotation: QuotedSentence | None
    outcome: Outcome


def quoted_beside(
    workspace: Workspace, index: MemoryIndex, builder: PassageBuilder, question: Question, asked: str
) -> Beside | None:
    """The sentence that would have been quoted without a writer. `asked`: the question reworded to stand alone. None if
    the model does not quote sentences. Raises like `query.search.search`."""
    if not workspace.loaded().model.config.quotes_sentences:
        return None
    alone = replace(question, text=asked, quote=True, conversation_id=None, earlier=())
    builder = builder.for_one_question()
    with workspace.scheduler.question_open(), index.open_snapshot(workspace.catalogue) as snapshot:
        retrieved = retrieve(workspace, index, snapshot, alone, builder.blocks)
        decoded = Decoder(workspace, index, builder, alone).look(retrieved)
        sentence = next(quoted_sentences(builder, decoded, decoded.quotations[:1]), None)
    if sentence is None or decoded.outcome == "not_found":
        return Beside(None, "not_found")
    return Beside(sentence, decoded.outcome)


def is_upheld(question: str, text: str, claims: Sequence[Claim], beside: Beside, *, small: bool) -> bool:
    """Whether the documents support a text without citations, beyond what the question says itself.

    One supported sentence is enough if something would be quoted; else most must be supported, and one of those must be
    about what was asked, since copying any sentence of a document is support. A small writer must also agree with the
    search if that is sure: it copies what stands beside the answer just as readily.
    """
    asked, quotation = set(content_words(question)), beside.quotation
    supported = [claim for claim in claims if claim.verdict == "supported" and set(content_words(claim.text)) - asked]
    if quotation is None:
        speaks = any(_share_a_word(asked, content_words(claim.text)) for claim in supported)
        return 2 * len(supported) > len(claims) and (speaks or not asked)
    if small and beside.outcome == "found" and (short := set(content_words(quotation.short))):
        supported = [claim for claim in supported if 2 * len(short & set(content_words(claim.text))) > len(short)]
    if not supported and beside.outcome == "perhaps":  # a guess: nearly supported is better
        supported = [claim for claim in claims if claim.score >= SUPPORTED_COVERAGE and not claim.unfounded]
        supported = [claim for claim in supported if set(content_words(claim.text)) - asked]
    words = set(content_words(without_citations(text)))  # too short to be looked up, like a name
    named = not claims and bool(words - asked) and words <= set(content_words(quotation.passage.text))
    return bool(supported) or named


def _share_a_word(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether two texts have a word in common, as far as its beginning tells."""
    begins = {word[:_BEGINNING] for word in others}
    return any(word[:_BEGINNING] in begins for word in some)
