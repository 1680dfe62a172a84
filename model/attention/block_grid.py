"""The block grid: the positions of landmarks in a token sequence.

- A block is `block_size - 1` ordinary (raw) tokens followed by one landmark.
- Grids start at position 0 of the sequence; an unfinished block at the end has no landmark yet.
"""

from collections.abc import Sequence

from model.errors import ModelError


def insert_landmarks(raw_ids: Sequence[int], *, block_size: int, landmark_token_id: int, filled: int = 0) -> list[int]:
    """Put a landmark after every complete run of `block_size - 1` raw tokens, also at the very end.

    `filled`: raw tokens already in the unfinished block that `raw_ids` continue.
    Raises `ModelError` if a raw token is the landmark itself: only the grid places landmarks.
    """
    if landmark_token_id in raw_ids:
        raise ModelError(
            "the input contains the landmark token, which only the block grid may place; remove it from the text."
        )
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


def num_blocks(num_raw: int, block_size: int) -> int:
    """Blocks that `num_raw` tokens fill or begin."""
    return -(-num_raw // (block_size - 1))
