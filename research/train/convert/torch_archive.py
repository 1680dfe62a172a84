"""Reading `pytorch_model*.bin` without unpickling it.

Such a file is a zip of raw numbers and one pickle that says which numbers are which tensor. A pickle is a program;
instead of running it, its few instructions that a dictionary of tensors needs are interpreted here, and any other is
refused. Tensors lie in a memory map of the file: copy them before changing them.
"""

from __future__ import annotations

import pickletools
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.errors import ModelError

_DTYPES = {
    "torch FloatStorage": torch.float32,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
    "torch DoubleStorage": torch.float64,
}
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip entry: the lengths of its name and extra field
_MARK = object()


@dataclass(frozen=True)
class _Name:
    """What the pickle would import."""

    path: str


def read_archive(file: Path) -> Mapping[str, Tensor]:
    """The tensors by name. Raises `ModelError` if the file holds anything else, or is no such archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            (program,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            state = _Interpreter(file, archive, program.removesuffix("data.pkl")).run(archive.read(program))
    except (zipfile.BadZipFile, ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelError(f"{file} is not a file of tensors as torch saves them: {error}") from error
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise ModelError(f"{file} holds something else than tensors by name; convert it to safetensors.")
    return state


class _Interpreter:
    """A stack machine for one pickle."""

    def __init__(self, file: Path, archive: zipfile.ZipFile, folder: str):
        self._file, self._archive, self._folder = file, archive, folder
        self._mapped = torch.from_file(str(file), shared=False, size=file.stat().st_size, dtype=torch.uint8)
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, program: bytes) -> object:
        for opcode, argument, _ in pickletools.genops(program):
            if opcode.name == "STOP":
                return self._stack.pop()
            self._step(opcode.name, argument)
        raise ValueError("its pickle does not end")

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        match name:
            case "PROTO" | "FRAME":
                pass
            case "MARK":
                stack.append(_MARK)
            case "EMPTY_DICT" | "EMPTY_TUPLE" | "EMPTY_LIST" | "NONE" | "NEWTRUE" | "NEWFALSE":
                constants: dict[str, Any] = {
                    "EMPTY_TUPLE": (),
                    "NONE": None,
                    "NEWTRUE": True,
                    "NEWFALSE": False,
                    "EMPTY_LIST": [],
                }
                stack.append({} if name == "EMPTY_DICT" else constants[name])
            case "BINUNICODE" | "SHORT_BINUNICODE" | "BININT" | "BININT1" | "BININT2" | "LONG1":
                stack.append(argument)
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self._memo[argument])
            case "GLOBAL":
                stack.append(_Name(argument))
            case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._to_mark() if name == "TUPLE" else self._last(int(name[5:]))))
            case "SETITEM" | "SETITEMS":
                items = self._to_mark() if name == "SETITEMS" else self._last(2)
                stack[-1].update(zip(items[::2], items[1::2], strict=True))
            case "BINPERSID":
                stack.append(self._storage(*stack.pop()))
            case "REDUCE":
                called, arguments = self._last(2)
                stack.append(self._called(called, arguments))
            case "BUILD":  # the metadata of a state dict: versions of modules
                stack.pop()
            case _:
                raise ValueError(f"its pickle has the instruction {name}, which no file of tensors needs")

    def _last(self, count: int) -> list[Any]:
        taken = self._stack[-count:]
        del self._stack[-count:]
        return taken

    def _to_mark(self) -> list[Any]:
        place = max(number for number, item in enumerate(self._stack) if item is _MARK)
        taken = self._stack[place + 1 :]
        del self._stack[place:]
        return taken

    def _called(self, called: _Name, arguments: tuple[Any, ...]) -> object:
        match called.path:
            case "collections OrderedDict" if arguments == ():
                return {}
            case "torch._utils _rebuild_tensor_v2":
                return _tensor(*arguments[:4])
            case "torch._utils _rebuild_parameter":
                return arguments[0]
        raise ValueError(f"its pickle calls {called.path}, which no file of tensors needs")

    def _storage(self, kind: str, dtype: _Name, key: str, _device: str, count: int) -> Tensor:
        """The numbers of one storage, in place: entries of the archive are stored as they are."""
        entry = self._archive.getinfo(f"{self._folder}data/{key}")
        type_ = _DTYPES[dtype.path]
        if kind != "storage" or entry.compress_type != zipfile.ZIP_STORED or entry.file_size < count * type_.itemsize:
            raise ValueError(f"storage {key} is cut short or compressed")
        with open(self._file, "rb") as file:
            file.seek(entry.header_offset)
            begin = entry.header_offset + _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size)))
        return (
            self._mapped[begin : begin + count * type_.itemsize].view(type_) if count else torch.empty(0, dtype=type_)
        )


def _tensor(storage: Tensor, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    last = offset + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))
    if 0 not in shape and not (0 <= offset <= last < len(storage) and min(stride, default=0) >= 0):
        raise ValueError(f"a tensor of shape {shape} reaches beyond its storage")
    return storage.as_strided(shape, stride, storage.storage_offset() + offset)
