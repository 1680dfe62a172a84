"""Checkpoint files one tensor at a time: reading shards of either format, writing safetensors of known shapes."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import torch
from safetensors import safe_open
from torch import Tensor

from model.errors import ModelError
from research.train.convert.torch_archive import read_archive

_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_HEADER_ALIGNMENT = 8


class TensorFiles:
    """The tensors of a checkpoint folder by name, in the order of its files. Holds no tensor; one shard is mapped at a
    time.
    """

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
        if not files:
            raise ModelError(
                f"{folder} holds neither *.safetensors nor pytorch_model*.bin; give a folder in Hugging Face layout."
            )
        self._mapped: tuple[Path, Mapping[str, Tensor]] | None = None
        self._file: dict[str, Path] = {}
        self._shape: dict[str, tuple[int, ...]] = {}
        for file in files:
            for name, shape in self._shapes(file):
                self._file[name], self._shape[name] = file, shape

    @property
    def names(self) -> Sequence[str]:
        return list(self._file)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shape[name]

    def read(self, name: str) -> Tensor:
        """One tensor. For `.bin` shards it lies in the file's memory map: copy it before changing it."""
        file = self._file[name]
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as stored:
                tensor: Tensor = stored.get_tensor(name)
                return tensor
        return self._map(file)[name]

    def _shapes(self, file: Path) -> list[tuple[str, tuple[int, ...]]]:
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as stored:
                return [(name, tuple(stored.get_slice(name).get_shape())) for name in list(stored.keys())]
        return [(name, tuple(tensor.shape)) for name, tensor in self._map(file).items()]

    def _map(self, file: Path) -> Mapping[str, Tensor]:
        if self._mapped is None or self._mapped[0] != file:
            self._mapped = (file, read_archive(file))
        return self._mapped[1]


class ShardWriter:
    """Writes `model-0000i-of-0000n.safetensors` and their index. All shapes are known before, so each tensor goes
    straight to disk.

    Tensors must come in the order of `shapes`. Leaving without all of them is a ModelError.
    """

    def __init__(
        self, folder: Path, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, shard_bytes: int
    ) -> None:
        self._folder, self._dtype = folder, dtype
        self._shards = _plan(shapes, dtype.itemsize, shard_bytes)
        self._order = [(number, name) for number, shard in enumerate(self._shards) for name in shard]
        self._next = 0
        self._out: BinaryIO | None = None

    def __enter__(self) -> "ShardWriter":
        return self

    def write(self, name: str, tensor: Tensor) -> None:
        shard, expected = self._order[self._next]
        assert name == expected and tuple(tensor.shape) == self._shards[shard][name]
        if self._next == 0 or self._order[self._next - 1][0] != shard:
            self._open(shard)
        assert self._out is not None
        self._out.write(tensor.to(self._dtype).contiguous().view(-1).view(torch.uint8).numpy().data)
        self._next += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._out is not None:
            self._out.close()
        if kind is None:
            if self._next != len(self._order):
                raise ModelError(f"{self._order[self._next][1]} was not written.")
            self._write_index()

    def _open(self, shard: int) -> None:
        if self._out is not None:
            self._out.close()
        header, offset = {}, 0
        for name, shape in self._shards[shard].items():
            size = _count(shape) * self._dtype.itemsize
            header[name] = {"dtype": _TYPES[self._dtype], "shape": list(shape), "data_offsets": [offset, offset + size]}
            offset += size
        text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
        text += b" " * (-len(text) % _HEADER_ALIGNMENT)
        self._out = (self._folder / self._name(shard)).open("wb")
        self._out.write(struct.pack("<Q", len(text)) + text)

    def _write_index(self) -> None:
        total = sum(_count(shape) for shard in self._shards for shape in shard.values()) * self._dtype.itemsize
        index = {"metadata": {"total_size": total}, "weight_map": {name: self._name(n) for n, name in self._order}}
        (self._folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")

    def _name(self, shard: int) -> str:
        return f"model-{shard + 1:05d}-of-{len(self._shards):05d}.safetensors"


def _plan(shapes: Mapping[str, tuple[int, ...]], item_bytes: int, shard_bytes: int) -> list[dict[str, tuple[int, ...]]]:
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    filled = 0
    for name, shape in shapes.items():
        size = _count(shape) * item_bytes
        if shards[-1] and filled + size > shard_bytes:
            shards.append({})
            filled = 0
        shards[-1][name] = shape
        filled += size
    return shards


def _count(shape: Sequence[int]) -> int:
    return int(torch.Size(shape).numel())
