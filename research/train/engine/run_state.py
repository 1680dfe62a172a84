"""The folder of a small training run: its settings, its log, and its state, which is replaced at once.

- run.json: the settings; a folder holds one run
- log.jsonl: a line for everything worth noting
- state.safetensors: weights and moments of the optimizer
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings that can be given on a command line and kept in a file; for dataclasses."""

    def changed(self, settings: Sequence[str]) -> Self:
        """With "name=value" settings in TOML. Raises ValueError for an unknown name."""
        known = {field.name for field in fields(self)}
        given: dict[str, Any] = {}
        for setting in settings:
            given |= tomllib.loads(setting)
        if unknown := given.keys() - known:
            raise ValueError(f"There is no setting {sorted(unknown)}; choose from {', '.join(sorted(known))}.")
        return self.with_values(given)

    def with_values(self, given: Mapping[str, Any]) -> Self:
        """Changed as read from TOML or JSON, whose lists are tuples here."""
        return replace(self, **{name: tuple(x) if isinstance(x, list) else x for name, x in given.items()})

    def keep(self, out: Path) -> None:
        """Write them beside the run. Raises ValueError if `out` holds a run with other settings."""
        out.mkdir(parents=True, exist_ok=True)
        note, settings = out / "run.json", json.dumps(asdict(self), indent=1)
        if note.exists() and note.read_text() != settings:
            raise ValueError(f"{out} holds a run with other settings; give another folder.")
        note.write_text(settings)


def log_record(out: Path, record: Mapping[str, Any]) -> None:
    """Add a line with the time to the log, and print it."""
    line = json.dumps({"at": time.strftime("%H:%M:%S", time.gmtime()), **record})
    with (out / "log.jsonl").open("a") as log:
        log.write(line + "\n")
    print(line, flush=True)


def save_state(file: Path, weights: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, step: int) -> None:
    """`weights`: those that the optimizer changes, by name."""
    tensors: dict[str, Tensor] = {}
    for name, weight in weights.items():
        tensors[f"weight.{name}"] = weight.detach()
        for moment in _MOMENTS:
            tensors[f"{moment}.{name}"] = optimizer.state[weight][moment]
    half = file.with_suffix(".part")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, half, {"step": str(step)})
    half.rename(file)


def resume_state(file: Path, weights: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> int:
    """Restore weights and optimizer; returns the number of steps made, 0 if there is no file."""
    if not file.exists():
        return 0
    with safe_open(file, framework="pt") as tensors, torch.no_grad():
        step = int(tensors.metadata()["step"])
        for name, weight in weights.items():
            weight.copy_(tensors.get_tensor(f"weight.{name}"))
            kept = {moment: tensors.get_tensor(f"{moment}.{name}") for moment in _MOMENTS}
            moments = {moment: each.to(weight.device, copy=True) for moment, each in kept.items()}
            # A fused optimizer counts where the weights are, another one on the CPU.
            counted_on = weight.device if optimizer.defaults.get("fused") else "cpu"
            optimizer.state[weight] = {"step": torch.tensor(float(step), device=counted_on), **moments}
    return step
