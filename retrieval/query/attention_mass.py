"""Credits blocks with the attention that read them: per token, per layer and head, and for a whole answer.

- A token's attention is that of its last query row, the one that chose the token; question rows before it are not
  counted.
- "Mass" is gate mass: the landmark probability of a block. Over the blocks read and the local window it sums to 1.
- Only blocks that were read are kept, so that attention may choose from a whole library.

Axes: B batch (1), Y memory layers, H query heads, Q queries, S slots, U blocks read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention.memory import Selection


@dataclass(frozen=True, eq=False)
class TokenMass:
    """One token: `mass_U` averaged over the weighed layers and heads, of the blocks `ids_U` (ascending), by
    their number in the memory. `memory_share`: the part of the token's attention that went to the memory, averaged over
    all layers and heads alike."""

    ids_U: Tensor
    mass_U: Tensor
    memory_share: float

    def strongest(self, limit: int) -> list[tuple[int, float]]:
        """(number of the block in the memory, mass), strongest first, zeros left out."""
        read = int((self.mass_U > 0).sum())
        masses, places = self.mass_U.topk(min(limit, read))
        return [(int(block), float(mass)) for block, mass in zip(self.ids_U[places], masses, strict=True)]


def mass_by_head(selections: Sequence[Selection], layers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """ids_U (ascending) of the blocks that the newest query row read, and mass_YHU (float32, CPU); zeros for layers
    that read nothing."""
    if not selections:
        return torch.zeros(0, dtype=torch.long), torch.zeros(len(layers), 1, 0)
    # One copy of everything, in numbers that hold both exactly: for each one the host waits for the device.
    rows = [(read.ids_BHQS[0, :, -1].double(), read.gate_BHQS[0, :, -1].double()) for read in selections]
    read_HV = torch.cat([torch.cat(row, 1) for row in rows], 1).cpu()
    by_layer = read_HV.split([2 * ids_HS.shape[1] for ids_HS, _ in rows], 1)
    ids_U = torch.cat([pair.chunk(2, 1)[0].flatten() for pair in by_layer]).long().unique()
    mass_YHU = torch.zeros(len(layers), len(read_HV), len(ids_U))
    for read, pair in zip(selections, by_layer, strict=True):
        ids_HS, gate_HS = pair.chunk(2, 1)
        places_HS = torch.searchsorted(ids_U, ids_HS.long().contiguous())
        mass_YHU[list(layers).index(read.layer)].scatter_add_(1, places_HS, gate_HS.float())
    return ids_U, mass_YHU


class AnswerMass:
    """Sums the attention of an answer's tokens as they come.

    `weights_YH`: the share of each head in what counts as evidence (`LandmarkConfig.evidence_weights`, else those of
    search; None: equal). The map by layer and head shows every head as it is.
    """

    def __init__(self, layers: Sequence[int], num_heads: int, weights_YH: Tensor | None = None):
        self.layers = tuple(layers)
        shares_YH = torch.ones(len(self.layers), num_heads) if weights_YH is None else weights_YH.float()
        self._shares_YH = shares_YH / shares_YH.sum()
        self._totals: dict[int, Tensor] = {}  # number of the block in the memory -> mass_YH
        self._count, self._share = 0, 0.0

    def add(self, selections: Sequence[Selection]) -> TokenMass:
        ids_U, mass_YHU = mass_by_head(selections, self.layers)
        for at, block in enumerate(ids_U.tolist()):
            mass_YH = mass_YHU[:, :, at]
            self._totals[block] = self._totals[block] + mass_YH if block in self._totals else mass_YH
        self._count += 1
        share = min(1.0, float(mass_YHU.sum(-1).mean())) if mass_YHU.numel() else 0.0
        self._share += share
        weighed_U = torch.einsum("yh,yhu->u", self._shares_YH, mass_YHU) if len(ids_U) else torch.zeros(0)
        return TokenMass(ids_U, weighed_U, share)

    def mean_mass_YH(self, block: int) -> Tensor:
        """Mean mass of a block over the tokens so far; zeros for one that was not read."""
        return self._totals.get(block, torch.zeros_like(self._shares_YH)) / max(1, self._count)

    @property
    def masses(self) -> dict[int, float]:
        """Number of the block in the memory -> mean over tokens and weighed heads: the answer's attention on each block
        read."""
        return {block: float((self._shares_YH * self.mean_mass_YH(block)).sum()) for block in self._totals}

    @property
    def memory_share(self) -> float:
        """Mean over tokens, layers and heads alike."""
        return self._share / max(1, self._count)
