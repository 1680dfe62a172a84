"""Digests of what determines the bytes of a memory."""

import hashlib
from typing import Any

import torch


def weights_digest(network: Any) -> str:
    """sha256 over names, shapes and bytes of all weights in memory, in name order."""
    hasher = hashlib.sha256(b"cairn weights 1\0")
    for name, weight in sorted(network.state_dict().items()):
        hasher.update(f"{name}{tuple(weight.shape)}{weight.dtype}\0".encode())
        hasher.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def text_digest(text: str) -> str:
    """sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
