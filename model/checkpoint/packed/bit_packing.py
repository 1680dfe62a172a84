"""Codes of 1 to 8 bits in bytes, eight codes in as many bytes as a code has bits.

- The eight that share bytes stand J columns apart (columns j, J + j, ..., 7J + j), so that packing and unpacking take
  whole stretches of columns at once. Code e of the eight begins at bit `e * bits` of their bytes, lowest bit first.
- The bytes' shape says everything: B is the number of bits, 8J the number of columns.

Axes: O rows of a matrix, I columns, J = I / 8, B bytes of eight codes.
"""

import torch
from torch import Tensor

TOGETHER = 8
"""Codes that share bytes; a matrix needs a multiple of so many columns."""


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


def unpack(packed_BOJ: Tensor) -> Tensor:
    """codes_OI (uint8) of what `pack` gave."""
    bits, rows, columns = packed_BOJ.shape
    codes_OEJ = torch.empty(rows, TOGETHER, columns, dtype=torch.uint8)
    for number in range(TOGETHER):
        byte, shift = divmod(number * bits, 8)
        codes_OJ = packed_BOJ[byte] >> shift
        if shift + bits > 8:
            codes_OJ |= packed_BOJ[byte + 1] << (8 - shift)
        codes_OEJ[:, number] = codes_OJ & (2**bits - 1)
    return codes_OEJ.flatten(1)
