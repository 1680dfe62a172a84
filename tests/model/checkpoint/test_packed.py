import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoint.load import load_backbone
from model.checkpoint.weights import PACKED, expand_groups, read_weights, unpack
from model.errors import ModelError
from research.train.recipes.rounding import Rule, nearest, pack, to_int8, to_packed
from tests.tiny_model import tiny_model

RULES = (Rule("", 5, 32), Rule("embed_tokens", 4, 32), Rule("k_proj", 8))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny model of which matrices have 4, 5 and 8 bits."""
    model, folder = tiny_model("llama-tied"), tmp_path / "packed"
    model.save(folder)
    save_file(to_packed(model.backbone.state_dict(), RULES), folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"weights": PACKED}))
    return folder


@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_come_back_from_their_bytes(bits: int) -> None:
    codes_OI = torch.randint(0, 2**bits, (5, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(bits))
    packed_BOJ = pack(codes_OI, bits)
    assert packed_BOJ.shape == (bits, 5, 3)
    assert torch.equal(unpack(packed_BOJ), codes_OI)


def test_bytes_are_as_documented() -> None:
    """Codes of 5 bits: the first fills the low bits of the first byte, the second the rest and what comes next."""
    packed_BOJ = pack(torch.tensor([[0b10001, 0b11010, 0, 0, 0, 0, 0, 0b10101]], dtype=torch.uint8), 5)
    assert packed_BOJ.flatten().tolist() == [0b010_10001, 0b11, 0, 0, 0b10101_000]


@pytest.mark.parametrize("bits", [3, 4, 6])
def test_the_nearest_step_is_taken_of_scales_that_beat_those_of_the_largest_weights(bits: int) -> None:
    weight_OI = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 1, 16)[:, None]
    codes_OI, scale_OG = nearest(weight_OI, bits, 32)
    assert scale_OG.shape == (16, 2) and scale_OG.dtype == torch.bfloat16
    found_OGC, weight_OGC = (each.view(16, 2, 32) for each in (expand_groups(codes_OI, scale_OG, bits), weight_OI))
    scale_OG1 = scale_OG.float()[..., None]
    steps = torch.arange(2**bits) - 2 ** (bits - 1)
    best = (weight_OGC[..., None] - steps * scale_OG1[..., None]).abs().amin(-1)
    torch.testing.assert_close((found_OGC - weight_OGC).abs(), best, rtol=1e-3, atol=1e-9)
    plain_OG1 = weight_OGC.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    by_largest = ((weight_OGC / plain_OG1).round() * plain_OG1 - weight_OGC).square().sum(-1)
    assert ((found_OGC - weight_OGC).square().sum(-1) / by_largest).mean() < 0.97


def test_zeros_stay_zeros() -> None:
    weight_OI = torch.zeros(2, 16)
    weight_OI[1, 3] = -2.0
    torch.testing.assert_close(expand_groups(*nearest(weight_OI, 4, 8), 4), weight_OI, rtol=0.01, atol=0)


def test_a_packed_checkpoint_opens_like_any_other(folder: Path) -> None:
    model, again = tiny_model("llama-tied"), load_backbone(folder, device="cpu")
    stored = load_file(folder / "model.safetensors")
    assert stored["model.embed_tokens.weight"].shape == (4, 264, 8)
    assert stored["model.layers.0.mlp.up_proj.weight"].shape == (5, 96, 8)
    assert stored["model.layers.0.self_attn.k_proj.weight"].dtype == torch.int8
    weights, found = model.backbone.state_dict(), again.backbone.state_dict()
    assert set(found) == set(weights) and "lm_head.weight" not in stored
    for name, weight in weights.items():
        error = float((found[name] - weight).norm() / weight.norm())
        assert error < (0.1 if weight.dim() == 2 else 1e-9), name
    ids = torch.randint(0, 256, (1, 40))
    with torch.no_grad():
        torch.testing.assert_close(again(ids), model(ids), atol=0.3, rtol=0)
    assert not hasattr(again.backbone.config, "weights")


def test_a_file_of_int8_rows_is_read_as_before(tmp_path: Path) -> None:
    weights = {"w": torch.randn(4, 16), "b": torch.randn(4)}
    save_file(to_int8(weights), tmp_path / "w.safetensors")
    found = read_weights(tmp_path / "w.safetensors", torch.float32)
    torch.testing.assert_close(found["w"], weights["w"], atol=0.02, rtol=0)
    assert torch.equal(found["b"], weights["b"])


def test_the_last_rule_that_fits_counts_and_odd_columns_keep_8_bits() -> None:
    weights = {"a.one": torch.randn(3, 16), "a.two": torch.randn(3, 16), "c": torch.randn(3, 12), "d": torch.randn(3)}
    stored = to_packed(weights, (Rule("", 6), Rule("a.", 3), Rule("two", 4, 8)))
    assert stored["a.one"].shape == (3, 3, 2) and stored["a.two"].shape == (4, 3, 2)
    assert stored["a.one_scale"].shape == (3, 1) and stored["a.two_scale"].shape == (3, 2)
    assert stored["c"].dtype == torch.int8 and torch.equal(stored["d"], weights["d"])


@pytest.mark.parametrize("rule", [Rule("mlp", 1), Rule("mlp", 9), Rule("mlp", 4, 0)])
def test_bits_that_cannot_be_stored_are_refused(rule: Rule) -> None:
    with pytest.raises(ValueError, match=f"mlp={rule.bits}/{rule.group}: a matrix takes 2 to 8 bits"):
        to_packed({}, (rule,))


MATRIX = "model.layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({MATRIX + "_scale": None}, "up_proj.weight is rounded, but .*up_proj.weight_scale is missing"),
        ({MATRIX + "_scale": torch.ones(96)}, "as many scales for each row"),
        ({MATRIX + "_scale": torch.ones(96, 3)}, "as many scales for each row"),
        ({MATRIX + "_scale": torch.full((96, 2), torch.nan)}, "not valid scales"),
        ({MATRIX + "_scale": torch.ones((96, 2), dtype=torch.int32)}, "not valid scales"),
        ({MATRIX: torch.zeros(96, 40, dtype=torch.uint8)}, "as many scales for each row"),
        ({MATRIX: torch.zeros(9, 96, 8, dtype=torch.uint8)}, "as many scales for each row"),
        ({MATRIX: torch.zeros(96, 64)}, "not int8 or packed, with scales"),
        ({MATRIX: None, MATRIX + "_scale": None}, "does not fit its config.json"),
    ],
)
def test_files_that_do_not_fit_are_refused(folder: Path, changes: dict[str, torch.Tensor | None], message: str) -> None:
    stored = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in (stored | changes).items() if tensor is not None}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=message):
        load_backbone(folder, device="cpu")
