"""Weight files whose matrices are kept as int8: half the size of bfloat16, a quarter of float32.

- Hugging Face layout with `weights: "int8-rows"` in config.json. In model.safetensors a matrix `X` is int8 and
  `X_scale` (float32) holds one number per row: row = int8 row * scale. Whatever is not a matrix stays as it was.
- Expanded on loading, so no other code needs to know. Other programs must expand the file themselves.
- A weight moves by at most half a step, which is 1/254 of the largest weight of its row.

Axes: O rows of a matrix (outputs), I columns (inputs).
"""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.errors import ModelError

KIND = "int8-rows"
WEIGHTS_FILE = "model.safetensors"
_SCALE = "_scale"
_LARGEST = 127


def to_int8(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors to store for `weights`, on the CPU; of weights that share memory (tied embeddings) only the first."""
    stored: dict[str, Tensor] = {}
    seen: set[tuple[int, torch.Size]] = set()
    for name, weight in weights.items():
        memory = (weight.data_ptr(), weight.shape)
        if memory in seen:
            continue
        seen.add(memory)
        if not weight.isfinite().all():
            raise ModelError(f"{name} holds values that are not finite; the model cannot be saved.")
        if weight.dim() != 2:
            stored[name] = weight.detach().cpu().clone()
            continue
        rows_OI = weight.detach().cpu().float()
        scale_O = rows_OI.abs().amax(1) / _LARGEST
        steps_OI = rows_OI / scale_O.where(scale_O > 0, torch.ones(()))[:, None]
        stored[name] = steps_OI.round().clamp(-_LARGEST, _LARGEST).to(torch.int8)
        stored[name + _SCALE] = scale_O
    return stored


def read_int8(file: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """Weights by name in `dtype`, expanded one matrix at a time.

    Raises ModelError for a file that is missing or damaged.
    """
    try:
        with safe_open(file, framework="pt") as stored:
            names = set(stored.keys())
            weights = {}
            for name in sorted(names):
                if name.endswith(_SCALE) and name.removesuffix(_SCALE) in names:
                    continue
                tensor = stored.get_tensor(name)
                if tensor.dtype == torch.int8:
                    if name + _SCALE not in names:
                        raise ModelError(f"{file} is damaged: {name} is int8, but {name + _SCALE} is missing.")
                    tensor = _expanded(name, tensor, stored.get_tensor(name + _SCALE), file)
                elif tensor.dim() == 2 or not tensor.is_floating_point():
                    raise ModelError(f"{file} is damaged: {name} is {tensor.dtype}, not int8 with a scale per row.")
                weights[name] = tensor.to(dtype)
    except (FileNotFoundError, SafetensorError) as error:
        raise ModelError(f"{file} cannot be read ({error}); copy the checkpoint again.") from error
    return weights


def _expanded(name: str, steps_OI: Tensor, scale_O: Tensor, file: Path) -> Tensor:
    if steps_OI.dim() != 2 or scale_O.shape != steps_OI.shape[:1]:
        raise ModelError(
            f"{file} is damaged: {name} has shape {tuple(steps_OI.shape)} and its scales {tuple(scale_O.shape)}; "
            "there must be one scale per row."
        )
    if not (scale_O.isfinite() & (scale_O >= 0)).all():
        raise ModelError(f"{file} is damaged: {name + _SCALE} holds values that are not valid scales.")
    return steps_OI.float() * scale_O.float()[:, None]
