"""The size that a model's name tells: qwen3:0.6b, SmolLM2-135M-Instruct.Q4_1.gguf, Meta-Llama-3.1-8B."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)(m|b)(?![a-z0-9])", re.IGNORECASE)
_UNITS = {"m": 1_000_000, "b": 1_000_000_000}


def weights_in_name(name: str) -> int | None:
    """None where the name has no size, or several, as those of mixtures have."""
    sizes = {round(float(number) * _UNITS[unit.lower()]) for number, unit in _SIZE.findall(name)}
    return sizes.pop() if len(sizes) == 1 else None
