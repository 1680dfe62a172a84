"""int8 keys and values with one scale per head and block.

- value = integer * scale and scale = largest magnitude / 127, so the error is at most scale / 2.
- Scales are computed over the rows that are read: padding rows are stored as zeros, and the landmark's row does not
  count (its key is stored separately in 16 bit, and its value is never attended to).

Axes: P any number of leading axes, L tokens in a block (landmark last), D head dim.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 127


def quantise(rows_PLD: Tensor, valid_PL: Tensor) -> tuple[Tensor, Tensor]:
    """int8 rows and float32 scales `[P]`. Invalid rows become zeros; the landmark's row saturates."""
    rows_PLD = rows_PLD.float()
    ordinary_PLD = rows_PLD[..., :-1, :] * valid_PL[..., :-1, None]
    largest_P = ordinary_PLD.abs().amax(dim=(-2, -1))
    scales_P = torch.where(largest_P > 0, largest_P / LARGEST, 1.0)
    scaled_PLD = torch.cat([ordinary_PLD, rows_PLD[..., -1:, :]], dim=-2) / scales_P[..., None, None]
    return scaled_PLD.round().clamp(-LARGEST, LARGEST).to(torch.int8), scales_P


def dequantise(rows_PLD: Tensor, scales_P: Tensor) -> Tensor:
    """float32 rows."""
    return rows_PLD.float() * scales_P[..., None, None]
