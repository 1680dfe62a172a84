"""Rows for the joint reader: [CLS] question [SEP] title : passage [SEP], padded and stacked.

Axes: Q questions, K rows (a question with one passage each), T tokens of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

LONGEST_QUESTION = 48
LONGEST_TITLE = 16


@dataclass(frozen=True)
class JointRows:
    """Input of a joint reader. `segment_QKT`: 0 for the question, 1 for title and passage; `valid_QKT`: False in
    padding; `passage_QKT`: True where an answer may stand; `begins`: of each row, its first passage token."""

    ids_QKT: Tensor
    segment_QKT: Tensor
    valid_QKT: Tensor
    passage_QKT: Tensor
    begins: list[int]


@dataclass(frozen=True)
class RowTokens:
    """Ids of the special tokens of a row."""

    pad: int
    first: int
    separator: int
    colon: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> RowTokens:
        """Raises ValueError for a vocabulary that is not BERT's."""
        ids: list[int] = []
        for token in ("[PAD]", "[CLS]", "[SEP]", ":"):
            if (number := tokenizer.token_to_id(token)) is None:
                raise ValueError(f"The tokenizer has no {token}; a reader needs the tokens of BERT.")
            ids.append(number)
        return cls(*ids)


def join_rows(
    rows: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]], per_question: int, tokens: RowTokens
) -> JointRows:
    """Rows of (question, title, passage) ids without special tokens, `per_question` of them for each question."""
    assert rows and len(rows) % per_question == 0, "every question has the same number of rows"
    heads = [
        [
            tokens.first,
            *asked[:LONGEST_QUESTION],
            tokens.separator,
            *([*title[:LONGEST_TITLE], tokens.colon] if title else []),
        ]
        for asked, title, _ in rows
    ]
    length = max(len(head) + len(passage) + 1 for head, (_, _, passage) in zip(heads, rows, strict=True))
    ids_RT = torch.full((len(rows), length), tokens.pad)
    segment_RT = torch.zeros_like(ids_RT)
    valid_RT, passage_RT = torch.zeros_like(ids_RT, dtype=torch.bool), torch.zeros_like(ids_RT, dtype=torch.bool)
    for number, (head, (asked, _, passage)) in enumerate(zip(heads, rows, strict=True)):
        stop = len(head) + len(passage) + 1
        ids_RT[number, :stop] = torch.tensor([*head, *passage, tokens.separator])
        segment_RT[number, min(len(asked), LONGEST_QUESTION) + 2 : stop] = 1
        valid_RT[number, :stop] = True
        passage_RT[number, len(head) : stop - 1] = True
    shape = (len(rows) // per_question, per_question, length)
    return JointRows(
        ids_RT.view(shape), segment_RT.view(shape), valid_RT.view(shape), passage_RT.view(shape), list(map(len, heads))
    )
