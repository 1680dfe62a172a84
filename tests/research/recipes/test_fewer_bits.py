from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from model.checkpoint.load import load_backbone
from model.reading.span_reader import load_span_reader
from research.train.__main__ import main
from research.train.recipes.fewer_bits import rules_of
from research.train.recipes.rounding import Rule, save_int8, save_reader
from tests.tiny_model import tiny_model
from tests.tiny_reader import tiny_reader

PASSAGE = "Bert lives in a yellow house by the sea. He keeps bees, and sells their honey in the market on Fridays. "


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A finder with its reader; the card stands for all files that are neither."""
    save_int8(tiny_model("llama-tied"), tmp_path / "checkpoint")
    save_reader(tiny_reader([PASSAGE]), tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "MODEL_CARD.md").write_text("A card.")
    return tmp_path / "checkpoint"


def rewritten(checkpoint: Path, *words: str) -> Path:
    out = checkpoint.parent / "out"
    assert main(["fewer-bits", "--model", str(checkpoint), "--out", str(out), *words]) == 0
    return out


def test_finder_and_reader_are_rewritten_and_all_else_stays(checkpoint: Path) -> None:
    out = rewritten(checkpoint, "--finder", "6", "--finder", "embed=4/32")
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
    readers = [load_span_reader(each / "reader") for each in (checkpoint, out)]
    assert readers[0].tokenizer.to_str() == readers[1].tokenizer.to_str()
    assert readers[0].network.config.to_dict() == readers[1].network.config.to_dict()
    assert load_file(out / "reader" / "model.safetensors")["encoder.encoder.layer.0.output.dense.weight"].ndim == 3


def test_one_part_alone_is_rewritten(checkpoint: Path) -> None:
    out = rewritten(checkpoint, "--only", "reader")
    assert load_backbone(out, device="cpu").identity() == load_backbone(checkpoint, device="cpu").identity()
    files = [each / "reader" / "model.safetensors" for each in (checkpoint, out)]
    assert files[1].stat().st_size < files[0].stat().st_size


def test_what_cannot_be_done_is_said(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fewer-bits", "--model", str(checkpoint), "--out"]
    assert main([*arguments, str(checkpoint)]) == 2
    assert "exists; name a folder that is to be made" in capsys.readouterr().err
    assert main([*arguments, str(checkpoint.parent / "new"), "--finder", "embed=few"]) == 2
    assert "'embed=few' is no number of bits" in capsys.readouterr().err
    with pytest.raises(ValueError, match="'4/' is no number"):
        rules_of(["4/"], ())


def test_rules_are_read() -> None:
    assert rules_of(["6", "embed=4", "a=b=3/32"], ()) == [Rule("", 6), Rule("embed", 4), Rule("a=b", 3, 32)]
    assert rules_of([], (Rule("", 5),)) == (Rule("", 5),)
