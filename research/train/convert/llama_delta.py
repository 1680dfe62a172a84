"""Released landmark weights in the published layout: LLaMA-7B tuned with landmarks, whole, or as the difference to the
original (epfml/landmark-attention-llama7b-wdiff).

- Tensor by tensor: read, add in float32, write. Never two models in memory, not even one.
- Both sides may be safetensors or the older `.bin` shards, which are mapped and never unpickled.
- The result is safetensors shards with `config.landmark` and a fast tokenizer, ready for `load_backbone`.
Facts: docs/landmark-attention.md, section 8.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from model.checkpoint.config import LandmarkConfig
from model.errors import ModelError
from research.train.convert.sentencepiece_file import fast_tokenizer
from research.train.convert.tensor_files import ShardWriter, TensorFiles

PUBLISHED_CHECKSUM = 49798.7656
CHECKSUM_TOLERANCE = 0.01
ORIGINAL_ROWS = 32000
LANDMARK_ID = 32001
ROTARY_BASE = 10000.0
BLOCK_SIZE = 51
WINDOW_BLOCKS, CONTEXT_BLOCKS = 4, 4
"""Trained on 512 positions: a window of 4 blocks (the published 204 tokens) and 4 blocks before it fit in."""

_ROTARY = "rotary_emb.inv_freq"
_GROWN = ("model.embed_tokens.weight", "lm_head.weight")


def convert_llama_delta(
    original: Path,
    difference: Path,
    out: Path,
    *,
    checksum: float | None = PUBLISHED_CHECKSUM,
    tolerance: float = CHECKSUM_TOLERANCE,
    dtype: torch.dtype = torch.float32,
    original_rows: int = ORIGINAL_ROWS,
    landmark: LandmarkConfig | None = None,
    shard_bytes: int = 4 << 30,
) -> float:
    """Write the tuned model to `out` (a new or empty folder) and return the sum of its weights.

    Raises ModelError if names or shapes of the two sides do not fit, or if the sum is not `checksum` (None: not
    compared;
    nothing is left in `out` then). `landmark` defaults to the settings the weights were trained with.
    """
    with _new_folder(out) as unfinished:
        total = _write_weights(original, difference, unfinished, dtype, original_rows, shard_bytes)
        if checksum is not None and not abs(total - checksum) <= tolerance:
            raise ModelError(
                f"the sum of the recovered weights is {total:.4f}, expected {checksum} within {tolerance}: one "
                "of the sides is damaged or of another version. Check the downloads, or give the sum with --checksum."
            )
        _write_config(difference, unfinished, landmark, dtype)
    return total


def convert_llama(
    published: Path,
    out: Path,
    *,
    dtype: torch.dtype = torch.float32,
    landmark: LandmarkConfig | None = None,
    shard_bytes: int = 4 << 30,
) -> None:
    """Write weights that were published whole, with landmarks, to `out` (a new or empty folder).

    Raises ModelError for files that cannot be read. `landmark`: as in `convert_llama_delta`.
    """
    with _new_folder(out) as unfinished:
        files = TensorFiles(published)
        weights = [name for name in files.names if not name.endswith(_ROTARY)]
        with ShardWriter(unfinished, {name: files.shape(name) for name in weights}, dtype, shard_bytes) as writer:
            for name in weights:
                writer.write(name, files.read(name))
        _write_config(published, unfinished, landmark, dtype)


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """A folder that becomes `out` when all is written. Raises ModelError if there is something in `out`."""
    if out.exists() and any(out.iterdir()):
        raise ModelError(f"{out} is not empty; choose a new folder.")
    unfinished = out.with_name(out.name + ".unfinished")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    if out.exists():
        out.rmdir()
    unfinished.replace(out)


def _write_weights(
    original: Path, difference: Path, out: Path, dtype: torch.dtype, original_rows: int, shard_bytes: int
) -> float:
    """Sum in float32 and in the order of the published files, as the published check does (rotary buffers included)."""
    old, change = TensorFiles(original), TensorFiles(difference)
    missing = sorted(
        {name for name in change.names if not name.endswith(_ROTARY)}
        ^ {n for n in old.names if not n.endswith(_ROTARY)}
    )
    if missing:
        raise ModelError(f"{original} and {difference} do not hold the same weights; first difference: {missing[0]}.")
    total = torch.zeros((), dtype=torch.float32)
    weights = [name for name in change.names if not name.endswith(_ROTARY)]
    with ShardWriter(out, {name: change.shape(name) for name in weights}, dtype, shard_bytes) as writer:
        for name in change.names:
            recovered = _recovered(name, old, change, original_rows)
            total += recovered.sum()
            if not name.endswith(_ROTARY):
                writer.write(name, recovered)
            del recovered
    return float(total)


def _recovered(name: str, old: TensorFiles, change: TensorFiles, original_rows: int) -> Tensor:
    shape = change.shape(name)
    if name.endswith(_ROTARY) and name not in old.names:  # newer conversions leave the buffers out
        before = ROTARY_BASE ** -(torch.arange(shape[0], dtype=torch.float32) / shape[0])
    else:
        before = old.read(name).float()
    if name in _GROWN and before.shape[0] < shape[0]:
        mean = before[:original_rows].mean(0, keepdim=True)
        before = torch.cat((before[:original_rows], mean.expand(shape[0] - original_rows, -1)))
    if before.shape != torch.Size(shape):
        raise ModelError(
            f"{name} has shape {tuple(before.shape)} in the original and {tuple(shape)} in the difference."
        )
    return before + change.read(name).float()


def _write_config(difference: Path, out: Path, landmark: LandmarkConfig | None, dtype: torch.dtype) -> None:
    config = json.loads((difference / "config.json").read_text(encoding="utf-8"))
    settings = landmark or LandmarkConfig(
        block_size=BLOCK_SIZE,
        landmark_token_id=LANDMARK_ID,
        landmark_in_loss=True,
        window_blocks=WINDOW_BLOCKS,
        context_blocks=CONTEXT_BLOCKS,
    )
    for stale in ("torch_dtype", "mem_id", "mem_freq", "train_context_length", "include_landmark_in_loss"):
        config.pop(stale, None)
    config |= {"dtype": str(dtype).removeprefix("torch."), "landmark": settings.to_dict()}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if (difference / "tokenizer.model").is_file() and not (difference / "tokenizer.json").is_file():
        fast_tokenizer(difference).save_pretrained(out)
        return
    for file in _tokenizer_files(difference):
        shutil.copyfile(file, out / file.name)


def _tokenizer_files(folder: Path) -> Iterator[Path]:
    names = (
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
    )
    return (folder / name for name in (*names, "generation_config.json") if (folder / name).is_file())
