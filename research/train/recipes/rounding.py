"""Checkpoints with rounded matrices: how they are written (`model.checkpoint.weights` says what the files hold).

- int8: a weight moves by at most half a step, which is 1/254 of the largest weight of its row.
- Fewer bits: a group is a stretch of columns of a row. Its scale is the one, of a few, whose rounded weights lie
  nearest in sum of squares; it may be negative, because there is one more step on the side below zero.

(Plain checkpoints: `LandmarkModel.save`.)

Axes: O rows of a matrix (outputs), I columns (inputs), G groups of columns, C columns of a group, B and J as in
`model.checkpoint.weights`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.weights import FEWEST_BITS, INT8, MOST_BITS, SCALE, TOGETHER, WEIGHTS_FILE
from model.errors import ModelError
from model.reading.span_reader import FOLDER, SpanReader

GROUP = 64
"""Columns that share a scale, unless a rule says otherwise."""
_LARGEST = 127
_SHARES = torch.linspace(0.5, 1.1, 25).tolist()
"""Of the scale with which the largest weight of a group has the last code: those tried."""


class Rule(NamedTuple):
    """How a matrix with `part` in its name is kept."""

    part: str
    bits: int
    group: int = GROUP


def save_int8(model: LandmarkModel, folder: str | Path) -> None:
    """Write the model with int8 matrices, its config and its tokenizer; `load_backbone` reads it.

    Raises ModelError if a weight is not finite. (In fewer bits: `fewer_bits`.)
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(to_int8(model.backbone.state_dict()), folder / WEIGHTS_FILE, metadata={"format": "pt"})
    config: dict[str, Any] = json.loads(model.backbone.config.to_json_string())
    config |= {
        "architectures": [type(model.backbone).__name__],
        "dtype": str(model.dtype).removeprefix("torch."),
        "landmark": model.config.to_dict(),
        "weights": INT8,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    model.tokenizer.save_pretrained(folder)


def save_reader(reader: SpanReader, folder: Path) -> None:
    """Write the reader to its own folder of a checkpoint: weights as int8 with a scale per row."""
    folder = folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    save_file(to_int8(reader.network.state_dict()), folder / WEIGHTS_FILE)
    (folder / "config.json").write_text(reader.network.config.to_json_string())
    reader.tokenizer.save(str(folder / "tokenizer.json"), pretty=False)


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


def to_packed(weights: Mapping[str, Tensor], rules: Sequence[Rule]) -> dict[str, Tensor]:
    """The tensors to store for `weights`, on the CPU; of weights that share memory (tied embeddings) only the first.

    Of the rules that fit a matrix the last counts; others keep 8 bits. Every weight is rounded to
    the nearest step. Raises ModelError for weights that
    are not finite, ValueError for bits that cannot be stored.
    """
    for rule in rules:
        if not (FEWEST_BITS <= rule.bits <= MOST_BITS and rule.group > 0):
            raise ValueError(
                f"{rule.part}={rule.bits}/{rule.group}: a matrix takes {FEWEST_BITS} to {MOST_BITS} bits a weight, "
                "and a scale for at least one."
            )
    stored: dict[str, Tensor] = {}
    for name, weight in distinct_weights(weights):
        _, bits, group = next((rule for rule in reversed(rules) if rule.part in name), Rule("", MOST_BITS))
        if weight.dim() != 2:
            stored[name] = weight.clone()
        elif bits == MOST_BITS or weight.shape[1] % TOGETHER:
            stored[name], stored[name + SCALE] = round_rows(weight)
        else:
            codes_OI, scale_OG = nearest(weight, bits, group)
            stored[name], stored[name + SCALE] = pack(codes_OI, bits), scale_OG
    return stored


def nearest(weight_OI: Tensor, bits: int, group: int) -> tuple[Tensor, Tensor]:
    """codes_OI (uint8) and scale_OG (bfloat16): every weight to the nearest step.

    `group`: columns that share a scale; all, where it does not divide them."""
    scale_OG = _scales(weight_OI, bits, group)
    scale_OI = scale_OG.float().repeat_interleave(weight_OI.shape[1] // scale_OG.shape[1], 1)
    return _codes(weight_OI, scale_OI, bits).to(torch.uint8), scale_OG


def _scales(weight_OI: Tensor, bits: int, group: int) -> Tensor:
    """scale_OG (bfloat16)."""
    columns = weight_OI.shape[1]
    weight_OGC = weight_OI.float().unflatten(1, (columns // group if columns % group == 0 else 1, -1))
    largest_OG1 = weight_OGC.gather(-1, weight_OGC.abs().argmax(-1, keepdim=True))
    best_OG1, least_OG1 = torch.zeros_like(largest_OG1), weight_OGC.square().sum(-1, keepdim=True)
    for share in _SHARES:
        scale_OG1 = (largest_OG1 * (-share / 2 ** (bits - 1))).bfloat16().float()
        steps_OGC = _codes(weight_OGC, scale_OG1, bits).sub_(2 ** (bits - 1)).mul_(scale_OG1)
        error_OG1 = steps_OGC.sub_(weight_OGC).square_().sum(-1, keepdim=True)
        better_OG1 = error_OG1 < least_OG1
        best_OG1, least_OG1 = best_OG1.where(~better_OG1, scale_OG1), least_OG1.minimum(error_OG1)
    return best_OG1[..., 0].bfloat16()


def _codes(weight: Tensor, scale: Tensor, bits: int) -> Tensor:
    """Nearest codes, as float32; where the scale is zero that of zero."""
    half = 2 ** (bits - 1)
    return (weight / scale.where(scale != 0, torch.ones(()))).round_().clamp_(-half, half - 1).add_(half)


def pack(codes_OI: Tensor, bits: int) -> Tensor:
    """packed_BOJ (uint8). `codes_OI`: uint8, below `2 ** bits`."""
    rows, columns = codes_OI.shape
    assert columns % TOGETHER == 0 and not (codes_OI >> bits).any(), f"not codes of {bits} bits in whole bytes"
    packed_BOJ = torch.zeros(bits, rows, columns // TOGETHER, dtype=torch.uint8)
    for number, codes_OJ in enumerate(codes_OI.chunk(TOGETHER, 1)):
        byte, shift = divmod(number * bits, 8)
        packed_BOJ[byte] |= codes_OJ << shift  # what is shifted out of the byte is lost, and stands in the next
        if shift + bits > 8:
            packed_BOJ[byte + 1] |= codes_OJ >> (8 - shift)
    return packed_BOJ
