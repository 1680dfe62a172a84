"""How well a span reader answers development questions: from the gold passage, and with wrong passages beside it.

Axes: Q questions, N tokens of all stretches, S sentences.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.scoring.sentences import sentence_borders
from model.scoring.span_reader import SpanLogits, SpanReader, best_spans, sentence_mass
from model.training.data.batches.reader_batches import ReaderBatch, ReaderBatchMaker, Shown
from model.training.evaluation.answer_scores import exact_and_f1, holds

_BATCH = 16


@dataclass(frozen=True)
class Judged:
    """One question's answer against the accepted ones. F1 and exact are of the best span whatever the chance of "not
    here"; `none` is that chance."""

    source: str
    answerable: bool
    f1: float
    exact: float
    holds: float
    none: float


@torch.no_grad()
def judge(reader: SpanReader, maker: ReaderBatchMaker, rows: Sequence[Shown]) -> list[Judged]:
    """Every question answered from what it is shown."""
    was_training = reader.training
    reader.eval()
    judged: list[Judged] = []
    order = sorted(rows, key=lambda row: sum(map(len, row.pieces)))
    for start in range(0, len(order), _BATCH):
        part = order[start : start + _BATCH]
        batch = maker.collate(part)
        logits = reader(batch.states_QNE, batch.valid_QN, batch.asked_QTE, batch.question_mask_QT)
        judged += _judge_batch(part, batch, logits)
    reader.train(was_training)
    return judged


def _judge_batch(rows: Sequence[Shown], batch: ReaderBatch, logits: SpanLogits) -> list[Judged]:
    spans, none_Q = best_spans(logits, batch.stretch_QN), logits.no_answer()
    sentence_QN, sentences = _sentences(rows, batch)
    best_sentence_Q = sentence_mass(logits, sentence_QN).argmax(-1).tolist()
    judged = []
    for row, each in enumerate(rows):
        piece, first, _ = batch.offsets[row][int(spans.first_Q[row])]
        _, _, stop = batch.offsets[row][int(spans.last_Q[row])]
        exact, f1 = exact_and_f1(each.pieces[piece][first:stop], each.question.answers)
        sentence = sentences[row][best_sentence_Q[row]]
        answerable = bool(each.question.spans)
        judged.append(
            Judged(
                each.question.source,
                answerable,
                f1 if answerable else 0.0,
                exact if answerable else 0.0,
                float(answerable and holds(sentence, each.question.answers)),
                float(none_Q[row]),
            )
        )
    return judged


def _sentences(rows: Sequence[Shown], batch: ReaderBatch) -> tuple[Tensor, list[list[str]]]:
    """sentence_QN, the number of each token's sentence, and the sentences of each question."""
    sentence_QN = torch.full_like(batch.stretch_QN, -1)
    texts: list[list[str]] = []
    for row, each in enumerate(rows):
        texts.append([])
        number: dict[tuple[int, int], int] = {}  # of the sentence that a character of a piece stands in
        for piece, text in enumerate(each.pieces):
            for start, stop in sentence_borders(text):
                number |= {(piece, at): len(texts[row]) for at in range(start, stop)}
                texts[row].append(text[start:stop])
        for token, (piece, first, _) in batch.offsets[row].items():
            sentence_QN[row, token] = number.get((piece, first), -1)
    return sentence_QN, texts


def summary(judged: Sequence[Judged]) -> dict[str, dict[str, float]]:
    """Means by source and over all answerable questions; where a source has unanswerable ones, how well the chance of
    "not here" tells them apart (area under the curve)."""
    groups: dict[str, list[Judged]] = defaultdict(list)
    for each in judged:
        groups[each.source].append(each)
        groups["all"].append(each)
    found: dict[str, dict[str, float]] = {}
    for name, members in groups.items():
        answerable = [each for each in members if each.answerable]
        means = {
            key: round(sum(getattr(each, key) for each in answerable) / max(1, len(answerable)), 4)
            for key in ("f1", "exact", "holds")
        }
        found[name] = {**means, "questions": len(answerable)}
        if len(answerable) < len(members):
            found[name]["auc"] = round(
                _auc([e.none for e in members if not e.answerable], [e.none for e in answerable]), 4
            )
    return found


def _auc(higher: Sequence[float], lower: Sequence[float]) -> float:
    """How often one of `higher` is above one of `lower`, ties counting half."""
    high, low = torch.tensor(higher)[:, None], torch.tensor(lower)[None]
    return float(((high > low).float() + 0.5 * (high == low)).mean()) if high.numel() and low.numel() else 0.0
