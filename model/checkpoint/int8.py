"""Checkpoints whose matrices are kept as int8: half the size of bfloat16, a quarter of float32.

- Hugging Face layout with `weights: "int8-rows"` in config.json. In model.safetensors a matrix `X` is int8 and
  `X_scale` (float32) holds one number per row: row = int8 row * scale. Whatever is not a matrix stays as it was.
- Expanded when loaded (`load_backbone`), so nothing behind it knows. Other programs must expand it themselves.
- A weight moves by at most half a step, which is 1/254 of the largest weight of its row.

Axes: O rows of a matrix (outputs), I columns (inputs).
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import cached_file

from model.errors import ModelError

if TYPE_CHECKING:
    from model.checkpoint.landmark_model import LandmarkModel

KIND = "int8-rows"
WEIGHTS_FILE = "model.safetensors"
_SCALE = "_scale"
_LARGEST = 127


def save_int8(model: "LandmarkModel", folder: str | Path) -> None:
    """Write the model with int8 matrices, its config and its tokenizer; `load_backbone` reads it.

    Raises ModelError if a weight is not finite.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(compacted(model.backbone.state_dict()), folder / WEIGHTS_FILE, metadata={"format": "pt"})
    config: dict[str, Any] = json.loads(model.backbone.config.to_json_string())
    config |= {
        "architectures": [type(model.backbone).__name__],
        "dtype": str(model.dtype).removeprefix("torch."),
        "landmark": model.config.to_dict(),
        "weights": KIND,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    model.tokenizer.save_pretrained(folder)
    if model.pointing is not None:
        model.pointing.save(folder)


def compacted(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors to store for `weights`, on the CPU. Of weights that share memory (tied embeddings) the first is
    kept."""
    stored: dict[str, Tensor] = {}
    seen: set[tuple[int, torch.Size]] = set()
    for name, weight in weights.items():
        place = (weight.data_ptr(), weight.shape)
        if place in seen:
            continue
        seen.add(place)
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
    """Weights by name in `dtype`, expanded one matrix at a time. Raises ModelError for a file that is missing or
    damaged."""
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


def read_weights(source: str, config: PreTrainedConfig, dtype: torch.dtype) -> Any:
    """The backbone in `dtype`, its matrices expanded where they are kept as int8 (`model.checkpoint.int8`)."""
    kind = getattr(config, "weights", None)
    if kind is None:
        return AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
    if kind != KIND:
        raise ModelError(
            f"{source} keeps its weights as {kind!r}, which this version does not know (only {KIND!r}): "
            "the checkpoint was made by a newer version; update Cairn."
        )
    file = cached_file(source, WEIGHTS_FILE, _raise_exceptions_for_missing_entries=False)
    if file is None:
        raise ModelError(f"{source} holds no {WEIGHTS_FILE}; copy the checkpoint again.")
    del config.weights  # the model in memory is a plain one, and so is what `LandmarkModel.save` writes
    family: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    try:
        backbone, found = family.from_pretrained(
            None, config=config, state_dict=read_int8(Path(file), dtype), dtype=dtype, output_loading_info=True
        )
    except RuntimeError as error:  # raised for shapes that differ
        raise ModelError(f"{file} does not fit its config.json: {error}") from error
    if wrong := sorted(found["missing_keys"] | found["unexpected_keys"]):
        raise ModelError(f"{file} does not fit its config.json; first weight that is missing or unknown: {wrong[0]}.")
    return backbone


def _expanded(name: str, steps_OI: Tensor, scale_O: Tensor, file: Path) -> Tensor:
    if steps_OI.dim() != 2 or scale_O.shape != steps_OI.shape[:1]:
        raise ModelError(
            f"{file} is damaged: {name} has shape {tuple(steps_OI.shape)} and its scales {tuple(scale_O.shape)}; "
            "there must be one scale per row."
        )
    if not (scale_O.isfinite() & (scale_O >= 0)).all():
        raise ModelError(f"{file} is damaged: {name + _SCALE} holds values that are no scales.")
    return steps_OI.float() * scale_O.float()[:, None]
