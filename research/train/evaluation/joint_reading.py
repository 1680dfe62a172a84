"""How well a joint reader answers development questions from their gold passages.

Axes: Q questions, N tokens of all rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from model.precision import fast_precision
from model.reading.network import JointReader, SpanLogits
from model.reading.rows import RowTokens, join_rows
from model.scoring.sentences import sentence_borders
from research.train.data.batches.joint_batches import rows_on
from research.train.data.span_questions import SpanQuestion
from research.train.evaluation.answer_scores import exact_and_f1, holds

LONGEST = 256


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


class Spans(NamedTuple):
    """The best span of each question: its first and last token, and the log of both chances added."""

    first_Q: Tensor
    last_Q: Tensor
    score_Q: Tensor


@torch.no_grad()
def judge_joint(reader: JointReader, tokenizer: Tokenizer, questions: Sequence[SpanQuestion]) -> list[Judged]:
    """Every question answered from its passage, a row for each piece; its best span and the sentence around it."""
    was_training, device = reader.training, reader.points.weight.device
    reader.eval()
    judged = []
    for question in questions:
        asked = tokenizer.encode(question.text, add_special_tokens=False).ids
        pieces = [tokenizer.encode(piece, add_special_tokens=False) for piece in question.pieces]
        rows = join_rows([(asked, [], piece.ids[:LONGEST]) for piece in pieces], len(pieces), RowTokens.of(tokenizer))
        with torch.autocast(device.type, torch.bfloat16, enabled=fast_precision(device.type) == "bf16"):
            logits = SpanLogits(*(each_QN1.cpu() for each_QN1 in reader(rows_on(device, rows))))
        length = rows.ids_QKT.shape[-1]
        row_QN = torch.arange(len(pieces)).repeat_interleave(length)[None]
        row_QN = row_QN.masked_fill(~rows.passage_QKT.flatten(1), -1)
        spans = best_spans(logits, row_QN, longest=30)
        first, last = int(spans.first_Q), int(spans.last_Q)
        piece, begin = first // length, rows.begins[first // length]
        offsets = pieces[piece].offsets
        start, stop = offsets[first % length - begin][0], offsets[last % length - begin][1]
        judged.append(_judge(question, piece, start, stop, float(logits.no_answer())))
    reader.train(was_training)
    return judged


def _judge(question: SpanQuestion, piece: int, start: int, stop: int, none: float) -> Judged:
    text, answerable = question.pieces[piece], bool(question.spans)
    exact, f1 = exact_and_f1(text[start:stop], question.answers) if answerable else (0.0, 0.0)
    sentence = next((text[a:b] for a, b in sentence_borders(text) if a <= start < b), text[start:stop])
    return Judged(question.source, answerable, f1, exact, float(answerable and holds(sentence, question.answers)), none)


def best_spans(logits: SpanLogits, stretch_QN: Tensor, *, longest: int = 24) -> Spans:
    """The best span of each question that lies in one stretch and has at most `longest` tokens.

    stretch_QN: number of the stretch of each position, -1 in gaps. "Not here" does not compete; see
    `SpanLogits.no_answer`.
    """
    starts_QN, ends_QN = (each.log_softmax(-1)[:, :-1] for each in logits)
    best_QN, width_QN = torch.full_like(starts_QN, -torch.inf), torch.zeros_like(stretch_QN)
    length = starts_QN.shape[1]
    for width in range(min(longest, length)):
        inside_QN = (stretch_QN[:, : length - width] == stretch_QN[:, width:]) & (stretch_QN[:, width:] >= 0)
        score_QN = (starts_QN[:, : length - width] + ends_QN[:, width:]).masked_fill(~inside_QN, -torch.inf)
        better_QN = score_QN > best_QN[:, : length - width]
        best_QN[:, : length - width] = torch.where(better_QN, score_QN, best_QN[:, : length - width])
        width_QN[:, : length - width] = torch.where(better_QN, width, width_QN[:, : length - width])
    score_Q, first_Q = best_QN.max(-1)
    return Spans(first_Q, first_Q + width_QN.gather(1, first_Q[:, None])[:, 0], score_Q)


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
