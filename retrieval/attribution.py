"""From what attention read to who deserves the credit: per token, per layer and head, and for a whole answer.

- A token's attention is that of its last query row, the one that chose the token; question rows before it are not
  counted.
- "Mass" is gate mass: the landmark probability of a block. Over the blocks read and the local window it sums to 1.

Axes: B batch (1), Y memory layers, H query heads, Q queries, S slots, C blocks of the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.memory import Selection


@dataclass(frozen=True, eq=False)
class TokenMass:
    """One token: `mass_C` averaged over layers and heads; its sum is the share of attention on the memory."""

    mass_C: Tensor

    @property
    def memory_share(self) -> float:
        return min(1.0, float(self.mass_C.sum()))

    def strongest(self, limit: int) -> list[tuple[int, float]]:
        """(block of the reader, mass), strongest first, zeros left out."""
        read = int((self.mass_C > 0).sum())
        masses, ids = self.mass_C.topk(min(limit, read))
        return [(int(block), float(mass)) for block, mass in zip(ids, masses, strict=True)]


def mass_by_head(selections: Sequence[Selection], layers: Sequence[int], num_blocks: int) -> Tensor:
    """mass_YHC (float32, CPU) of the newest query row over `num_blocks` blocks; zeros for layers that read nothing."""
    rows = {selection.layer: _last_row(selection, num_blocks) for selection in selections}
    heads = next(iter(rows.values())).shape[0] if rows else 1
    return torch.stack([rows.get(layer, torch.zeros(heads, num_blocks)) for layer in layers])


def _last_row(selection: Selection, num_blocks: int) -> Tensor:
    gate_HS = selection.gate_BHQS[0, :, -1].float().cpu()
    ids_HS = selection.ids_BHQS()[0, :, -1].cpu()
    return torch.zeros(gate_HS.shape[0], num_blocks).scatter_add_(1, ids_HS, gate_HS)


class AnswerMass:
    """Sums the attention of an answer's tokens as they come."""

    def __init__(self, layers: Sequence[int], num_heads: int, num_blocks: int):
        self.layers, self.num_blocks = tuple(layers), num_blocks
        self._total_YHC = torch.zeros(len(self.layers), num_heads, num_blocks)
        self._count = 0

    def add(self, selections: Sequence[Selection]) -> TokenMass:
        mass_YHC = mass_by_head(selections, self.layers, self.num_blocks)
        self._total_YHC += mass_YHC
        self._count += 1
        return TokenMass(mass_YHC.mean((0, 1)))

    @property
    def heat_YHC(self) -> Tensor:
        """Mean over the tokens so far."""
        return self._total_YHC / max(1, self._count)

    @property
    def mass_C(self) -> Tensor:
        """Mean over tokens, layers and heads: the answer's attention on each block."""
        return self.heat_YHC.mean((0, 1))

    @property
    def memory_share(self) -> float:
        return min(1.0, float(self.mass_C.sum()))
