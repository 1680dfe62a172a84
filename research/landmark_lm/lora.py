"""Low-rank adapters (arXiv 2106.09685) and the landmark's own embedding: the few weights that are trained.

y = x W^T + s (x A^T) B^T with A [rank, in], B [out, rank], s = alpha / rank. The adapter's weights are in the model's
dtype; the optimizer keeps float32 copies (`optimizer`).
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from model.checkpoint.adapter import LANDMARK
from model.checkpoint.landmark_model import LandmarkModel

ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class LoraLinear(nn.Module):
    """A frozen matrix with a trained low-rank part."""

    def __init__(self, frozen: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.frozen, self.scale = frozen, alpha / rank
        like = frozen.weight
        self.a = nn.Parameter(torch.empty(rank, frozen.in_features, dtype=like.dtype, device=like.device))
        self.b = nn.Parameter(torch.zeros(frozen.out_features, rank, dtype=like.dtype, device=like.device))
        nn.init.normal_(self.a, std=1 / math.sqrt(frozen.in_features))

    def forward(self, x: Tensor) -> Tensor:
        # Of many thousand tokens a step: the sum of the weights costs less than that of what they give.
        weight = torch.addmm(self.frozen.weight, self.b, self.a, alpha=self.scale)
        return nn.functional.linear(x, weight, self.frozen.bias)


class LandmarkEmbedding(nn.Module):
    """The frozen embedding with a trained row for the landmark."""

    def __init__(self, frozen: nn.Embedding, landmark: int) -> None:
        super().__init__()
        self.frozen, self.landmark = frozen, landmark
        self.row = nn.Parameter(frozen.weight[landmark].detach().clone())

    @property
    def weight(self) -> Tensor:
        """The frozen table, which the output head shares."""
        return self.frozen.weight

    @property
    def num_embeddings(self) -> int:
        return self.frozen.num_embeddings

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = torch.where((ids == self.landmark).unsqueeze(-1), self.row, self.frozen(ids))
        return y


def adapt(model: LandmarkModel, *, rank: int, alpha: float, layers: Iterable[int]) -> dict[str, nn.Parameter]:
    """Freeze the network, put adapters into the matrices of `layers` and train the landmark's row.

    Returns the trained weights by name, in a fixed order.
    """
    for weight in model.backbone.parameters():
        weight.requires_grad_(False)
    inner = model.backbone.model
    inner.embed_tokens = LandmarkEmbedding(inner.embed_tokens, model.config.landmark_token_id)
    trained = {LANDMARK: inner.embed_tokens.row}
    for number in layers:
        layer = inner.layers[number]
        for part in (layer.self_attn, layer.mlp):
            for name in ADAPTED:
                if isinstance(matrix := getattr(part, name, None), nn.Linear):
                    lora = LoraLinear(matrix, rank, alpha)
                    setattr(part, name, lora)
                    trained |= {f"{number}.{name}.a": lora.a, f"{number}.{name}.b": lora.b}
    return trained


def train_all(model: LandmarkModel) -> dict[str, nn.Parameter]:
    """Every weight of the network, by name."""
    return dict(model.backbone.named_parameters())
