"""Rows that pay: a few passages, read once, and many questions about them.

A question sees stored blocks of its row and none of the other questions, so that one reading of the passages serves all
of them: about 150 tokens a question instead of 1,500.

Axes: P passages, W blocks of a passage, L tokens of a block (landmark last), N = P x W blocks, Q questions, T tokens of
a question with its answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from model.attention.block_grid import insert_landmarks, on_block_grid

KINDS = ("questions", "gaps", "passkeys", "copying", "text")
IGNORED = -100
"""Target of a position that no loss looks at."""


@dataclass(frozen=True)
class Asked:
    """One question and its answer, as raw tokens."""

    prompt: list[int]
    """Empty for a continuation of plain text, of which every token is a target."""
    answer: list[int]
    places: tuple[tuple[int, int, int], ...] = ()
    """(passage of the row, first, last): its raw tokens first..last-1 answer; each block with one of them is right."""
    kind: str = KINDS[0]


@dataclass(frozen=True)
class RowText:
    """A row before it is laid out on the block grid."""

    passages: list[list[int]]
    """Raw tokens, at most W x (L - 1) of each."""
    asked: list[Asked]
    documents: list[int] = field(default_factory=list)
    """Number of the document of each passage, equal for parts of one text; empty: all different."""


@dataclass(frozen=True)
class Size:
    """What a row is laid out in: all steps have the same shapes, so that a GPU replays one as a graph."""

    passages: int
    blocks: int
    """Of a passage."""
    questions: int
    asked: int
    """Raw tokens of a question with its answer."""

    def tokens(self, block_size: int) -> int:
        """T: of a window, whose last raw token is only predicted."""
        return self.asked - 1 + (self.asked - 1) // (block_size - 1)


@dataclass(frozen=True)
class Row:
    """A row on the block grid, as tensors on one device. Rows of padding hold nothing that is trained."""

    ids_PT: Tensor
    valid_PT: Tensor
    windows_QT: Tensor
    """Question and answer with landmarks, padded on the right."""
    targets_QT: Tensor
    """The next raw token where it is trained, else `IGNORED`."""
    voting_QT: Tensor
    """The tokens of the prompt, or of a continuation: what chooses blocks before the first word is said."""
    gold_QN: Tensor
    """Which blocks hold the answer."""
    kind_Q: Tensor
    """Of `KINDS`; -1 for padding, which repeats the first question."""
    document_N: Tensor
    """Number of the document of each block; -1 where there is no such block."""
    lengths_N: Tensor
    """Ordinary tokens of each block."""

    @property
    def tokens(self) -> int:
        """Tokens of passages and questions, without padding of the former."""
        return int(self.valid_PT.sum()) + self.questions * self.windows_QT.shape[1]

    @property
    def questions(self) -> int:
        return int((self.kind_Q >= 0).sum())


def join(texts: Sequence[RowText]) -> RowText:
    """One row of several, whose questions see the blocks of all. A document that stands in an earlier one already is
    left out, with what is asked about it: its blocks would be right ones that count as wrong."""
    passages, asked, documents = list[list[int]](), list[Asked](), list[int]()
    for text in texts:
        earlier, numbers = set(documents), dict[int, int]()
        for number, (passage, document) in enumerate(zip(text.passages, text.documents, strict=True)):
            if document not in earlier:
                numbers[number] = len(passages)
                passages.append(passage)
                documents.append(document)
        for one in text.asked:
            if all(passage in numbers for passage, _, _ in one.places):
                places = tuple((numbers[passage], first, last) for passage, first, last in one.places)
                asked.append(replace(one, places=places))
    return RowText(passages, asked, documents)


def fit(text: RowText, size: Size) -> RowText:
    """A row without the passages and questions that are too many, or too long."""
    kept = [
        asked
        for asked in text.asked
        if len(asked.prompt) + len(asked.answer) <= size.asked
        and all(passage < size.passages for passage, _, _ in asked.places)
    ]
    return RowText(text.passages[: size.passages], kept[: size.questions], text.documents[: size.passages])


def lay_out(text: RowText, size: Size, *, block_size: int, landmark: int, padding: int) -> Row:
    """Put a row that fits on the block grid. `padding`: any ordinary token."""
    raw = block_size - 1
    assert all(0 < len(passage) <= raw * size.blocks for passage in text.passages), "a passage is cut before"
    assert 0 < len(text.asked) <= size.questions and len(text.passages) <= size.passages, "a row is made to fit before"
    missing = size.passages - len(text.passages)
    ids_PWL, valid_PWL, lengths_PW = on_block_grid(
        [*text.passages, *[[]] * missing], size.blocks,
        block_size=block_size, landmark_token_id=landmark, padding=padding,
    )  # fmt: skip
    document_P = torch.tensor([*(text.documents or range(len(text.passages))), *[-1] * missing])
    gold_QPW = torch.zeros(len(text.asked), size.passages, size.blocks, dtype=torch.bool)
    for number, asked in enumerate(text.asked):
        for passage_of, first, last in asked.places:
            gold_QPW[number, passage_of, first // raw : (last - 1) // raw + 1] = True
    windows_QT, targets_QT, voting_QT = _windows(text.asked, size.tokens(block_size), block_size, landmark, padding)
    kind_Q = torch.tensor([KINDS.index(asked.kind) for asked in text.asked])
    row_Q = torch.arange(size.questions)
    real_Q, row_Q = row_Q < len(text.asked), torch.where(row_Q < len(text.asked), row_Q, 0)
    return Row(
        ids_PWL.flatten(1),
        valid_PWL.flatten(1),
        windows_QT[row_Q],
        torch.where(real_Q[:, None], targets_QT[row_Q], IGNORED),
        voting_QT[row_Q],
        gold_QPW.flatten(1)[row_Q],
        torch.where(real_Q, kind_Q[row_Q], -1),
        torch.where(lengths_PW > 0, document_P[:, None], -1).flatten(),
        lengths_PW.flatten(),
    )


def _windows(
    asked: Sequence[Asked], longest: int, block_size: int, landmark: int, padding: int
) -> tuple[Tensor, Tensor, Tensor]:
    """windows_QT, targets_QT and voting_QT: the output at a token predicts the next raw token; nothing is trained at a
    landmark, whose output the product does not use."""
    rows = []
    for one in asked:
        raw = one.prompt + one.answer
        ids = insert_landmarks(raw[:-1], block_size=block_size, landmark_token_id=landmark)
        following = iter(raw[1:])
        targets = [IGNORED if token == landmark else next(following) for token in ids]
        hidden = len(insert_landmarks(one.prompt[:-1], block_size=block_size, landmark_token_id=landmark))
        rows.append((ids, [IGNORED] * hidden + targets[hidden:], hidden + 1 if one.prompt else len(ids)))
    windows_QT = torch.full((len(rows), longest), padding)
    windows_QT[:, block_size - 1 :: block_size] = landmark
    targets_QT = torch.full((len(rows), longest), IGNORED)
    for row, (ids, targets, _) in enumerate(rows):
        windows_QT[row, : len(ids)] = torch.tensor(ids)
        targets_QT[row, : len(ids)] = torch.tensor(targets)
    voting_QT = torch.arange(longest) < torch.tensor([voting for *_, voting in rows])[:, None]
    return windows_QT, targets_QT, voting_QT
