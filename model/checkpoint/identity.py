"""Digests of what determines the bytes of a memory."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch

SAMPLED = 4096
"""Numbers of each matrix that tell whether weights are those hashed before, beside the dates of their files."""


def weights_digest(network: Any) -> str:
    """sha256 over names, shapes and bytes of all weights in memory, in name order."""
    hasher = hashlib.sha256(b"cairn weights 1\0")
    for name, weight in sorted(network.state_dict().items()):
        hasher.update(f"{name}{tuple(weight.shape)}{weight.dtype}\0".encode())
        hasher.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def kept_weights_digest(network: Any, source: str, file: Path) -> str:
    """`weights_digest`, kept in `file` for weights of a folder: many gigabytes are hashed once, not at every start.

    The digest is taken from the file only where names, sizes and dates of the folder's files are the same, and names,
    types, shapes and a sample of the weights in memory.
    """
    if not Path(source).is_dir():
        return weights_digest(network)
    known = _sampled(network, Path(source))
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["of"] == known:
            return str(kept["weights"])
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or cut off: it is made anew
        pass
    digest = weights_digest(network)
    written = file.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps({"of": known, "weights": digest}), encoding="utf-8")
    written.replace(file)
    return digest


def _sampled(network: Any, folder: Path) -> str:
    hasher = hashlib.sha256(b"cairn sample of weights 1\0")
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        about = path.stat()
        hasher.update(f"{path.name} {about.st_size} {about.st_mtime_ns}\0".encode())
    for name, weight in sorted(network.state_dict().items()):
        hasher.update(f"{name}{tuple(weight.shape)}{weight.dtype}\0".encode())
        some = weight.detach().flatten()[:: max(1, weight.numel() // SAMPLED)]
        hasher.update(some.cpu().contiguous().view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def text_digest(text: str) -> str:
    """sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
