"""How well a joint reader answers development questions from their gold passages.

Axes: Q questions, N tokens of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer

from model.precision import fast_precision
from model.reading.network import JointReader
from model.reading.rows import RowTokens, join_rows
from model.scoring.sentences import sentence_borders
from model.scoring.span_reader import best_spans
from model.training.data.span_questions import SpanQuestion
from model.training.evaluation.answer_scores import exact_and_f1, holds
from model.training.evaluation.span_reading import Judged

LONGEST = 256


@torch.no_grad()
def judge_joint(reader: JointReader, tokenizer: Tokenizer, questions: Sequence[SpanQuestion]) -> list[Judged]:
    """Every question answered from its passage, a row for each piece; its best span and the sentence around it."""
    was_training = reader.training
    reader.eval()
    judged = []
    for question in questions:
        asked = tokenizer.encode(question.text, add_special_tokens=False).ids
        pieces = [tokenizer.encode(piece, add_special_tokens=False) for piece in question.pieces]
        rows = join_rows([(asked, [], piece.ids[:LONGEST]) for piece in pieces], len(pieces), RowTokens.of(tokenizer))
        with torch.autocast("cpu", torch.bfloat16, enabled=fast_precision("cpu") == "bf16"):
            logits = reader(*rows.inputs())
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
