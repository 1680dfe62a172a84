"""The language-model loss. Axes: B rows, T tokens, E hidden width, M trained positions, V vocabulary."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.attention.context import LandmarkContext
from model.checkpoint.landmark_model import LandmarkModel
from research.train.data.packing import IGNORED, Rows

HEAD_POSITIONS = 2048
"""Positions whose logits exist at one time: with a vocabulary of 50,000 these are 400 MB in float32; the backward pass
makes them again."""


def next_token_loss(
    model: LandmarkModel, rows: Rows, context: LandmarkContext | None = None
) -> tuple[Tensor, dict[str, float | Tensor], int]:
    """Mean cross-entropy over the trained positions, in the form that `run_training` takes."""
    hidden_BTE = model.encode(rows.ids_BT.to(model.device), context or model.context())
    targets_BT = rows.targets_BT.to(model.device)
    trained_BT = targets_BT != IGNORED
    total = summed_cross_entropy(model.logits, hidden_BTE[trained_BT], targets_BT[trained_BT])
    count = rows.num_targets
    return total / max(1, count), {}, count


def summed_cross_entropy(head: Callable[[Tensor], Tensor], hidden_ME: Tensor, targets_M: Tensor) -> Tensor:
    """Sum of cross-entropies in float32, a slice of positions at a time, so that memory does not grow with positions x
    vocabulary."""

    def part(hidden: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(head(hidden).float(), targets, reduction="sum")

    slices = list(zip(hidden_ME.split(HEAD_POSITIONS), targets_M.split(HEAD_POSITIONS), strict=True))
    if len(slices) == 1:
        return part(*slices[0])
    losses = [checkpoint(part, *piece, use_reentrant=False) for piece in slices]
    return torch.stack(losses).sum()


def sampled_token_loss(
    model: LandmarkModel, ids_BT: Tensor, valid_BT: Tensor, hidden_BTE: Tensor, positions: int
) -> Tensor:
    """Mean cross-entropy of the next raw token at a sample of raw positions (landmarks neither predict nor are
    predicted)."""
    size, length = model.config.block_size, ids_BT.shape[1]
    place_T = torch.arange(length, device=ids_BT.device)
    next_T = torch.where(place_T % size == size - 2, place_T + 2, place_T + 1).clamp_max(length - 1)
    usable_BT = valid_BT & valid_BT[:, next_T] & (place_T % size != size - 1) & (place_T < length - 2)
    usable_M = usable_BT.flatten().nonzero()[:, 0]
    chosen_M = usable_M[torch.randperm(len(usable_M), device=usable_M.device)[:positions]]
    targets_M = ids_BT[:, next_T].flatten()[chosen_M]
    return summed_cross_entropy(model.logits, hidden_BTE.flatten(0, 1)[chosen_M], targets_M) / max(1, len(chosen_M))
