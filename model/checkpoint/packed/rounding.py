"""A matrix as codes of a few bits and scales: weight = (code - 2 ** (bits - 1)) * scale of its group.

- A group is a stretch of columns of a row. Its scale is the one, of a few, whose rounded weights lie nearest in sum of
  squares; it may be negative, because there is one more step on the side below zero.
- `compensated`: columns are rounded one after the other, and the weights not yet rounded make up for each error as far
  as inputs are correlated (GPTQ, arXiv 2210.17323).

Axes: O rows of a matrix (outputs), I columns (inputs), G groups of columns, C columns of a group.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_SHARES = torch.linspace(0.5, 1.1, 25).tolist()
"""Of the scale with which the largest weight of a group has the last code: those tried."""
_DAMPING = 0.01
"""Of the mean square of the inputs, added to each, so that inputs that hardly vary give no large corrections."""
_AT_ONCE = 64
"""Columns after which the rest of a matrix makes up for their errors."""


class Rounded(NamedTuple):
    """`codes_OI`: uint8; `scale_OG`: bfloat16, for I / G columns each."""

    codes_OI: Tensor
    scale_OG: Tensor

    def expanded(self, bits: int) -> Tensor:
        """weight_OI in float32."""
        weight_OI: Tensor = self.codes_OI.float().sub_(2 ** (bits - 1))
        weight_OI.unflatten(1, (self.scale_OG.shape[1], -1)).mul_(self.scale_OG.float()[..., None])  # a view of it
        return weight_OI


def nearest(weight_OI: Tensor, bits: int, group: int) -> Rounded:
    """Every weight to the nearest step. `group`: columns that share a scale; all, where it does not divide them."""
    scale_OG = _scales(weight_OI, bits, group)
    scale_OI = scale_OG.float().repeat_interleave(weight_OI.shape[1] // scale_OG.shape[1], 1)
    return Rounded(_codes(weight_OI, scale_OI, bits).to(torch.uint8), scale_OG)


def compensated(weight_OI: Tensor, bits: int, group: int, products_II: Tensor) -> Rounded:
    """Rounded so that outputs change least. `products_II`: sum of inputs' outer products over calibration tokens."""
    rows, columns = weight_OI.shape
    scale_OG = _scales(weight_OI, bits, group)
    scale_IO = scale_OG.float().T.repeat_interleave(columns // scale_OG.shape[1], 0)
    order_I = products_II.diagonal().argsort(descending=True)  # those that matter most have all others make up for them
    spread_II = _inverse_root(products_II.float()[order_I][:, order_I])
    left_IO, scale_IO = weight_OI.T[order_I].float(), scale_IO[order_I]
    codes_IO = torch.empty(columns, rows, dtype=torch.uint8)
    for first in range(0, columns, _AT_ONCE):
        stop = min(first + _AT_ONCE, columns)
        errors_IO = torch.empty(stop - first, rows)
        for column in range(first, stop):
            code_O = _codes(left_IO[column], scale_IO[column], bits)
            codes_IO[column] = code_O.to(torch.uint8)
            step_O = (code_O - 2 ** (bits - 1)) * scale_IO[column]
            errors_IO[column - first] = (left_IO[column] - step_O) / spread_II[column, column]
            rest = slice(column + 1, stop)
            left_IO[rest] -= spread_II[column, rest, None] * errors_IO[column - first]
        left_IO[stop:] -= spread_II[first:stop, stop:].T @ errors_IO
    codes_OI = torch.empty(rows, columns, dtype=torch.uint8)
    codes_OI[:, order_I] = codes_IO.T
    return Rounded(codes_OI, scale_OG)


def _scales(weight_OI: Tensor, bits: int, group: int) -> Tensor:
    """scale_OG (bfloat16)."""
    columns = weight_OI.shape[1]
    weight_OGC = weight_OI.float().unflatten(1, (columns // group if columns % group == 0 else 1, -1))
    largest_OG1 = weight_OGC.gather(-1, weight_OGC.abs().argmax(-1, keepdim=True))
    best_OG1, least_OG1 = torch.zeros_like(largest_OG1), weight_OGC.square().sum(-1, keepdim=True)
    for share in _SHARES:
        scale_OG1 = (largest_OG1 * (-share / 2 ** (bits - 1))).bfloat16().float()
        steps_OGC = _codes(weight_OGC, scale_OG1, bits).sub_(2 ** (bits - 1)).mul_(scale_OG1)
        error_OG1 = steps_OGC.sub_(weight_OGC).square_().sum(-1, keepdim=True)
        better_OG1 = error_OG1 < least_OG1
        best_OG1, least_OG1 = best_OG1.where(~better_OG1, scale_OG1), least_OG1.minimum(error_OG1)
    return best_OG1[..., 0].bfloat16()


def _codes(weight: Tensor, scale: Tensor, bits: int) -> Tensor:
    """Nearest codes, as float32; where the scale is zero that of zero."""
    half = 2 ** (bits - 1)
    return (weight / scale.where(scale != 0, torch.ones(()))).round_().clamp_(-half, half - 1).add_(half)


def _inverse_root(products_II: Tensor) -> Tensor:
    """Upper triangular U with U.T U = inverse of the damped products."""
    damping = products_II.diagonal().mean().clamp_min(1e-12) * _DAMPING
    damped_II = products_II + damping * torch.eye(len(products_II))
    inverse_II = torch.cholesky_inverse(torch.linalg.cholesky(damped_II))
    root_II: Tensor = torch.linalg.cholesky(inverse_II, upper=True)
    return root_II
