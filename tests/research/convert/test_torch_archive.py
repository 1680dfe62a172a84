"""Files that torch saved are read without running their pickle, and refused if it wants anything but tensors."""

from __future__ import annotations

import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from model.errors import ModelError
from research.train.convert.torch_archive import read_archive


class Runs:
    """What a hostile file holds: unpickling it would make a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def saved(path: Path, state: object) -> Path:
    torch.save(state, path)
    return path


def test_tensors_of_every_kind_are_what_torch_saved(tmp_path: Path) -> None:
    weight = torch.randn(4, 6)
    state = {
        "plain": weight, "view of it": weight[1:, ::2], "turned": weight.t(), "half": torch.randn(7).half(),
        "bfloat": torch.randn(5).bfloat16(), "double": torch.randn(2).double(), "empty": torch.empty(0),
        "number": torch.tensor(3.0), "parameter": torch.nn.Parameter(torch.randn(3)),
    }  # fmt: skip
    for holding in (state, OrderedDict(state)):
        read = read_archive(saved(tmp_path / "a.bin", holding))
        assert list(read) == list(state)
        assert all(
            torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype for name, tensor in state.items()
        )
    module = torch.nn.Linear(3, 5)
    assert torch.equal(read_archive(saved(tmp_path / "m.bin", module.state_dict()))["weight"], module.weight)


def test_a_pickle_that_would_run_something_is_refused_and_nothing_runs(tmp_path: Path) -> None:
    for hostile in ({"w": Runs(tmp_path / "made")}, Runs(tmp_path / "made"), {"w": torch.nn.Linear(2, 2)}):
        with pytest.raises(ModelError, match="no file of tensors|not a file of tensors"):
            read_archive(saved(tmp_path / "a.bin", hostile))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("content", [{"w": "text"}, ["text"], {"w": [1, 2]}])
def test_anything_but_tensors_by_name_is_refused(tmp_path: Path, content: object) -> None:
    with pytest.raises(ModelError):
        read_archive(saved(tmp_path / "a.bin", content))


def test_a_file_that_is_cut_short_or_no_archive_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.bin", {"w": torch.randn(1000)})
    content = path.read_bytes()
    for part in (content[: len(content) // 2], b"", b"PK\x03\x04 not a zip"):
        path.write_bytes(part)
        with pytest.raises(ModelError, match="not a file of tensors"):
            read_archive(path)


def test_a_tensor_that_reaches_beyond_its_storage_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "a.bin", {"w": torch.randn(1000)})
    with zipfile.ZipFile(tmp_path / "a.bin") as full, zipfile.ZipFile(tmp_path / "b.bin", "w") as short:
        for name in full.namelist():
            short.writestr(name, full.read(name)[:100] if name.endswith("data/0") else full.read(name))
    with pytest.raises(ModelError, match="cut short"):
        read_archive(tmp_path / "b.bin")
