"""Which sentence of the candidates answers: features, weighed by the checkpoint's ranker, then what is quoted of it.

A model that is not trained to write an answer can still quote one. How well stored keys of a sentence match the
question's queries is one feature (`model.scoring.late_interaction`); attention reads the same keys, so nothing
is encoded again. Where the checkpoint has a reader, its probability is another.

Axes: Q question tokens, C candidate blocks, L tokens in a block, S sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from model.reading.ranker import MOST_LEAD, Ranker, Stage, log_odds
from model.reading.span_reader import FoundSpan, ReadPassage, SpanReading
from model.scoring.late_interaction import score
from model.scoring.sentences import is_question, is_row, may_answer
from retrieval.engine.workspace import Workspace
from retrieval.index.snapshot import MemoryIndex, naming_damage
from retrieval.index.terms import half_width
from retrieval.query.features import QuestionTerms, Sentences, feature_table
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.retrieve import Candidates
from retrieval.query.search import SearchResult
from retrieval.query.sentences import LONGEST_WITH_CONTEXT, BySentence, QuotableBlocks, Quotation, Sentence
from retrieval.query.versions import named_alike

LONGEST_BESIDE = 240
"""The same of one that is shown beside it, three lines on the page. Of 224 questions about 72 documents one of the four
sentences shown answers 0.782 with the others alone, 0.822 with what stands around them."""
NEARLY = 6.0
"""A sentence beside a sure one is quoted along if its score is at most so much lower. Of 731 questions about documents
that neither reader was taught by, before any is refused, 0.784 are answered with 400 characters and 8, 0.796 with 500
and 6 (0.004 to 0.020 more), with as much quoted (313 and 310 characters)."""
MOST_AROUND = 12
"""Sentences around the best that are not offered once more beside it."""
OTHER_SENTENCES = 3
"""Shown beside the one that is quoted."""
_HEAD = 200  # characters at the beginning of a document, where its header and its heading stand

Read = Callable[[Sequence[ReadPassage]], SpanReading]
_Choice = tuple[int, int, int]
"""Number of a sentence, and the characters start..stop-1 to quote for it."""


def sentences_of(
    quotable: QuotableBlocks,
    matches_QCL: Tensor,
    *,
    asked: QuestionTerms,
    read: Read | None,
    title_of: Mapping[str, str],
    rank_C: Sequence[int] = (),
    block: float = 0.0,
    unmatched: float = 0.0,
) -> Sentences:
    """What may be quoted, matched with the question, and read with it where there is a reader. `rank_C`: places of the
    blocks in the search; `block`, `unmatched`: see `Sentences`."""
    items, texts = quotable.sentences(), quotable.texts
    documents = [quotable.document_of(each) for each in items]
    if not items:
        return Sentences(asked, (), (), torch.zeros(0))
    matches_S = score(BySentence([each.places for each in items], matches_QCL.shape[2])(matches_QCL))
    spans, p_none = _read(quotable, read, items, title_of) if read is not None else (None, None)
    names = [f"{title_of.get(one, '')} {texts[one][:_HEAD]}" for one in documents]
    ranks = [min(rank_C[each.places[0][0]], rank_C[each.places[-1][0]]) for each in items] if rank_C else ()
    return Sentences(asked, items, documents, matches_S, spans, names, p_none, ranks, block, unmatched, title_of, texts)


@dataclass(frozen=True, eq=False)
class ScoredSentences:
    """At least one sentence, its features and its score; -inf for those that cannot be an answer where nobody read."""

    sentences: Sentences
    features_SF: Tensor
    scores_S: Tensor
    ranker: Ranker

    def shares_of_blocks(self, blocks: int) -> list[float]:
        """For each of so many candidates how likely its best sentence is the one that answers, if one of them is."""
        shares = [0.0] * blocks
        for sentence, share in zip(self.sentences.items, self.scores_S.softmax(0).tolist(), strict=True):
            for block in {block for block, _ in sentence.places}:
                shares[block] = max(shares[block], share)
        return shares

    def answer_features(self, number: int) -> dict[str, float]:
        """Of a sentence by itself and among the others, see `model.reading.ranker.AnswerFeatures`."""
        features = dict(zip(self.ranker.features, self.features_SF[number].tolist(), strict=True))
        features |= {"block": self.sentences.block, "unmatched": self.sentences.unmatched}
        others_S = self.scores_S.clone()
        others_S[number] = -torch.inf
        lead = float(self.scores_S[number] - others_S.max()) if len(others_S) > 1 else MOST_LEAD
        features["lead"] = min(max(lead, -MOST_LEAD), MOST_LEAD)
        if self.sentences.p_none is not None:
            features["none"] = log_odds(self.sentences.p_none)
        return features

    def is_sure(self, number: int) -> bool:
        """Whether a sentence is more than a guess. A question never is, as it answers nothing; a ranker that was
        not fitted with a reader guesses nothing else."""
        if is_question(self.sentences.items[number].text):
            return False
        return not self.ranker.weighs_reading or self.ranker.decision.is_sure(self.answer_features(number))


def score_sentences(sentences: Sentences, ranker: Ranker) -> ScoredSentences:
    """The features and the score of each sentence. `sentences`: at least one."""
    stage: Stage = "before" if sentences.spans is None else "after"
    features_SF = feature_table(sentences, ranker.features)
    scores_S = ranker.scores(features_SF, stage)
    if stage == "before":  # a reader knows by itself what only looks like an answer
        scores_S = _without(scores_S, [not (each.introduces or may_answer(each.text)) for each in sentences.items])
    return ScoredSentences(sentences, features_SF, scores_S, ranker)


def quote_best(scored: ScoredSentences, count: int) -> list[Quotation]:
    """Quotations of the best sentences: a sure one with those beside it that answer nearly as well, a guess with all
    its surroundings. Behind them, what an earlier version of its document says instead of the best one, if any does."""
    sentences, scores_S = scored.sentences, scored.scores_S
    items, spans, matches_S = sentences.items, sentences.spans, sentences.matches_S
    shares_S = scores_S.softmax(0)
    chosen = list(_best_of_different_wording(items, scores_S, count + MOST_AROUND))
    best = chosen[0][0]
    called = [sentences.titles.get(one, "") for one in sentences.documents]
    earlier = [one for one in sentences.earlier.get(best, []) if named_alike(called[one], called[best])]
    said_before = max(earlier, key=lambda number: scores_S[number], default=None)
    shown = [each for each in chosen if each[0] != said_before]
    if spans is not None:
        left_S = scores_S if said_before is None else scores_S.index_fill(0, torch.tensor(said_before), -torch.inf)
        beside_S = left_S
        if scored.is_sure(best):
            beside_S = left_S.masked_fill(left_S < scores_S[best] - NEARLY, -torch.inf)
        shown = _each_with_context(items, beside_S, left_S, shown, count)
    shown = shown[:count]
    if said_before is not None:
        shown.append((said_before, items[said_before].start, items[said_before].end))
    return [
        Quotation(
            items[number].run,
            start,
            stop,
            (start, start) if spans is None else (spans[number].start, spans[number].stop),
            float(matches_S[number]),
            None if spans is None else spans[number].probability,
            sentences.p_none,
            share=float(shares_S[number]),
            features=scored.answer_features(number),
            sure=scored.is_sure(number),
            earlier_version=number == said_before,
        )
        for number, start, stop in shown
    ]


def _read(
    quotable: QuotableBlocks, read: Read, items: Sequence[Sentence], title_of: Mapping[str, str]
) -> tuple[list[FoundSpan], float]:
    """Every sentence's probability and answer span, in characters of its document, and the probability of none; a run
    is a passage."""
    passages = []
    runs = [list(group) for _, group in groupby(items, key=lambda sentence: sentence.run)]
    for group in runs:
        document_id, start = quotable.document_of(group[0]), group[0].start
        borders = [(each.start - start, each.stop - start) for each in group]
        text = quotable.texts[document_id][start : group[-1].stop]
        passages.append(ReadPassage(title_of.get(document_id, ""), half_width(text), borders))
    reading = read(passages)
    found = [
        FoundSpan(span.probability, span.start + group[0].start, span.stop + group[0].start)
        for group, spans in zip(runs, reading.spans, strict=True)
        for span in spans
    ]
    return found, reading.p_none


def _without(scores_S: Tensor, unfit: Sequence[bool]) -> Tensor:
    """Scores without those of unfit sentences, unless all are."""
    return scores_S if all(unfit) else scores_S.masked_fill(torch.tensor(unfit), -torch.inf)


def _best_of_different_wording(items: Sequence[Sentence], scores_S: Tensor, count: int) -> Iterator[_Choice]:
    """The best sentences of different wording, best first."""
    wordings: set[str] = set()
    lists: list[_Choice] = []
    for number in scores_S.argsort(descending=True, stable=True).tolist():
        if scores_S[number] == -torch.inf or len(wordings) == count:
            break
        sentence = items[number]
        if any(_stands_in(items, number, each) for each in lists):  # is quoted already
            continue
        if (wording := _wording(sentence.text)) not in wordings:
            wordings.add(wording)
            choice = number, sentence.start, sentence.end
            if sentence.introduces:
                lists.append(choice)
            yield choice


def _stands_in(items: Sequence[Sentence], number: int, choice: _Choice) -> bool:
    """Whether a sentence begins in what is quoted for another."""
    other, start, stop = choice
    return items[number].run == items[other].run and start <= items[number].start < stop


def _is_whole(sentence: Sentence) -> bool:
    """Whether a sentence is quoted without what stands around it: a row, and what announces a list, which it is quoted
    with."""
    return sentence.introduces or is_row(sentence.text)


def _each_with_context(
    items: Sequence[Sentence], beside_S: Tensor, left_S: Tensor, chosen: Sequence[_Choice], count: int
) -> list[_Choice]:
    """The first `count` of them with what stands around them, nothing twice. `left_S`: the scores of what may be quoted
    at all, `beside_S`: with the best."""
    quoted = [_with_context(items, beside_S, chosen[0], LONGEST_WITH_CONTEXT)]
    for choice in chosen[1:]:
        said = [any(_stands_in(items, number, each) for each in quoted) for number in range(len(items))]
        if len(quoted) < count and not said[choice[0]]:
            around_S = left_S.masked_fill(torch.tensor(said), -torch.inf)
            quoted.append(_with_context(items, around_S, choice, LONGEST_BESIDE))
    return quoted


def _with_context(items: Sequence[Sentence], scores_S: Tensor, choice: _Choice, longest: int) -> _Choice:
    """The best sentence with as many of those around it as fit, the better ones first: a guess is understood, and often
    right, with what stands beside it. Rows of tables are whole by themselves; what announces a list stands with it.

    Of 329 questions about documents that nothing was made for, before any is refused, 0.698 are answered by the
    sentence alone, 0.743 with surroundings for guesses, 0.790 with surroundings for all.
    """
    number = choice[0]
    best = items[number]
    if _is_whole(best):
        return choice
    first, last = number, number
    while True:
        around = [at for at in (first - 1, last + 1) if 0 <= at < len(items) and items[at].run == best.run]
        fits = {
            at: float(scores_S[at])
            for at in around
            if not is_row(items[at].text)
            and scores_S[at] > -torch.inf
            and max(items[last].stop, items[at].stop) - min(items[first].start, items[at].start) <= longest
        }
        if not fits:
            break
        at = max(fits, key=lambda at: (fits[at], at))
        first, last = min(first, at), max(last, at)
    return number, items[first].start, max(each.end for each in items[first : last + 1])


def _wording(text: str) -> str:
    return " ".join(text.lower().split())


def quotable_blocks(workspace: Workspace, passages: PassageBuilder, candidates: Candidates) -> QuotableBlocks:
    """Those candidates that may be quoted."""
    ids, may_be_quoted = candidates.block_ids, candidates.quotable_C.tolist()
    rows = passages.blocks(id_ for id_, may in zip(ids, may_be_quoted, strict=True) if may)
    texts = {document_id: passages.text(document_id) for document_id in {row.document_id for row in rows.values()}}
    blocks = [rows.get(block_id) for block_id in ids]
    return QuotableBlocks(workspace.opened.model, blocks, texts, apart=candidates.apart)


def candidate_sentences(
    workspace: Workspace,
    index: MemoryIndex,
    passages: PassageBuilder,
    found: SearchResult,
    candidates: Candidates,
    quotable: QuotableBlocks,
    read: Read | None,
) -> Sentences:
    """`sentences_of` the candidates, for models that rank by tokens. Takes its own slots at the model."""
    title_of = {document_id: passages.name(document_id) for document_id in quotable.texts}
    with naming_damage(index), workspace.scheduler.for_question():
        assert found.matches is not None, "tokens rank"
        titles_QC = found.titles.of(candidates.document_ids)
        matches_QCL = found.matches.of(candidates.indices_C).maximum(titles_QC[..., None])
    return sentences_of(
        quotable,
        matches_QCL,
        asked=found.question.asked,
        read=read,
        title_of=title_of,
        rank_C=candidates.rank_C,
        block=found.confidence,
        unmatched=found.unmatched,
    )
