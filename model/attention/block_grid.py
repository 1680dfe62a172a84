"""The block grid: where landmarks stand among the tokens of a text. Where stored blocks stand: `positions.py`.

- A block is `block_size - 1` ordinary (raw) tokens followed by one landmark.
- The grid starts with the text. An unfinished block at the end has no landmark yet; only where a document is stored
  (`model.inference.prefill`) is it padded and given one.

Axes: B batch, T tokens, N blocks, L tokens in a block (landmark last), J = L - 1 ordinary ones, R = N x J.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from model.errors import ModelError


def insert_landmarks(raw_ids: Sequence[int], *, block_size: int, landmark_token_id: int, filled: int = 0) -> list[int]:
    """Put a landmark after every complete run of `block_size - 1` raw tokens, also at the very end.

    `filled`: raw tokens already in the unfinished block that `raw_ids` continue.
    Raises `ModelError` if a raw token is the landmark itself: only the grid places landmarks.
    """
    _refuse_landmarks(raw_ids, landmark_token_id)
    per_block = block_size - 1
    assert 0 <= filled < per_block
    out: list[int] = []
    for token in raw_ids:
        out.append(int(token))
        filled += 1
        if filled == per_block:
            out.append(landmark_token_id)
            filled = 0
    return out


def _refuse_landmarks(raw_ids: Sequence[int], landmark_token_id: int) -> None:
    if landmark_token_id in raw_ids:
        raise ModelError(
            "the text contains the landmark token, which only the block grid may place; remove it from the text."
        )


def on_block_grid(
    texts: Sequence[Sequence[int]], blocks: int, *, block_size: int, landmark_token_id: int, padding: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """ids_BNL and valid_BNL of texts of raw tokens side by side, each in N = `blocks` blocks, and lengths_BN, the
    ordinary tokens of each block.

    The last block of a text is filled with `padding`; empty ones are behind it, whose landmarks are not valid. Raises
    `ModelError` for a landmark among the raw tokens.
    """
    per_block = block_size - 1
    raw_BR = torch.full((len(texts), blocks * per_block), padding)
    for row_R, text in zip(raw_BR, texts, strict=True):
        _refuse_landmarks(text, landmark_token_id)
        row_R[: len(text)] = torch.as_tensor(text, dtype=torch.int64)
    ids_BNJ = raw_BR.unflatten(1, (blocks, per_block))
    ids_BNL = nn.functional.pad(ids_BNJ, (0, 1), value=landmark_token_id)
    lengths_BN = torch.tensor([[len(text)] for text in texts]) - torch.arange(blocks) * per_block
    lengths_BN = lengths_BN.clamp(0, per_block)
    token, lengths_BN1 = torch.arange(block_size), lengths_BN.unsqueeze(-1)
    return ids_BNL, (token < lengths_BN1) | ((token == per_block) & (lengths_BN1 > 0)), lengths_BN


def check_landmarks(ids_BT: Tensor, block_size: int, landmark_token_id: int, valid_BT: Tensor | None = None) -> None:
    """Raise `ModelError` for a landmark that does not end a block of the grid; padding may hold anything."""
    inside_T = torch.arange(ids_BT.shape[1], device=ids_BT.device) % block_size < block_size - 1
    wrong_BT = (ids_BT == landmark_token_id) & inside_T
    if valid_BT is not None:
        wrong_BT &= valid_BT
    if bool(wrong_BT.any()):
        row, at = wrong_BT.nonzero()[0].tolist()
        raise ModelError(
            f"a landmark stands inside a block, at position {at} of row {row}: with blocks of {block_size} tokens they "
            f"stand at positions {block_size - 1}, {2 * block_size - 1}, ...; place them with with_landmarks()."
        )


def num_blocks(num_raw: int, block_size: int) -> int:
    """Blocks that `num_raw` tokens fill or begin."""
    return -(-num_raw // (block_size - 1))
