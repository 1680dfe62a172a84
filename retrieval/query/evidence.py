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

from model.attention.memory import Selection


@dataclass(frozen=True, eq=False)
class TokenMass:
    """One token: `mass_C` averaged over the weighed layers and heads; its sum is the share of attention on the
    memory."""

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
    ids_HS = selection.ids_BHQS[0, :, -1].cpu()
    return torch.zeros(gate_HS.shape[0], num_blocks).scatter_add_(1, ids_HS, gate_HS)


class AnswerMass:
    """Sums the attention of an answer's tokens as they come.

    `weights_YH`: the share of each head, as in search (None: equal), so that heads that were never taught to find
    anything do not decide what counts as evidence. The heat map shows every head as it is.
    """

    def __init__(self, layers: Sequence[int], num_heads: int, num_blocks: int, weights_YH: Tensor | None = None):
        self.layers, self.num_blocks = tuple(layers), num_blocks
        shares_YH = torch.ones(len(self.layers), num_heads) if weights_YH is None else weights_YH.float()
        self._shares_YH = shares_YH / shares_YH.sum()
        self._total_YHC = torch.zeros(len(self.layers), num_heads, num_blocks)
        self._count = 0

    def add(self, selections: Sequence[Selection]) -> TokenMass:
        mass_YHC = mass_by_head(selections, self.layers, self.num_blocks)
        self._total_YHC += mass_YHC
        self._count += 1
        return TokenMass(self._weighed(mass_YHC))

    @property
    def heat_YHC(self) -> Tensor:
        """Mean over the tokens so far."""
        return self._total_YHC / max(1, self._count)

    @property
    def mass_C(self) -> Tensor:
        """Mean over tokens and weighed heads: the answer's attention on each block."""
        return self._weighed(self.heat_YHC)

    def _weighed(self, mass_YHC: Tensor) -> Tensor:
        return torch.einsum("yh,yhc->c", self._shares_YH, mass_YHC)

    @property
    def memory_share(self) -> float:
        return min(1.0, float(self.mass_C.sum()))
