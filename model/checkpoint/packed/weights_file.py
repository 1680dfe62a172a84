"""Weight files whose matrices are kept in few bits, and how every form of them is read.

- Hugging Face layout with `weights: "packed-groups"` in config.json. In model.safetensors a matrix `X` is uint8, its
  codes packed (`bit_packing`, whose shape says how many bits they have), and `X_scale` (bfloat16) holds one number for
  each group of columns of each row (`rounding`). Matrices may differ in bits; those of 8 bits, and those whose columns
  do not fill bytes, are int8 with a scale per row (`model.checkpoint.int8`). Whatever is not a matrix stays as it was.
- Expanded on loading, so no other code needs to know. Other programs must expand the file themselves.

Axes: O rows of a matrix (outputs), I columns (inputs), G groups of columns, B, J as in `bit_packing`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.checkpoint.int8 import SCALE, distinct_weights, expand_rows, round_rows
from model.checkpoint.packed.bit_packing import TOGETHER, pack, unpack
from model.checkpoint.packed.rounding import Rounded, compensated, nearest
from model.errors import ModelError

KIND = "packed-groups"
GROUP = 64
"""Columns that share a scale, unless a rule says otherwise."""
FEWEST_BITS, MOST_BITS = 2, 8


class Rule(NamedTuple):
    """How a matrix with `part` in its name is kept."""

    part: str
    bits: int
    group: int = GROUP


def to_packed(
    weights: Mapping[str, Tensor], rules: Sequence[Rule], products: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """The tensors to store for `weights`, on the CPU; of weights that share memory (tied embeddings) only the first.

    Of the rules that fit a matrix the last counts; others keep 8 bits. `products`: sums of outer products of matrices'
    inputs (`rounding.compensated`); other matrices are rounded to the nearest step. Raises ModelError for weights that
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
            given = (products or {}).get(name)
            rounded = nearest(weight, bits, group) if given is None else compensated(weight, bits, group, given)
            stored[name], stored[name + SCALE] = pack(rounded.codes_OI, bits), rounded.scale_OG
    return stored


def read_weights(file: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """Weights by name in `dtype`, expanded one matrix at a time; of either form, also mixed.

    Raises ModelError for a file that is missing or damaged.
    """
    try:
        with safe_open(file, framework="pt") as stored:
            names = set(stored.keys())
            weights = {}
            for name in sorted(names):
                if name.endswith(SCALE) and name.removesuffix(SCALE) in names:
                    continue
                tensor = stored.get_tensor(name)
                if tensor.dtype in (torch.int8, torch.uint8):
                    if name + SCALE not in names:
                        raise ModelError(f"{file} is damaged: {name} is rounded, but {name + SCALE} is missing.")
                    tensor = _expanded(name, tensor, stored.get_tensor(name + SCALE), file)
                elif tensor.dim() == 2 or not tensor.is_floating_point():
                    raise ModelError(f"{file} is damaged: {name} is {tensor.dtype}, not int8 or packed, with scales.")
                weights[name] = tensor.to(dtype)
    except (FileNotFoundError, SafetensorError) as error:
        raise ModelError(f"{file} cannot be read ({error}); copy the checkpoint again.") from error
    return weights


def _expanded(name: str, tensor: Tensor, scale: Tensor, file: Path) -> Tensor:
    """weight_OI (float32) of a rounded matrix."""
    if tensor.dtype == torch.int8:
        return expand_rows(name, tensor, scale, file)
    bits, rows, columns = tensor.shape if tensor.dim() == 3 else (0, 0, 0)
    fits = scale.dim() == 2 and len(scale) == rows and scale.shape[1] and not columns * TOGETHER % scale.shape[1]
    if not (FEWEST_BITS <= bits < MOST_BITS and fits):
        raise ModelError(
            f"{file} is damaged: {name} has shape {tuple(tensor.shape)} and its scales {tuple(scale.shape)}; "
            "there must be as many scales for each row, each for as many columns."
        )
    if not (scale.is_floating_point() and scale.isfinite().all()):
        raise ModelError(f"{file} is damaged: {name + SCALE} holds values that are not valid scales.")
    return Rounded(unpack(tensor), scale).expanded(bits)
