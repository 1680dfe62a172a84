"""A run's weights as an adapter that the product loads."""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from model.checkpoint.adapter import WEIGHTS, Base
from model.checkpoint.config import LandmarkConfig


def export_adapter(weights: Path, config: LandmarkConfig, base: Base, folder: Path, *, scale: float) -> None:
    """Write `weights` in bfloat16 and what they belong to. They can be trained on from there."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in load_file(weights).items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    values = {"adapter": {"base": asdict(base), "scale": scale}, "landmark": config.to_dict()}
    (folder / "config.json").write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
