"""Quotation from candidate blocks: which characters a quoted token stands for, and which sentence answers best.

A model that is not trained to write an answer can still quote one: the sentence whose stored keys best match the
question's queries (`model.scoring.late_interaction`). These are the keys that attention reads, so nothing is encoded
again. A checkpoint with a second look (`model.reading.second_look`) reads the candidates once more, with the question.

Axes: Q question tokens, C candidate blocks, L tokens in a block, S sentences, T tokens of a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from model.checkpoint.landmark_model import LandmarkModel
from model.inference.constrained_decoding import Place, QuoteSource, word_starts
from model.reading.second_look import FoundSpan, Reading, ReadPassage
from model.scoring.late_interaction import score
from model.scoring.sentences import is_hollow, is_question, may_answer
from retrieval.query.exact_terms import CODE_WEIGHT, code_shares
from retrieval.query.passage_builder import QuotableText
from retrieval.query.passage_spans import Hit
from retrieval.query.quotation.announcements import is_item
from retrieval.query.quotation.asides import ASIDE_SHARE
from retrieval.query.quotation.neighbours import TIE, joined
from retrieval.query.quotation.placed_sentences import PlacedBlock, Quotation, Sentence, sentences_of_run
from retrieval.query.quotation.same_question import gains_below
from retrieval.query.quotation.siblings import SIBLING_WEIGHT, sibling_shares
from storage.records import Block

MATCH_WEIGHT = 25.0
"""Weight of the late-interaction score beside the logarithm of the second look's chance. Answers are alike between 15
and 40, and worse with either side alone (docs/experiments.md)."""


_FEWEST_OF_A_TITLE = 3  # words: shorter ones may be an answer, too

_Choice = tuple[int, Sentence, range]
"""Number of a sentence, what to quote for it, and its pointed tokens."""


class Quoting:
    """Quotation from the candidate blocks of one question, in the order of the reader."""

    def __init__(
        self,
        model: LandmarkModel,
        blocks: Sequence[Block | None],
        text_of: Callable[[str], str] | None = None,
    ):
        """`text_of`: the text of a document by id, which models need whose tokens do not spell it (`writes`)."""
        self._model, self._blocks = model, blocks
        self._text_of = text_of or (lambda _: "")
        self._token_ends: dict[int, list[int]] = {}
        number = {(block.document_id, block.ordinal): index for index, block in enumerate(blocks) if block is not None}
        self._next = [None if b is None else number.get((b.document_id, b.ordinal + 1)) for b in blocks]
        tokens = [() if block is None else block.tokens for block in blocks]
        self.source = QuoteSource(tokens, self._next, word_starts(model.tokenizer))

    def hits(self, quotation: Quotation) -> list[Hit]:
        """The blocks that hold its tokens, in text order, each with its score."""
        indices = sorted({index for index, _ in quotation.places}, key=lambda index: self._of(index).ordinal)
        blocks = [self._of(index) for index in indices]
        return [Hit(block.id, block.document_id, block.ordinal, quotation.score) for block in blocks]

    def _of(self, index: int) -> Block:
        block = self._blocks[index]
        assert block is not None, "only blocks with tokens are quoted"
        return block

    def place(self, index: int, row: int) -> tuple[str, int, int]:
        """(document id, start, end) of one token; characters that tokens share belong to each of them."""
        block, ends = self._of(index), self._ends(index)
        start = ends[row - 1] if row else block.start
        return block.document_id, start, max(ends[row], start)

    def _ends(self, index: int) -> list[int]:
        """For each token of a block, the character of the document behind it."""
        if index not in self._token_ends:
            block = self._of(index)
            text = "" if self._model.writes else self._text_of(block.document_id)
            self._token_ends[index] = self._model.token_ends(block.tokens, text, block.start, block.end)
        return self._token_ends[index]

    def words(self, places: Sequence[Place]) -> Iterator[tuple[str, tuple[str, int, int]]]:
        """What stands in the document for each of these tokens, which follow each other, with what is between it and
        the token before; and its place."""
        before: int | None = None
        for place in places:
            document_id, start, end = self.place(*place)
            yield self._text_of(document_id)[start if before is None else before : end], (document_id, start, end)
            before = end

    def span(self, places: Sequence[Place]) -> tuple[int, int]:
        """(start, end) of tokens that follow each other, as characters of their document."""
        return self.place(*places[0])[1], self.place(*places[-1])[2]

    def best_sentences(
        self,
        matches_QCL: Tensor,
        text_of: Mapping[str, QuotableText],
        *,
        question: str = "",
        read: Callable[[Sequence[ReadPassage]], Reading] | None = None,
        title_of: Mapping[str, str] = MappingProxyType({}),
        count: int = 1,
    ) -> list[Quotation]:
        """The best sentences of different wording, best first. A single one without tokens if the blocks hold no text.

        `matches_QCL`: see `late_interaction.token_matches`; `question`: its words tell rows of a table apart; `read`:
        see `SecondLook.read`, whose chances then decide, and which marks the answer in each sentence.
        """
        sentences = self._sentences(text_of)
        if not sentences:
            return [Quotation([], range(0))]
        by_sentence = _Gather([each.places for each in sentences], matches_QCL.shape[2])
        scores_S = score(by_sentence(matches_QCL))
        ranked_S = scores_S * torch.tensor([ASIDE_SHARE if each.is_aside else 1.0 for each in sentences])
        shares_S = sibling_shares(question, [(self._of(each.run).document_id, each.text) for each in sentences])
        ranked_S = ranked_S + SIBLING_WEIGHT * shares_S
        ranked_S = ranked_S + CODE_WEIGHT * code_shares(question, [each.text for each in sentences])
        pointed = [range(0)] * len(sentences)
        chances: Sequence[float | None] = [None] * len(sentences)
        not_here = None
        if read is not None:
            spans, not_here = self._read(read, sentences, text_of, title_of)
            chances = [each.chance for each in spans]
            ranked_S = torch.tensor([each.chance for each in spans]).clamp_min(1e-9).log() + MATCH_WEIGHT * ranked_S
            gains_S = gains_below(question, sentences)
            ranked_S = ranked_S + gains_S
            titles = [title_of.get(self._of(each.run).document_id, "") for each in sentences]
            empty = [is_hollow(each.text) or is_question(each.text) for each in sentences]
            repeats = [not s.announced and _is_title(s.text, title) for s, title in zip(sentences, titles, strict=True)]
            ranked_S = _without(ranked_S, [a or b for a, b in zip(empty, repeats, strict=True)])
            pointed = [each.tokens_within(span) for each, span in zip(sentences, spans, strict=True)]
        else:
            # Headings repeat the question's words and answer nothing; the second look knows better.
            ranked_S = _without(ranked_S, [not each.announced and not may_answer(each.text) for each in sentences])
        chosen = list(_chosen(sentences, ranked_S, scores_S, pointed, count + 1))
        if read is not None and len(chosen) > 1:
            following = {number: sentences[number + 1] for number in gains_S[:-1].nonzero().flatten().tolist()}
            chosen = self._with_neighbour(chosen, ranked_S, text_of, following)
        return [
            sentence.quoted(pointing, float(scores_S[number]), chances[number], not_here)
            for number, sentence, pointing in chosen[:count]
        ]

    def _with_neighbour(
        self,
        chosen: list[_Choice],
        ranked_S: Tensor,
        text_of: Mapping[str, QuotableText],
        following: Mapping[int, Sentence],
    ) -> list[_Choice]:
        """The best joined with the second, if that stands beside it and is about as good; else with what follows it
        below a heading that asks the same."""
        (number, best, pointing), (other, second, _), *others = chosen
        text = self._text([best.run], text_of).text
        if ranked_S[number] - ranked_S[other] <= TIE and (both := joined(best, second, text)) is not None:
            return [(number, both, pointing), *others]
        if number in following and (both := joined(best, following[number], text)) is not None:
            rest = [each for each in chosen[1:] if each[1].places != following[number].places]
            return [(number, both, pointing), *rest]
        return chosen

    def _read(
        self,
        read: Callable[[Sequence[ReadPassage]], Reading],
        sentences: Sequence[Sentence],
        text_of: Mapping[str, QuotableText],
        title_of: Mapping[str, str],
    ) -> tuple[list[FoundSpan], float]:
        """Every sentence's chance and answer span, in characters of its document, and the chance of none; a run is a
        passage."""
        passages = []
        runs = [list(group) for _, group in groupby(sentences, key=lambda sentence: sentence.run)]
        for group in runs:
            document_id, start = self._of(group[0].run).document_id, group[0].start
            borders = [(each.start - start, each.stop - start) for each in group]
            text = text_of[document_id].text[start : group[-1].stop] if document_id in text_of else ""
            passages.append(ReadPassage(title_of.get(document_id, ""), text, borders))
        reading = read(passages)
        found = [
            FoundSpan(span.chance, span.start + group[0].start, span.stop + group[0].start)
            for group, spans in zip(runs, reading.spans, strict=True)
            for span in spans
        ]
        return found, reading.not_here

    def _sentences(self, text_of: Mapping[str, QuotableText]) -> list[Sentence]:
        """Sentences that stand whole in a run of neighbouring blocks.

        Where none stands whole (a sentence longer than the run) the parts that do stand there.
        """
        return self._found(text_of, whole=True) or self._found(text_of, whole=False)

    def _found(self, text_of: Mapping[str, QuotableText], *, whole: bool) -> list[Sentence]:
        return [
            sentence
            for run in self._runs()
            for sentence in sentences_of_run(
                [self._placed(index) for index in run], run, self._text(run, text_of), whole=whole
            )
        ]

    def _runs(self) -> list[list[int]]:
        """Candidates that continue each other in their document."""
        continued = {following for following in self._next if following is not None}
        runs = []
        for index, block in enumerate(self._blocks):
            if block is None or index in continued:
                continue
            run, following = [index], self._next[index]
            while following is not None:
                run.append(following)
                following = self._next[following]
            runs.append(run)
        return runs

    def _text(self, run: Sequence[int], text_of: Mapping[str, QuotableText]) -> QuotableText:
        return text_of.get(self._of(run[0]).document_id) or QuotableText("")

    def _placed(self, index: int) -> PlacedBlock:
        block = self._of(index)
        return PlacedBlock(block.start, block.end, self._ends(index))


def _chosen(
    sentences: Sequence[Sentence], ranked_S: Tensor, scores_S: Tensor, pointed: Sequence[range], count: int
) -> Iterator[_Choice]:
    """The best sentences of different wording, best first."""
    wordings: set[str] = set()
    quoted: set[Place] = set()
    for number in ranked_S.argsort(descending=True, stable=True).tolist():
        if ranked_S[number] == -torch.inf or len(wordings) == count:
            break
        sentence, pointing = sentences[number], pointed[number]
        if _asks_for_the_list(sentences, number, scores_S):
            sentence = sentences[number - 1]
            pointing = range(len(sentence.places), len(sentence.places) + len(sentence.announced))
        if sentence.places[0] in quoted:  # stands in a list that is quoted already
            continue
        if (wording := _wording(sentence.text)) not in wordings:
            wordings.add(wording)
            quoted.update(sentence.antecedent + sentence.places + sentence.announced)
            yield number, sentence, pointing


def _asks_for_the_list(sentences: Sequence[Sentence], number: int, scores_S: Tensor) -> bool:
    """Whether a sentence is the first item of a list, and the question matches what announces the list as well: then it
    asks for the list, not for this item."""
    if number == 0 or not is_item(sentences[number].text):
        return False
    lead = sentences[number - 1]
    announced = bool(lead.announced) and sentences[number].places[0] in lead.announced[:2]
    return announced and bool(scores_S[number - 1] >= scores_S[number])


def _without(ranked_S: Tensor, unfit: Sequence[bool]) -> Tensor:
    """Ranks without those of unfit sentences, unless all are."""
    return ranked_S if all(unfit) else ranked_S.masked_fill(torch.tensor(unfit), -torch.inf)


def _is_title(text: str, title: str) -> bool:
    """Whether a sentence only repeats the title of its document, which stands beside it anyway."""
    wording = _wording(text)
    return len(wording.split()) >= _FEWEST_OF_A_TITLE and _wording(title).endswith(wording)


def _wording(text: str) -> str:
    return " ".join(text.lower().split())


class _Gather:
    """Values of tokens, gathered sentence by sentence."""

    def __init__(self, places: Sequence[Sequence[Place]], length: int) -> None:
        rows = [torch.tensor([index * length + row for index, row in each]) for each in places]
        self._place_ST = pad_sequence(rows, batch_first=True)
        self._there_ST = torch.arange(self._place_ST.shape[1]) < torch.tensor([len(each) for each in places])[:, None]

    def __call__(self, x_XCL: Tensor) -> Tensor:
        return x_XCL.flatten(1)[:, self._place_ST].masked_fill(~self._there_ST, -torch.inf)
