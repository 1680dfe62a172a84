import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedConfig

from model.checkpoint.load import load_backbone
from model.checkpoint.weights import read_weights
from model.errors import ModelError
from research.train.recipes.rounding import save_int8, to_int8
from retrieval.library import Library
from tests.tiny_model import FAMILIES, tiny_model


def changed(folder: Path, **changes: torch.Tensor | None) -> None:
    """Replace or (None) drop tensors of the weights file; `__` in a name stands for a dot."""
    stored = load_file(folder / "model.safetensors")
    for name, tensor in changes.items():
        stored.pop(name.replace("__", "."), None)
        if tensor is not None:
            stored[name.replace("__", ".")] = tensor
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_int8(tiny_model("llama-tied"), tmp_path / "compact")
    return tmp_path / "compact"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_comes_back_within_half_a_step_of_its_row(family: str, tmp_path: Path) -> None:
    model = tiny_model(family)
    save_int8(model, tmp_path)
    again = load_backbone(tmp_path, device="cpu")
    assert again.config == model.config and again.dtype == torch.float32
    weights, found = model.backbone.state_dict(), again.backbone.state_dict()
    assert set(found) == set(weights)
    for name, weight in weights.items():
        if weight.dim() == 2:
            step = weight.abs().amax(1, keepdim=True) / 127
            assert ((found[name] - weight).abs() <= step * 0.501).all(), name
        else:
            assert torch.equal(found[name], weight), name
    ids = torch.randint(0, 256, (1, 40))
    with torch.no_grad():
        torch.testing.assert_close(again(ids), model(ids), atol=0.05, rtol=0)


def test_a_library_opens_with_it(tmp_path: Path) -> None:
    save_int8(tiny_model(block_size=16), tmp_path / "compact")
    (tmp_path / "fox.txt").write_text("The quick brown fox jumps over the lazy dog. " * 20)
    with Library.open(tmp_path / "home", load_backbone(tmp_path / "compact", device="cpu")) as library:
        assert library.jobs.run(library.documents.submit(tmp_path / "fox.txt").id).state == "done"
    with Library.open(tmp_path / "home", load_backbone(tmp_path / "compact", device="cpu")) as library:
        assert "fox" in library.search("fox")[0].text


def test_it_is_a_quarter_of_the_size_of_float32(tmp_path: Path) -> None:
    model = tiny_model("llama-tied")
    model.save(tmp_path / "plain")
    save_int8(model, tmp_path / "compact")
    plain, compact = ((tmp_path / name / "model.safetensors").stat().st_size for name in ("plain", "compact"))
    assert compact < plain * 0.33  # the tiny model has 4 bytes of scale for 64 of weights


def test_loading_in_bfloat16_expands_to_bfloat16(folder: Path) -> None:
    exact, rounded = load_backbone(folder, device="cpu"), load_backbone(folder, device="cpu", dtype=torch.bfloat16)
    assert rounded.dtype == torch.bfloat16
    for name, weight in exact.backbone.state_dict().items():
        assert torch.equal(rounded.backbone.state_dict()[name], weight.to(torch.bfloat16))


def test_saving_and_loading_again_changes_nothing_more(folder: Path, tmp_path: Path) -> None:
    once = load_backbone(folder, device="cpu")
    save_int8(once, tmp_path / "twice")
    assert load_backbone(tmp_path / "twice", device="cpu").identity() == once.identity()


def test_what_was_loaded_is_saved_as_a_plain_checkpoint(folder: Path, tmp_path: Path) -> None:
    once = load_backbone(folder, device="cpu")
    once.save(tmp_path / "plain")
    assert "weights" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    assert load_backbone(tmp_path / "plain", device="cpu").identity() == once.identity()


def test_rows_of_zeros_stay_zeros() -> None:
    weight = torch.zeros(3, 4)
    weight[1] = torch.tensor([1.0, -2.0, 0.5, 0.0])
    stored = to_int8({"w": weight})
    assert stored["w"].dtype == torch.int8 and stored["w"][1].tolist() == [64, -127, 32, 0]
    assert stored["w_scale"].tolist() == pytest.approx([0.0, 2 / 127, 0.0])


def test_weights_that_are_not_finite_are_not_saved() -> None:
    with pytest.raises(ModelError, match="w holds values that are not finite"):
        to_int8({"w": torch.tensor([[1.0, float("nan")]])})


NORM, MATRIX = "model__norm__weight", "model__layers__0__mlp__up_proj__weight"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({MATRIX + "_scale": None}, r"up_proj.weight is rounded, but .*up_proj.weight_scale is missing"),
        ({MATRIX + "_scale": torch.ones(5)}, "one scale per row"),
        ({MATRIX + "_scale": torch.full((96,), torch.inf)}, "not valid scales"),
        ({MATRIX: torch.ones(96, 64)}, "not int8 or packed, with scales"),
        ({MATRIX: None, MATRIX + "_scale": None}, "does not fit its config.json; first weight .*up_proj.weight"),
        ({NORM: None}, "does not fit its config.json; first weight .*norm.weight"),
        ({"more": torch.ones(3)}, "does not fit its config.json; first weight .*more"),
        ({MATRIX: torch.ones(7, 64, dtype=torch.int8), MATRIX + "_scale": torch.ones(7)}, "does not fit its config"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    folder: Path, changes: dict[str, torch.Tensor | None], message: str
) -> None:
    changed(folder, **changes)
    with pytest.raises(ModelError, match=message):
        load_backbone(folder, device="cpu")


def test_a_truncated_file_is_refused(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match="cannot be read"):
        load_backbone(folder, device="cpu")


def test_a_missing_file_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="holds no model.safetensors"):
        load_backbone(folder, device="cpu")
    with pytest.raises(ModelError, match="cannot be read"):
        read_weights(folder / "model.safetensors", torch.float32)


def test_another_way_to_keep_weights_is_refused(folder: Path) -> None:
    config = PreTrainedConfig.from_json_file(folder / "config.json")
    values = config.to_dict() | {"model_type": "llama", "weights": "int2-rows"}
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(ModelError, match="'int2-rows', which this version does not know"):
        load_backbone(folder, device="cpu")
