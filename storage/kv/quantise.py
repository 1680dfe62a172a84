"""Keys and values in few bits.

int8, one scale for a block of a head:
- value = integer * scale and scale = largest magnitude / 127, so the error is at most scale / 2.

4 and 2 bits, a scale in 16 bit for each channel (a place on the axis D) of a block of a head:
- value = (code - (2^bits - 1) / 2) * scale and scale = largest magnitude of the channel / 2^(bits - 1): the levels lie
  in the middle of equal steps, none of them on zero, so the error is at most scale / 2.
- A channel of zeros has the scale 0.
- Codes are packed plane by plane: of n bytes, number i of a piece is in byte i mod n, from its bit bits * (i div n) on.
  So unpacking is a mask and a copy for each plane.

Scales are computed over the rows that are read: padding rows are stored as zero bits, and so is the landmark's row in
few bits (in int8 it does not count and saturates): its key is stored separately in 16 bit, its value never attended to.

Axes: P any number of leading axes, L tokens in a block (landmark last), D head dim, B bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 127


def quantise(rows_PLD: Tensor, valid_PL: Tensor) -> tuple[Tensor, Tensor]:
    """int8 rows and float32 scales `[P]`. Invalid rows become zeros; the landmark's row saturates."""
    rows_PLD = rows_PLD.float()
    ordinary_PLD = rows_PLD[..., :-1, :] * valid_PL[..., :-1, None]
    largest_P = ordinary_PLD.abs().amax(dim=(-2, -1))
    scales_P = torch.where(largest_P > 0, largest_P / LARGEST, 1.0)
    scaled_PLD = torch.cat([ordinary_PLD, rows_PLD[..., -1:, :]], dim=-2) / scales_P[..., None, None]
    return scaled_PLD.round().clamp(-LARGEST, LARGEST).to(torch.int8), scales_P


def dequantise(rows_PLD: Tensor, scales_P: Tensor) -> Tensor:
    """float32 rows."""
    return rows_PLD.float() * scales_P[..., None, None]


def packed_bytes(length: int, head_dim: int, bits: int) -> int:
    """Bytes of the codes of one piece's keys, or of its values."""
    return -(-length * head_dim * bits // 8)


def quantise_channels(rows_PLD: Tensor, valid_PL: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes uint8 `[P, B]` and float16 scales `[P, D]`, which are infinite where float16 cannot hold them."""
    steps = 2 ** (bits - 1)
    ordinary_PL1 = (valid_PL & (torch.arange(valid_PL.shape[-1]) < valid_PL.shape[-1] - 1))[..., None]
    ordinary_PLD = rows_PLD.float().masked_fill(~ordinary_PL1, 0.0)
    scales_PD = (ordinary_PLD.abs().amax(-2) / steps).half()
    scaled_PLD = ordinary_PLD / scales_PD.float().clamp_min(torch.finfo(torch.float32).tiny)[..., None, :]
    codes_PLD = (scaled_PLD.floor() + steps).clamp(0, 2 * steps - 1).masked_fill(~ordinary_PL1, 0.0)
    return _packed(codes_PLD.to(torch.uint8).flatten(-2), bits), scales_PD


def dequantise_channels(packed_PB: Tensor, scales_PD: Tensor, length: int, bits: int) -> Tensor:
    """float32 rows_PLD from codes `[P, B]`, P one axis."""
    count, size = packed_PB.shape
    width = scales_PD.shape[1]
    mask = 2**bits - 1
    numbers_PNB = torch.empty((count, 8 // bits, size), dtype=torch.float32)
    for plane in range(8 // bits):
        numbers_PNB[:, plane] = (packed_PB >> (bits * plane)) & mask
    rows_PLD: Tensor = numbers_PNB.flatten(1)[:, : length * width].unflatten(1, (length, width))
    return rows_PLD.sub_(mask / 2).mul_(scales_PD.float()[:, None])


def _packed(codes_PN: Tensor, bits: int) -> Tensor:
    """uint8 `[P, B]`."""
    planes = 8 // bits
    size = -(-codes_PN.shape[-1] // planes)
    padded_PN = torch.nn.functional.pad(codes_PN, (0, size * planes - codes_PN.shape[-1]))
    packed_PB = padded_PN[..., :size].clone()
    for plane in range(1, planes):
        packed_PB |= padded_PN[..., plane * size : (plane + 1) * size] << (bits * plane)
    return packed_PB
