"""Weight files whose matrices are kept as int8: half the size of bfloat16, a quarter of float32.

- Hugging Face layout with `weights: "int8-rows"` in config.json. In model.safetensors a matrix `X` is int8 and
  `X_scale` (float32) holds one number per row: row = int8 row * scale. Whatever is not a matrix stays as it was.
- Expanded on loading (`model.checkpoint.packed.weights_file.read_weights`), so no other code needs to know. Other
  programs must expand the file themselves.
- A weight moves by at most half a step, which is 1/254 of the largest weight of its row.

Axes: O rows of a matrix (outputs), I columns (inputs).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from model.errors import ModelError

KIND = "int8-rows"
WEIGHTS_FILE = "model.safetensors"
SCALE = "_scale"
"""What the name of a matrix's scales ends in."""
_LARGEST = 127


def to_int8(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors to store for `weights`, on the CPU; of weights that share memory (tied embeddings) only the first."""
    stored: dict[str, Tensor] = {}
    for name, weight in distinct_weights(weights):
        if weight.dim() == 2:
            stored[name], stored[name + SCALE] = round_rows(weight)
        else:
            stored[name] = weight.clone()
    return stored


def distinct_weights(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """(name, weight on the CPU) of every weight that shares no memory with an earlier one. Raises ModelError for one
    that is not finite."""
    seen: set[tuple[int, torch.Size]] = set()
    for name, weight in weights.items():
        memory = (weight.data_ptr(), weight.shape)
        if memory in seen:
            continue
        seen.add(memory)
        if not weight.isfinite().all():
            raise ModelError(f"{name} holds values that are not finite; the model cannot be saved.")
        yield name, weight.detach().cpu()


def round_rows(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """steps_OI (int8) and scale_O (float32)."""
    rows_OI = weight_OI.float()
    scale_O = rows_OI.abs().amax(1) / _LARGEST
    steps_OI = rows_OI / scale_O.where(scale_O > 0, torch.ones(()))[:, None]
    return steps_OI.round().clamp(-_LARGEST, _LARGEST).to(torch.int8), scale_O


def expand_rows(name: str, steps_OI: Tensor, scale_O: Tensor, file: Path) -> Tensor:
    """weight_OI (float32). Raises ModelError, which names the file, for steps and scales that do not fit."""
    if steps_OI.dim() != 2 or scale_O.shape != steps_OI.shape[:1]:
        raise ModelError(
            f"{file} is damaged: {name} has shape {tuple(steps_OI.shape)} and its scales {tuple(scale_O.shape)}; "
            "there must be one scale per row."
        )
    if not (scale_O.isfinite() & (scale_O >= 0)).all():
        raise ModelError(f"{file} is damaged: {name + SCALE} holds values that are not valid scales.")
    return steps_OI.float() * scale_O.float()[:, None]
