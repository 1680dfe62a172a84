"""A run's weights as an adapter that the product loads."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.checkpoint.adapter import WEIGHTS, Base
from model.checkpoint.config import LandmarkConfig
from research.landmark_lm.training import MOMENTS


def export_adapter(weights: Path, config: LandmarkConfig, base: Base, folder: Path, *, scale: float) -> None:
    """Write `weights` in bfloat16 and what they belong to. They can be trained on from there."""
    folder.mkdir(parents=True, exist_ok=True)
    learned = ((name, tensor) for name, tensor in load_file(weights).items() if not name.startswith(MOMENTS))
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in learned}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    values = {"adapter": {"base": asdict(base), "scale": scale}, "landmark": config.to_dict()}
    (folder / "config.json").write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def shrink_adapter(folder: Path, out: Path, rank: int) -> float:
    """Write the adapter in `folder` with a lower rank to the new folder `out`: of each product B A the nearest one of
    that rank. Returns the smallest share of a product's squares that is kept."""
    held, kept = load_file(folder / WEIGHTS), [1.0]
    shrunk = dict(held)
    for name in [name.removesuffix(".a") for name in held if name.endswith(".a")]:
        shrunk[f"{name}.a"], shrunk[f"{name}.b"], share = _nearest(held[f"{name}.a"], held[f"{name}.b"], rank)
        kept.append(share)
    out.mkdir(parents=True)
    save_file(shrunk, out / WEIGHTS, metadata={"format": "pt"})
    shutil.copy(folder / "config.json", out)
    return min(kept)


def _nearest(a_RI: Tensor, b_OR: Tensor, rank: int) -> tuple[Tensor, Tensor, float]:
    """a and b of a lower rank, whose product is nearest (Eckart and Young), and the share of its squares."""
    outer_OR, left_RR = torch.linalg.qr(b_OR.float())
    inner_IR, right_RR = torch.linalg.qr(a_RI.float().T)
    u, sizes, v = torch.linalg.svd(left_RR @ right_RR.T)
    root = sizes[:rank].sqrt()
    a, b = (v[:rank] * root[:, None]) @ inner_IR.T, outer_OR @ (u[:, :rank] * root)
    share = float(sizes[:rank].square().sum() / sizes.square().sum()) if sizes.any() else 1.0
    return a.to(a_RI.dtype).contiguous(), b.to(b_OR.dtype).contiguous(), share
