"""Learning-rate schedules as pure functions of progress. No torch, no state: a resumed run asks again."""

import math
from typing import Literal

ScheduleName = Literal["constant", "cosine", "one-cycle", "trapezoid"]


def rate_factor(
    name: ScheduleName,
    step: float,
    steps: int,
    *,
    warmup: float = 0.0,
    num_cycles: float = 0.5,
    start_ratio: float = 0.01,
    final_ratio: float = 0.0,
    decay: float = 0.2,
) -> float:
    """The factor on the peak learning rate at `step` of `steps` (0-based; may be a fraction).

    constant:  linear warm-up over `warmup * steps`, then 1.
    cosine:    the same warm-up, then a cosine over `num_cycles` (0.5 ends at 0, 0.4 near 0.1), as in transformers.
    one-cycle: cosine rise from `start_ratio` to 1 over `warmup`, cosine fall to `final_ratio`, as torch's OneCycleLR.
    trapezoid: linear warm-up, 1, and a linear fall to `final_ratio` over the last `decay * steps`.
    """
    if steps < 1 or step < 0:
        raise ValueError(f"A schedule needs steps >= 1 and step >= 0, not {steps} and {step}.")
    if name == "one-cycle":
        return _one_cycle(step, steps, warmup, start_ratio, final_ratio)
    warmup_steps = math.ceil(warmup * steps)
    if step < warmup_steps:
        return step / warmup_steps
    if name == "constant":
        return 1.0
    if name == "cosine":
        progress = min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))
        return max(0.0, 0.5 * (1.0 + math.cos(2.0 * math.pi * num_cycles * progress)))
    if name == "trapezoid":
        decay_steps = max(1, math.ceil(decay * steps))
        left = min(1.0, max(0.0, steps - step) / decay_steps)
        return final_ratio + (1.0 - final_ratio) * left
    raise ValueError(f"Unknown schedule {name!r}: use constant, cosine, one-cycle or trapezoid.")


def _one_cycle(step: float, steps: int, warmup: float, start_ratio: float, final_ratio: float) -> float:
    def cosine(start: float, end: float, part: float) -> float:
        return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * part))

    peak, last = warmup * steps - 1.0, steps - 1.0  # torch counts from 0, so the phases end one step early
    if step <= peak:
        return cosine(start_ratio, 1.0, step / peak if peak > 0 else 1.0)
    return cosine(1.0, final_ratio, min(1.0, (step - peak) / max(1e-9, last - peak)))
