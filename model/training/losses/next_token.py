"""The language-model loss. Axes: B rows, T tokens, E hidden width, M trained positions, V vocabulary."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.checkpoint.landmark_model import LandmarkModel
from model.training.data.packing import IGNORED, Rows

HEAD_POSITIONS = 2048
"""Positions whose logits exist at one time: with a vocabulary of 50,000 these are 400 MB in float32, and the backward
pass makes them anew.
"""


def next_token_loss(model: LandmarkModel, rows: Rows) -> tuple[Tensor, dict[str, float | Tensor], int]:
    """Mean cross-entropy over the trained positions, in the form that `run_training` takes."""
    hidden_BTE = model.encode(rows.ids_BT.to(model.device), model.context())
    targets_BT = rows.targets_BT.to(model.device)
    trained_BT = targets_BT != IGNORED
    total = summed_cross_entropy(model.logits, hidden_BTE[trained_BT], targets_BT[trained_BT])
    count = rows.num_targets
    return total / max(1, count), {}, count


def summed_cross_entropy(head: Callable[[Tensor], Tensor], hidden_ME: Tensor, targets_M: Tensor) -> Tensor:
    """Sum of cross-entropies in float32, a slice of positions at a time, so that memory does not grow with positions x
    vocabulary.
    """

    def part(hidden: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(head(hidden).float(), targets, reduction="sum")

    slices = list(zip(hidden_ME.split(HEAD_POSITIONS), targets_M.split(HEAD_POSITIONS), strict=True))
    if len(slices) == 1:
        return part(*slices[0])
    losses = [checkpoint(part, *piece, use_reentrant=False) for piece in slices]
    return torch.stack(losses).sum()
