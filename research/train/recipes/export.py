"""The end of a run: the whole model in Hugging Face layout, written once."""

from collections.abc import Callable
from pathlib import Path

import torch
from accelerate import PartialState
from torch.distributed.tensor import DTensor

from model.checkpoint.landmark_model import LandmarkModel
from research.train.engine.checkpoint import latest_checkpoint, load_trained


def export(
    model: LandmarkModel,
    folder: Path,
    rebuild: Callable[[], LandmarkModel],
    finish: Callable[[LandmarkModel], None] = lambda _: None,
) -> None:
    """Write `folder/model` from the main process.

    A sharded model is made anew by `rebuild` (on the CPU) and takes the trained weights of the last checkpoint.
    `finish`
    is done to the whole model before it is written, for instance merging adapters.
    """
    state = PartialState()
    if state.is_main_process:
        if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
            newest = latest_checkpoint(folder / "checkpoints")
            assert newest is not None  # a run always ends with a checkpoint
            model = rebuild()
            load_trained(newest / "trained.safetensors", model)
        finish(model)
        model.save(folder / "model")
    state.wait_for_everyone()


def training_device() -> torch.device:
    """The device of this process: its own GPU when several were started, else CUDA if there is one, else the CPU."""
    state = PartialState()
    if state.num_processes > 1:
        return torch.device(state.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
