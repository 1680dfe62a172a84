"""Checkpoints of a run that survive a kill at any moment. A folder appears complete or not at all; nothing is pickled.

step-00000120/
  state.json             step, seconds, tokens, data position, random generators of Python and numpy, settings
  optimizer.safetensors  "<parameter>/<entry>" and the random states of torch
  trained.safetensors    every trained parameter by its name in the network (full precision, unsharded)
  model/                 the whole model in Hugging Face layout, when the model can save itself
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

_PREFIX, _UNFINISHED = "step-", ".unfinished-"
_CPU_RANDOM, _CUDA_RANDOM = "random/cpu", "random/cuda"


@dataclass(frozen=True)
class Progress:
    """Where a run stands, as numbers that fit into JSON."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    data: dict[str, Any] | None = None


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint under `folder`, or None."""
    found = sorted(folder.glob(_PREFIX + "*")) if folder.is_dir() else []
    return found[-1] if found else None


def save_checkpoint(
    folder: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    settings: dict[str, Any],
    *,
    keep: int,
    write: bool = True,
    save_model: Callable[[Path], None] | None = None,
) -> Path:
    """Write a checkpoint, then drop the oldest beyond `keep`.

    With sharded parameters every process must call this (tensors are gathered); only the one with `write` writes.
    """
    final = folder / f"{_PREFIX}{progress.step:08d}"
    unfinished = folder / f"{_UNFINISHED}{progress.step:08d}"
    trained, state = _collect(network, optimizer)
    if not write:
        return final
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(_UNFINISHED + "*"):
        shutil.rmtree(leftover)
    unfinished.mkdir()
    save_file(trained, unfinished / "trained.safetensors")
    save_file(state | _torch_random(), unfinished / "optimizer.safetensors")
    if save_model is not None:
        save_model(unfinished / "model")
    described = {
        "step": progress.step,
        "seconds": progress.seconds,
        "tokens": progress.tokens,
        "data": progress.data,
        "settings": settings,
        "random": _python_random(),
    }
    (unfinished / "state.json").write_text(json.dumps(described, indent=1))
    _sync(unfinished)
    if final.exists():
        shutil.rmtree(final)
    os.replace(unfinished, final)
    _sync_folder(folder)
    for old in sorted(folder.glob(_PREFIX + "*"))[:-keep]:
        shutil.rmtree(old)
    return final


def load_checkpoint(checkpoint: Path, network: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Put weights, optimizer state and random generators back as they were; returns where the run stands.

    Raises ValueError if the checkpoint belongs to another network (names or shapes differ).
    """
    described = json.loads((checkpoint / "state.json").read_text())
    load_trained(checkpoint / "trained.safetensors", network)
    with safe_open(checkpoint / "optimizer.safetensors", framework="pt") as stored:
        keys = list(stored.keys())
        for name, parameter in _trained_parameters(network):
            prefix = name + "/"
            entries = {key.removeprefix(prefix): stored.get_tensor(key) for key in keys if key.startswith(prefix)}
            optimizer.state[parameter] = {key: _like(value, parameter, key) for key, value in entries.items()}
        torch.set_rng_state(stored.get_tensor(_CPU_RANDOM))
        if torch.cuda.is_available() and _CUDA_RANDOM in keys:
            torch.cuda.set_rng_state(stored.get_tensor(_CUDA_RANDOM))
    _restore_python_random(described["random"])
    return Progress(described["step"], described["seconds"], described["tokens"], described["data"])


def load_trained(file: Path, network: nn.Module) -> None:
    """Copy every trained parameter from a `trained.safetensors` into the network, one tensor at a time."""
    with safe_open(file, framework="pt") as stored:
        names = set(stored.keys())
        expected = {name for name, _ in _trained_parameters(network)}
        if names != expected:
            differing = sorted(names ^ expected)[:3]
            raise ValueError(
                f"{file} belongs to another network or to other trained parameters (first differing names: "
                f"{', '.join(differing)}). Start in an empty run folder, or use the model this run was started with."
            )
        for name, parameter in _trained_parameters(network):
            value = stored.get_tensor(name)
            if value.shape != parameter.shape:
                raise ValueError(
                    f"{file}: {name} has shape {tuple(value.shape)}, here it has {tuple(parameter.shape)}."
                )
            with torch.no_grad():
                parameter.copy_(_like(value, parameter, "value"))


def _trained_parameters(network: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad)


def _collect(network: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    trained, state = {}, {}
    for name, parameter in _trained_parameters(network):
        trained[name] = _whole(parameter)
        for key, value in optimizer.state.get(parameter, {}).items():
            state[f"{name}/{key}"] = _whole(torch.as_tensor(value))
    return trained, state


def _whole(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if isinstance(tensor, DTensor):
        tensor = tensor.full_tensor()
    return tensor.cpu().contiguous()


def _like(value: Tensor, parameter: Tensor, key: str) -> Tensor:
    if key == "step":  # the optimizer keeps its step count apart from device and sharding
        return value.to(parameter.device) if parameter.is_cuda else value
    value = value.to(parameter.device)
    return (
        distribute_tensor(value, parameter.device_mesh, parameter.placements)
        if isinstance(parameter, DTensor)
        else value
    )


def _torch_random() -> dict[str, Tensor]:
    states = {_CPU_RANDOM: torch.get_rng_state()}
    if torch.cuda.is_available():
        states[_CUDA_RANDOM] = torch.cuda.get_rng_state()
    return states


def _python_random() -> dict[str, Any]:
    version, numbers, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = numpy.random.get_state()
    return {
        "python": [version, list(numbers), gauss],
        "numpy": [kind, [int(key) for key in keys], position, has_gauss, cached],
    }


def _restore_python_random(stored: dict[str, Any]) -> None:
    version, numbers, gauss = stored["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, position, has_gauss, cached = stored["numpy"]
    numpy.random.set_state((kind, numpy.array(keys, dtype=numpy.uint32), position, has_gauss, cached))


def _sync(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            _sync_folder(path)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
