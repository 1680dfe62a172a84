import json
import lzma
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from model.checkpoint.load import load_backbone
from model.checkpoint.packed.rounding import nearest
from model.checkpoint.packed.weights_file import Rule
from model.checkpoint.save import save_int8
from model.reading.second_look import load_second_look
from model.training.__main__ import main
from model.training.recipes.fewer_bits import calibration_examples, rules_of
from tests.tiny_model import tiny_model
from tests.tiny_reader import tiny_look

PASSAGE = "Bert lives in a yellow house by the sea. He keeps bees, and sells their honey in the market on Fridays. "


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data" / "qa").mkdir(parents=True)
    row = {"question": "Where does Bert live?", "context": PASSAGE, "context_title": "Bert"}
    with lzma.open(tmp_path / "data" / "qa" / "squad11.train.jsonl.xz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for _ in range(100))
    return tmp_path / "data"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A finder with its reader; the card stands for all files that are neither."""
    save_int8(tiny_model("llama-tied"), tmp_path / "checkpoint")
    tiny_look([PASSAGE]).save(tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "MODEL_CARD.md").write_text("A card.")
    return tmp_path / "checkpoint"


def rewritten(checkpoint: Path, data: Path, *words: str) -> Path:
    out = checkpoint.parent / "out"
    assert main(["fewer-bits", "--model", str(checkpoint), "--data", str(data), "--out", str(out), *words]) == 0
    return out


def test_finder_and_reader_are_rewritten_and_all_else_stays(checkpoint: Path, data: Path) -> None:
    out = rewritten(checkpoint, data, "--finder", "6", "--finder", "embed=4/32")
    assert {path.relative_to(out) for path in out.rglob("*")} == {
        path.relative_to(checkpoint) for path in checkpoint.rglob("*")
    }
    assert (out / "MODEL_CARD.md").read_text() == "A card."
    before, after = (load_backbone(each, device="cpu") for each in (checkpoint, out))
    assert after.config == before.config and after.identity()["tokenizer"] == before.identity()["tokenizer"]
    assert after.identity()["weights"] != before.identity()["weights"]
    stored = load_file(out / "model.safetensors")
    assert stored["model.embed_tokens.weight"].shape == (4, 264, 8)
    assert stored["model.layers.0.self_attn.q_proj.weight"].shape == (6, 64, 8)
    ids = torch.randint(0, 256, (1, 40))
    with torch.no_grad():
        torch.testing.assert_close(after(ids), before(ids), atol=0.3, rtol=0)
    looks = [load_second_look(each / "reader") for each in (checkpoint, out)]
    assert looks[0].tokenizer.to_str() == looks[1].tokenizer.to_str()
    assert looks[0].reader.config.to_dict() == looks[1].reader.config.to_dict()
    assert load_file(out / "reader" / "model.safetensors")["encoder.encoder.layer.0.output.dense.weight"].ndim == 3


def test_one_part_alone_is_rewritten(checkpoint: Path, data: Path) -> None:
    out = rewritten(checkpoint, data, "--only", "reader")
    assert load_backbone(out, device="cpu").identity() == load_backbone(checkpoint, device="cpu").identity()
    files = [each / "reader" / "model.safetensors" for each in (checkpoint, out)]
    assert files[1].stat().st_size < files[0].stat().st_size


def test_matrices_are_rounded_for_what_they_are_given(checkpoint: Path, data: Path) -> None:
    """Of 3 bits every output of a first layer matters; rounding that never saw it changes it more."""
    out = rewritten(checkpoint, data, "--only", "finder", "--finder", "3", "--finder", "embed=8")
    weights = [load_backbone(each, device="cpu").backbone.state_dict() for each in (checkpoint, out)]
    name = "model.layers.0.self_attn.q_proj.weight"
    plain = nearest(weights[0][name], 3, 64).expanded(3)
    assert not torch.equal(weights[1][name], plain)
    assert (weights[1][name] - weights[0][name]).norm() > (plain - weights[0][name]).norm()


def test_what_cannot_be_done_is_said(checkpoint: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fewer-bits", "--model", str(checkpoint), "--data", str(data), "--out"]
    assert main([*arguments, str(checkpoint)]) == 2
    assert "exists; name a folder that is to be made" in capsys.readouterr().err
    assert main([*arguments, str(checkpoint.parent / "new"), "--finder", "embed=few"]) == 2
    assert "'embed=few' is no number of bits" in capsys.readouterr().err
    with pytest.raises(ValueError, match="'4/' is no number"):
        rules_of(["4/"], ())
    with pytest.raises(ValueError, match="holds none of squad11.train"):
        calibration_examples(checkpoint, 3)


def test_examples_stand_apart(data: Path) -> None:
    assert len(calibration_examples(data, 24)) == 3, "of 100 rows every fortieth"


def test_rules_are_read() -> None:
    assert rules_of(["6", "embed=4", "a=b=3/32"], ()) == [Rule("", 6), Rule("embed", 4), Rule("a=b", 3, 32)]
    assert rules_of([], (Rule("", 5),)) == (Rule("", 5),)
