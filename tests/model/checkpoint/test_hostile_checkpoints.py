"""Checkpoints that bring code, pickles or nonsense: none of it runs, and each is refused in one sentence."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model.checkpoint.load import load_backbone, load_chat_model
from model.errors import ModelError
from tests.tiny_encoder import save_tiny_encoder
from tests.tiny_model import CHAT_FAMILIES, chat_tokenizer, tiny_backbone

CODE = "import pathlib\npathlib.Path({mark!r}).touch()\nfrom transformers import {base}\nclass Own({base}):\n    pass\n"


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that code of a checkpoint would make. Whoever asks on standard input is told yes."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return tmp_path / "it ran"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that opens, as a landmark model and as a writer."""
    folder = tmp_path_factory.mktemp("sound")
    tiny_backbone(CHAT_FAMILIES["llama"]).save_pretrained(folder)
    chat_tokenizer().save_pretrained(folder)
    for load in (load_backbone, load_chat_model):
        load(folder, device="cpu")
    return folder


@pytest.fixture
def decoder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "decoder"))


def changed(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def bring_code(folder: Path, mark: Path) -> None:
    """As repositories with code of their own do, for every class that could be asked for."""
    classes = {
        "AutoConfig": "PreTrainedConfig",
        "AutoModel": "PreTrainedModel",
        "AutoModelForCausalLM": "PreTrainedModel",
    }
    for name, base in classes.items():
        (folder / f"own_{name.lower()}.py").write_text(CODE.format(mark=str(mark), base=base))
    (folder / "own_tokenizer.py").write_text(CODE.format(mark=str(mark), base="PreTrainedTokenizerFast"))
    changed(folder / "config.json", auto_map={name: f"own_{name.lower()}.Own" for name in classes})
    tokenizer = folder / "tokenizer_config.json"
    named = {"AutoTokenizer": ["own_tokenizer.Own", "own_tokenizer.Own"]}
    changed(tokenizer, auto_map=named, tokenizer_class="Own")


@pytest.mark.parametrize("load", [load_backbone, load_chat_model])
@pytest.mark.parametrize("family", ["unknown", "as it was"])
def test_no_code_of_a_checkpoint_runs_whatever_standard_input_says(
    decoder: Path, mark: Path, load: Callable[..., Any], family: str
) -> None:
    bring_code(decoder, mark)
    if family == "unknown":
        changed(decoder / "config.json", model_type="own")
    with contextlib.suppress(ModelError):  # a known family may be opened with the code of transformers
        load(decoder, device="cpu")
    assert not mark.exists()


def test_no_code_of_an_encoder_runs(tmp_path: Path, mark: Path) -> None:
    folder = save_tiny_encoder(tmp_path / "encoder", ["some text"], "bert")
    bring_code(folder, mark)
    with contextlib.suppress(ModelError):
        load_backbone(folder, device="cpu")
    assert not mark.exists()


class Exploit:
    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("load", [load_backbone, load_chat_model])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "adapter_model.bin", "consolidated.00.pth"])
def test_pickled_weights_are_refused_and_not_opened(
    decoder: Path, mark: Path, load: Callable[..., Any], name: str
) -> None:
    (decoder / "model.safetensors").unlink()
    (decoder / name).write_bytes(pickle.dumps(Exploit(mark)))
    with pytest.raises(ModelError, match="safetensors"):
        load(decoder, device="cpu")
    assert not mark.exists()


BROKEN: dict[str, Callable[[Path], object]] = {
    "a config that is no JSON": lambda folder: (folder / "config.json").write_text("{"),
    "a config that is a list": lambda folder: (folder / "config.json").write_text("[]"),
    "a config in bytes": lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe\x00"),
    "a size in words": lambda folder: changed(folder / "config.json", hidden_size="large"),
    "no heads": lambda folder: changed(folder / "config.json", num_attention_heads=0),
    "another size": lambda folder: changed(folder / "config.json", hidden_size=128, head_dim=32),
    "landmarks in words": lambda folder: changed(folder / "config.json", landmark="yes"),
    "weights that are no safetensors": lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 100),
    "weights with a header beyond the file": lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 16),
    "weights cut short": lambda folder: os.truncate(folder / "model.safetensors", 5000),
    "a tokenizer that is no JSON": lambda folder: (folder / "tokenizer.json").write_text("{"),
    "a tokenizer of nothing": lambda folder: (folder / "tokenizer.json").write_text("{}"),
    "no tokenizer": lambda folder: [file.unlink() for file in folder.glob("*token*")],
}


@pytest.mark.parametrize("load", [load_backbone, load_chat_model])
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_checkpoint_is_a_sentence(decoder: Path, load: Callable[..., Any], fault: str) -> None:
    BROKEN[fault](decoder)
    if load is load_chat_model and fault in ("landmarks in words",):
        pytest.skip("of no meaning to a writer")
    with pytest.raises(ModelError) as refused:
        load(decoder, device="cpu")
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 1000
