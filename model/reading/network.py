"""The joint reader: question and passage read together in one window, every token attending to every other.

Stored states of a passage do not know the question. A small encoder (BERT, arXiv 1810.04805) reads the text of the few
best passages together with the question. One softmax over the tokens of all passages and "not here" gives the
probability that the answer starts at a token, a second one that it ends there (shared normalisation, arXiv
1710.10723). So passages can be compared.

Axes: Q questions, K rows (a question with one passage each), R rows of all questions, T tokens of a row, N = K x T (or
the tokens of all rows), E width, H heads, D head dim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from model.checkpoint.backbones import AttentionInterface, BertConfig, BertModel
from model.reading.rows import JointRows

_WITHIN_ROWS = "within_rows"
_OUTSIDE = -1e4
"""Logit of what is masked; finite, so that a row without any token has no NaN."""


class SpanLogits(NamedTuple):
    """Logits of being the first and the last token of the answer; in the last column, of "not here".

    The softmax goes over a whole row: the columns of all passages and the last one together.
    """

    start_QN1: Tensor
    end_QN1: Tensor

    def no_answer(self) -> Tensor:
        """probability_Q that no passage holds an answer: the mean of both softmaxes."""
        starts_Q: Tensor = self.start_QN1.softmax(-1)[:, -1]
        ends_Q: Tensor = self.end_QN1.softmax(-1)[:, -1]
        return starts_Q.lerp(ends_Q, 0.5)


class JointReader(nn.Module):
    """Start and end logits of every passage token of all rows of a question, and of "not here"."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = new_encoder(config)
        self.points = nn.Linear(config.hidden_size, 2)
        nn.init.normal_(self.points.weight, std=0.02)
        nn.init.zeros_(self.points.bias)

    def forward(self, rows: JointRows) -> SpanLogits:
        """The first token of each row stands for "not here"; a row without any valid token takes no part."""
        points_RT2 = self.read(*(each.flatten(0, 1) for each in (rows.ids_QKT, rows.segment_QKT, rows.valid_QKT)))
        return self.share(points_RT2.view(*rows.ids_QKT.shape, 2), rows.valid_QKT, rows.passage_QKT)

    def read(self, ids_RT: Tensor, segment_RT: Tensor, valid_RT: Tensor) -> Tensor:
        """points_RT2 (float32): how well each token of each row would begin and end an answer. Rows do not see each
        other; padding is at their ends."""
        states_NE = encoded(self.encoder, ids_RT[valid_RT], segment_RT[valid_RT], valid_RT.sum(1).tolist())
        points_RT2 = torch.zeros(*ids_RT.shape, 2, device=ids_RT.device)
        points_RT2[valid_RT] = self.points(states_NE).float()
        return points_RT2

    def share(self, points_QKT2: Tensor, valid_QKT: Tensor, passage_QKT: Tensor) -> SpanLogits:
        """Turns the points of all rows of a question (`read`) into what `forward` returns."""
        taken_QK1 = valid_QKT[..., :1]
        none_QK2 = points_QKT2[:, :, 0].masked_fill(~taken_QK1, -math.inf)
        # The mean of the rows' probabilities, so that it does not grow with their number.
        none_Q12 = (none_QK2.logsumexp(1) - taken_QK1.sum(1).log())[:, None]
        points_QN2 = points_QKT2.masked_fill(~passage_QKT[..., None], _OUTSIDE).flatten(1, 2)
        return SpanLogits(*torch.cat((points_QN2, none_Q12), 1).unbind(-1))


def new_encoder(config: BertConfig) -> Any:
    """A BERT whose rows are concatenated, for `encoded`."""
    encoder: Any = BertModel(config, add_pooling_layer=False)
    AttentionInterface.register(_WITHIN_ROWS, attention_within_rows)  # process-wide, so never at import
    encoder.set_attn_implementation(_WITHIN_ROWS)
    return encoder


def encoded(encoder: Any, ids_N: Tensor, segment_N: Tensor, lengths: Sequence[int]) -> Tensor:
    """states_NE of rows of these lengths, which do not see each other.

    They are concatenated without padding, because the encoder multiplies token by token. So a row's result is the same
    to the last bit, whichever rows are read with it."""
    position_N = torch.cat([torch.arange(length, device=ids_N.device) for length in lengths])
    states_1NE: Tensor = encoder(
        input_ids=ids_N[None], token_type_ids=segment_N[None], position_ids=position_N[None], row_lengths=lengths
    ).last_hidden_state
    return states_1NE[0]


def attention_within_rows(
    _module: nn.Module,
    query_1HND: Tensor,
    key_1HND: Tensor,
    value_1HND: Tensor,
    _mask: Tensor | None,
    *,
    row_lengths: Sequence[int],
    scaling: float,
    dropout: float = 0.0,
    **_others: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it, of each token to those of its own row. Returns mixed_1NHD.

    Written out, because rows are short: `scaled_dot_product_attention` is slower in bfloat16 on a CPU (a pass of a row
    by 1.4, its gradient by 6)."""
    rows = zip(*(each.split(row_lengths, 2) for each in (query_1HND, key_1HND, value_1HND)), strict=True)
    mixed = []
    for query_1HTD, key_1HTD, value_1HTD in rows:
        weight_1HTT = (query_1HTD * scaling @ key_1HTD.mT).softmax(-1)
        mixed.append(nn.functional.dropout(weight_1HTT, dropout, dropout > 0) @ value_1HTD)
    return torch.cat(mixed, 2).transpose(1, 2), None
