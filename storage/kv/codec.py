"""Encoding blocks of tensors as the bytes of a shard file, and decoding pieces. No I/O.

Axes: N stored blocks, P pieces (a block of one head), Y memory layers, G KV heads, L tokens in a block (landmark last),
D head dim.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from storage.kv.format import (
    KVLayout,
    dequantise,
    dequantise_channels,
    encode_front,
    front_bytes,
    piece_checksums,
    quantise,
    quantise_channels,
)


def encode_shard(
    name: str, fingerprint: str, layout: KVLayout, keys_NYGLD: Tensor, values_NYGLD: Tensor, lengths_N: Tensor
) -> memoryview:
    """The complete file. Raises `ValueError` for wrong shapes and for numbers that the layout's dtype cannot hold."""
    _check_shapes(layout, keys_NYGLD, values_NYGLD, lengths_N)
    num_blocks = len(lengths_N)
    pieces_offset = front_bytes(name, fingerprint, layout, num_blocks)
    num_pieces = len(layout.layers) * layout.kv_heads * num_blocks
    contents = torch.empty(pieces_offset + num_pieces * layout.piece_bytes, dtype=torch.uint8)
    pieces_YGN = contents[pieces_offset:].view(len(layout.layers), layout.kv_heads, num_blocks, layout.piece_bytes)
    _fill_pieces(pieces_YGN, layout, keys_NYGLD, values_NYGLD, lengths_N.cpu())
    landmarks_NYGD = keys_NYGLD[..., -1, :].cpu().to(layout.landmark_dtype).contiguous()
    _require_finite(landmarks_NYGD, "landmark keys")

    pieces = pieces_YGN.view(-1, layout.piece_bytes).numpy()
    checksums = piece_checksums(pieces, fingerprint, name, layout, num_blocks)
    sections = {
        "lengths": np.asarray(lengths_N.cpu(), "<u4").tobytes(),
        "landmarks": landmarks_NYGD.view(-1).view(torch.uint8).numpy().tobytes(),
        "checksums": checksums.tobytes(),
    }
    front = encode_front(name, fingerprint, layout, num_blocks, sections)
    assert len(front) == pieces_offset
    contents[:pieces_offset] = torch.frombuffer(bytearray(front), dtype=torch.uint8)
    return contents.numpy().data


def _fill_pieces(
    pieces_YGN: Tensor, layout: KVLayout, keys_NYGLD: Tensor, values_NYGLD: Tensor, lengths_N: Tensor
) -> None:
    shape = (*pieces_YGN.shape[1:3], 2, layout.block_size, layout.head_dim)
    valid_NL = torch.arange(layout.block_size)[None, :] < lengths_N[:, None]
    valid_GNL = valid_NL.expand(layout.kv_heads, -1, -1)
    for y in range(len(layout.layers)):  # layer by layer, to keep the copies small
        for which, rows_NYGLD in enumerate((keys_NYGLD, values_NYGLD)):
            rows_GNLD = rows_NYGLD[:, y].detach().cpu().transpose(0, 1)
            what = f"{('keys', 'values')[which]} of layer {layout.layers[y]}"
            if layout.exact_dtype is not None:
                stored_GN2LD = pieces_YGN[y].view(-1).view(layout.exact_dtype).view(shape)
                stored_GN2LD[:, :, which].copy_(rows_GNLD)
                _require_finite(stored_GN2LD[:, :, which], what)
                continue
            _require_finite(rows_GNLD, what)
            if layout.bits is not None and not layout.bits[which]:
                continue
            if layout.bits is not None:
                rows_GNB, scales_GNX = quantise_channels(rows_GNLD, valid_GNL, layout.bits[which])
                _require_finite(scales_GNX, f"{what}, the scales of their channels,")
            else:
                rows_GNLD, scales_GN = quantise(rows_GNLD, valid_GNL)
                rows_GNB, scales_GNX = rows_GNLD.flatten(-2).view(torch.uint8), scales_GN[..., None]
            scales_GNB = scales_GNX.contiguous().view(torch.uint8)
            first = which * scales_GNB.shape[-1]
            pieces_YGN[y, ..., first : first + scales_GNB.shape[-1]] = scales_GNB
            first = layout.keys_bytes if which else layout.scales_bytes
            pieces_YGN[y, ..., first : first + rows_GNB.shape[-1]] = rows_GNB


def decode_pieces(raw_P: Tensor, layout: KVLayout) -> tuple[Tensor, Tensor]:
    """keys_PLD, values_PLD from uint8 `[P, piece_bytes]`: views of it where numbers are stored as they are, else
    float32.

    Rounded keys still lack their landmark rows, which are stored separately in 16 bit.
    """
    shape = (-1, 2, layout.block_size, layout.head_dim)
    if layout.exact_dtype is not None:
        rows_P2LD = raw_P.view(-1).view(layout.exact_dtype).view(shape)
        return rows_P2LD[:, 0], rows_P2LD[:, 1]
    return _rounded(raw_P, layout, 0), _rounded(raw_P, layout, 1)


def decode_keys(raw_P: Tensor, layout: KVLayout) -> Tensor:
    """keys_PLD in `layout.landmark_dtype` from uint8 `[P, keys_bytes]`: a view of it where numbers are stored as they
    are, else without the landmark rows."""
    if layout.exact_dtype is not None:
        return raw_P.view(-1).view(layout.exact_dtype).view(-1, layout.block_size, layout.head_dim)
    return _rounded(raw_P, layout, 0).to(layout.landmark_dtype)


def _rounded(raw_P: Tensor, layout: KVLayout, which: int) -> Tensor:
    """float32 rows_PLD, keys (0) or values (1), of pieces that hold numbers in fewer bits."""
    if layout.bits is not None and not layout.bits[which]:
        return torch.zeros(len(raw_P), layout.block_size, layout.head_dim, device=raw_P.device)
    own_scales = layout.scales_bytes // (1 if layout.bits is not None and not layout.bits[1] else 2)
    scales_PB = raw_P[:, which * own_scales : (which + 1) * own_scales].contiguous()
    numbers_PB = raw_P[:, layout.keys_bytes :] if which else raw_P[:, layout.scales_bytes : layout.keys_bytes]
    if layout.bits is not None:
        return dequantise_channels(numbers_PB, scales_PB.view(torch.float16), layout.block_size, layout.bits[which])
    rows_PLD = numbers_PB.contiguous().view(torch.int8).view(-1, layout.block_size, layout.head_dim)
    return dequantise(rows_PLD, scales_PB.view(torch.float32)[:, 0])


def _check_shapes(layout: KVLayout, keys_NYGLD: Tensor, values_NYGLD: Tensor, lengths_N: Tensor) -> None:
    expected = (len(lengths_N), len(layout.layers), layout.kv_heads, layout.block_size, layout.head_dim)
    for what, tensor in (("keys", keys_NYGLD), ("values", values_NYGLD)):
        if tuple(tensor.shape) != expected:
            raise ValueError(f"{what} have shape {tuple(tensor.shape)}; this store takes {expected}")
    if len(lengths_N) == 0:
        raise ValueError("a shard holds at least one block")
    if int(lengths_N.min()) < 1 or int(lengths_N.max()) >= layout.block_size:
        raise ValueError(f"a block holds 1 to {layout.block_size - 1} tokens and a landmark: {lengths_N.tolist()}")


def _require_finite(numbers: Tensor, what: str) -> None:
    # aminmax propagates NaN and is a hundred times faster than isfinite on bf16.
    least, most = torch.aminmax(numbers)
    if not (torch.isfinite(least) and torch.isfinite(most)):
        raise ValueError(
            f"{what} are not finite in {str(numbers.dtype).removeprefix('torch.')}, so they cannot be stored. "
            "If the model's own output is finite, store its memory as bf16."
        )
