"""Weight files whose matrices are kept in few bits, and how they are read.

Hugging Face layout; whatever is not a matrix stays as it was, and everything is expanded on loading, so that no other
code needs to know. Other programs must expand the file themselves.

- `weights: "int8-rows"` in config.json: a matrix `X` is int8 and `X_scale` (float32) holds one number per row:
  row = int8 row * scale.
- `weights: "packed-groups"`: a matrix `X` is uint8, codes of B bits packed, and `X_scale` (bfloat16) holds one number
  for each group of columns of each row: weight = (code - 2 ** (B - 1)) * scale. Eight codes lie in B bytes; they stand
  J columns apart (columns j, J + j, ..., 7J + j), so that whole stretches of columns are unpacked at once. Code e of
  the eight begins at bit `e * B` of their bytes, lowest bit first. Matrices may differ in bits; some may be int8.

Axes: O rows of a matrix (outputs), I columns (inputs), G groups of columns, J = I / 8, B bytes of eight codes.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.errors import ModelError

INT8, PACKED = "int8-rows", "packed-groups"
WEIGHTS_FILE = "model.safetensors"
SCALE = "_scale"
"""What the name of a matrix's scales ends in."""
FEWEST_BITS, MOST_BITS = 2, 8
TOGETHER = 8
"""Codes that share bytes; a packed matrix has a multiple of so many columns."""


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
        fits, wanted = tensor.dim() == 2 and scale.shape == tensor.shape[:1], "there must be one scale per row."
    else:
        bits, rows, columns = tensor.shape if tensor.dim() == 3 else (0, 0, 0)
        divided = scale.dim() == 2 and len(scale) == rows and scale.shape[1] and not columns * TOGETHER % scale.shape[1]
        fits = bool(FEWEST_BITS <= bits < MOST_BITS and divided)
        wanted = "there must be as many scales for each row, each for as many columns."
    if not fits:
        raise ModelError(
            f"{file} is damaged: {name} has shape {tuple(tensor.shape)} and its scales {tuple(scale.shape)}; {wanted}"
        )
    negative = tensor.dtype == torch.int8 and bool((scale < 0).any())
    if negative or not (scale.is_floating_point() and scale.isfinite().all()):
        raise ModelError(f"{file} is damaged: {name + SCALE} holds values that are not valid scales.")
    if tensor.dtype == torch.int8:
        return tensor.float() * scale.float()[:, None]
    return expand_groups(unpack(tensor), scale, len(tensor))


def expand_groups(codes_OI: Tensor, scale_OG: Tensor, bits: int) -> Tensor:
    """weight_OI (float32) of codes with a scale for each group of columns."""
    weight_OI: Tensor = codes_OI.float().sub_(2 ** (bits - 1))
    weight_OI.unflatten(1, (scale_OG.shape[1], -1)).mul_(scale_OG.float()[..., None])  # a view of it
    return weight_OI


def unpack(packed_BOJ: Tensor) -> Tensor:
    """codes_OI (uint8)."""
    bits, rows, columns = packed_BOJ.shape
    codes_OEJ = torch.empty(rows, TOGETHER, columns, dtype=torch.uint8)
    for number in range(TOGETHER):
        byte, shift = divmod(number * bits, 8)
        codes_OJ = packed_BOJ[byte] >> shift
        if shift + bits > 8:
            codes_OJ |= packed_BOJ[byte + 1] << (8 - shift)
        codes_OEJ[:, number] = codes_OJ & (2**bits - 1)
    return codes_OEJ.flatten(1)
