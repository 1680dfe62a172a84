import json
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from model.checkpoint.config import LandmarkConfig
from model.checkpoint.load import load_backbone
from model.errors import ModelError
from research.train.convert.llama_delta import convert_llama_delta
from research.train.convert.tensor_files import ShardWriter, TensorFiles
from tests.tiny_model import tiny_model

ROWS, LANDMARK = 256, 257


@pytest.fixture
def tuned(tmp_path: Path) -> dict[str, Tensor]:
    """Writes tmp_path/original (256 rows), tmp_path/difference (258 rows, two .bin shards); returns the tuned ones."""
    model = tiny_model("llama")
    state = {name: weight.clone() for name, weight in model.backbone.state_dict().items()}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        state[name] = state[name][: ROWS + 2]
    random = torch.Generator().manual_seed(0)
    original, difference = {}, {}
    for name, weight in state.items():
        before = weight + torch.randn(weight.shape, generator=random) * 0.01
        if len(before) == ROWS + 2:
            before = torch.cat((before[:ROWS], before[:ROWS].mean(0, keepdim=True).expand(2, -1)))
        difference[name] = weight - before
        original[name] = before[:ROWS].contiguous() if len(before) == ROWS + 2 else before
    frequencies = 10000.0 ** -(torch.arange(8, dtype=torch.float32) / 8)
    difference["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
    state["model.layers.0.self_attn.rotary_emb.inv_freq"] = frequencies
    (tmp_path / "original").mkdir()
    (tmp_path / "difference").mkdir()
    save_file(original, tmp_path / "original" / "model.safetensors")
    names = list(difference)
    for number, part in enumerate((names[:7], names[7:]), 1):
        torch.save(
            {name: difference[name] for name in part},
            tmp_path / "difference" / f"pytorch_model-0000{number}-of-00002.bin",
        )
    config = model.backbone.config.to_dict() | {"vocab_size": ROWS + 2, "torch_dtype": "float32"}
    (tmp_path / "difference" / "config.json").write_text(json.dumps(config, default=str))
    model.tokenizer.save_pretrained(tmp_path / "difference")
    return state


def recover(folder: Path, **changes: Any) -> float:
    given = {"original_rows": ROWS, "landmark": LandmarkConfig(block_size=8, landmark_token_id=LANDMARK)} | changes
    return convert_llama_delta(folder / "original", folder / "difference", folder / "out", **given)


def test_the_sum_of_original_and_difference_is_the_tuned_model(tmp_path: Path, tuned: dict[str, Tensor]) -> None:
    wanted = float(sum(weight.double().sum() for weight in tuned.values()))
    assert recover(tmp_path, checksum=wanted, shard_bytes=60_000) == pytest.approx(wanted, abs=0.01)
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    assert len(files) > 2
    found = {name: weight for file in files for name, weight in load_file(file).items()}
    assert set(found) == {name for name in tuned if "inv_freq" not in name}
    for name, weight in found.items():
        torch.testing.assert_close(weight, tuned[name], atol=1e-6, rtol=0)


def test_the_result_loads_as_a_landmark_model(tmp_path: Path, tuned: dict[str, Tensor]) -> None:
    recover(tmp_path, checksum=None, shard_bytes=60_000)
    model = load_backbone(tmp_path / "out", device="cpu", dtype=torch.float32)
    assert (model.config.block_size, model.config.landmark_token_id) == (8, LANDMARK)
    for name, weight in model.backbone.state_dict().items():
        torch.testing.assert_close(weight, tuned[name], atol=1e-6, rtol=0)


def test_the_published_settings_are_the_default(tmp_path: Path, tuned: dict[str, Tensor]) -> None:
    recover(tmp_path, checksum=None, landmark=None)
    landmark = json.loads((tmp_path / "out" / "config.json").read_text())["landmark"]
    assert (landmark["block_size"], landmark["landmark_token_id"], landmark["landmark_in_loss"]) == (51, 32001, True)
    assert (landmark["window_blocks"] + landmark["context_blocks"]) * 51 <= 512


def test_a_wrong_sum_is_refused_and_leaves_nothing(tmp_path: Path, tuned: dict[str, Tensor]) -> None:
    with pytest.raises(ModelError, match="sum of the recovered weights"):
        recover(tmp_path, checksum=49798.7656)
    assert not list(tmp_path.glob("out*"))


def test_a_missing_tensor_is_named(tmp_path: Path, tuned: dict[str, Tensor]) -> None:
    file = tmp_path / "original" / "model.safetensors"
    save_file({name: weight for name, weight in load_file(file).items() if name != "model.norm.weight"}, file)
    with pytest.raises(ModelError, match="model.norm.weight"):
        recover(tmp_path, checksum=None)


class LiveBytes(TorchDispatchMode):
    """Highest number of bytes in storages that operations made and that are still alive. Memory-mapped files count
    nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._users: Counter[int] = Counter()
        self._bytes: dict[int, int] = {}
        self._mapped: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self._count(tensor, mapped=func.overloadpacket is torch.ops.aten.from_file)
        return out

    def _count(self, tensor: Tensor, *, mapped: bool) -> None:
        storage = tensor.untyped_storage()
        place = storage.data_ptr()
        if mapped:  # tensors of a .bin file lie in its map
            self._mapped.add(place)
        if place in self._mapped:
            return
        self._users[place] += 1
        self._bytes[place] = storage.nbytes()
        self.peak = max(self.peak, sum(self._bytes.values()))
        weakref.finalize(tensor, self._gone, place)

    def _gone(self, place: int) -> None:
        self._users[place] -= 1
        if not self._users[place]:
            self._bytes.pop(place, None)


def test_memory_never_holds_even_one_copy_of_the_model(tmp_path: Path, tuned: dict[str, Tensor]) -> None:
    with LiveBytes() as live:
        recover(tmp_path, checksum=None, shard_bytes=60_000)
    largest = max(weight.nbytes for weight in tuned.values())
    whole = sum(weight.nbytes for weight in tuned.values())
    assert 4 * largest < whole
    assert largest <= live.peak <= 4 * largest


def test_shards_are_written_as_safetensors_reads_them(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 5), "b": torch.randn(7), "c": torch.randn(2, 2, 2)}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    with ShardWriter(tmp_path, shapes, torch.bfloat16, shard_bytes=40) as writer:
        for name, tensor in tensors.items():
            writer.write(name, tensor)
    files = TensorFiles(tmp_path)
    assert list(files.names) == ["a", "b", "c"]
    assert all(torch.equal(files.read(name), tensor.bfloat16()) for name, tensor in tensors.items())


def test_an_unfinished_shard_is_an_error(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, {"a": (1,), "b": (1,)}, torch.float32, shard_bytes=40)
    with pytest.raises(ModelError, match="b was not written"), writer:
        writer.write("a", torch.zeros(1))
