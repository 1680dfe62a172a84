"""The arms of an experiment: one network, which differs only in what its attention sees.

An arm without landmarks is a landmark model whose block no text ever fills: inside one block grouped softmax is plain
causal attention. Keys lie in the cache before rotation, so a cache that is carried from window to window has relative
positions: Transformer-XL's recurrence (arXiv 1901.02860), with rotary positions as in the paper.

Axes: B rows, T tokens, E hidden width, M predicted tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from model.checkpoint.backbones import DynamicCache
from model.checkpoint.landmark_model import LandmarkModel, cached
from research.train.data.packing import IGNORED, Rows
from research.train.losses.next_token import next_token_loss, summed_cross_entropy

NO_LANDMARKS = 1 << 20
"""Block size of an arm without landmarks."""
Kind = Literal["causal", "recurrence", "landmark"]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """How a network is trained. All arms of a table see the same number of raw tokens at each step."""

    name: str
    kind: Kind
    row_tokens: int
    """Raw tokens of a training row."""
    window: int
    """Raw tokens that one forward pass reads: the whole row, except under recurrence."""
    cache: int = 0
    """Raw tokens of earlier windows that a window also attends to, under recurrence."""
    block_size: int = NO_LANDMARKS
    start: str | None = None
    """The arm whose network this one goes on from: fine-tuning."""
    rated_as: str | None = None
    """The arm whose learning rate this one takes; None: rates are compared for the arm itself."""

    def loss(self, model: LandmarkModel, rows: Rows) -> tuple[Tensor, dict[str, float | Tensor], int]:
        """In the form that `run_training` takes."""
        if self.cache:
            return recurrent_loss(model, rows, window=self.window, cache=self.cache)
        return next_token_loss(model, rows, model.context())


def recurrent_loss(
    model: LandmarkModel, rows: Rows, *, window: int, cache: int
) -> tuple[Tensor, dict[str, float | Tensor], int]:
    """Mean cross-entropy of rows that are read window by window; no gradient flows into an earlier window.

    Tokens in the cache keep their distance.
    """
    ids_BT, targets_BT = rows.ids_BT.to(model.device), rows.targets_BT.to(model.device)
    past, total = DynamicCache(), torch.zeros((), device=model.device)
    for ids, targets in zip(ids_BT.split(window, 1), targets_BT.split(window, 1), strict=True):
        hidden_BTE = model.encode(ids, model.context(), past)
        trained = targets != IGNORED
        total = total + summed_cross_entropy(model.logits, hidden_BTE[trained], targets[trained])
        past = last_tokens(past, model.num_layers, cache)
    return total / max(1, rows.num_targets), {}, rows.num_targets


@torch.no_grad()
def recurrent_losses(model: LandmarkModel, tokens: Sequence[int], *, window: int, cache: int) -> Tensor:
    """losses_M in nats of all tokens but the first; with `cache` 0 windows know nothing of each other."""
    past, losses = DynamicCache(), []
    for at in range(0, len(tokens) - 1, window):
        ids, targets = tokens[at : at + window], tokens[at + 1 : at + window + 1]
        hidden_BTE = model.encode(torch.tensor([ids[: len(targets)]], device=model.device), model.context(), past)
        logits = model.logits(hidden_BTE[0]).float()
        losses.append(nn.functional.cross_entropy(logits, torch.tensor(targets, device=model.device), reduction="none"))
        past = last_tokens(past, model.num_layers, cache)
    return torch.cat(losses).cpu()


def last_tokens(past: DynamicCache, num_layers: int, count: int) -> DynamicCache:
    """A cache of the last tokens of another one, as numbers without a history."""
    kept = DynamicCache()
    for layer in range(num_layers if count else 0):
        keys, values = cached(past, layer)
        kept.update(keys[:, :, -count:].detach(), values[:, :, -count:].detach(), layer)
    return kept
