"""Which precision a network computes fastest in."""

from __future__ import annotations

from typing import Literal

import torch


def fast_precision(device: str) -> Literal["fp32", "bf16"]:
    """bf16 where the machine multiplies in it; a CPU without such instructions is eight times slower in bf16."""
    native = device != "cpu" or any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16"))
    return "bf16" if native else "fp32"
