"""The paper's tables in small: what the arms compute, and that a table is made, and made only once."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM

from model.training.__main__ import main
from model.training.data.packing import Grid, pack
from model.training.paper import sizes
from model.training.paper.arms import NO_LANDMARKS, Arm, recurrent_loss, recurrent_losses
from model.training.paper.tables import summarise
from model.training.recipes.presets import Architecture, RowSettings
from model.training.recipes.pretrain import byte_tokenizer, new_model

ARCHITECTURE = Architecture(
    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
    max_position_embeddings=4096,
)  # fmt: skip


def plain_model():  # type: ignore[no-untyped-def]
    rows = RowSettings(raw_tokens=32, block_size=NO_LANDMARKS, rows=2)
    return new_model(ARCHITECTURE, byte_tokenizer(), rows, seed=0)


def test_an_arm_without_landmarks_is_the_causal_attention_of_hugging_face() -> None:
    model, tokens = plain_model(), torch.randint(0, 250, (40,)).tolist()
    whole = recurrent_losses(model, tokens, window=64, cache=0)
    state = model.backbone.state_dict()
    plain = LlamaForCausalLM(model.backbone.config)
    plain.load_state_dict(state)
    plain.set_attn_implementation("sdpa")
    logits = plain(torch.tensor([tokens])).logits[0, :-1].detach()
    torch.testing.assert_close(whole, nn.functional.cross_entropy(logits, torch.tensor(tokens[1:]), reduction="none"))


def test_recurrence_attends_to_its_cache_and_no_further() -> None:
    """With a cache as long as the text, the first layer sees everything; a token out of reach changes nothing."""
    model, tokens = plain_model(), torch.randint(0, 250, (48,)).tolist()
    whole = recurrent_losses(model, tokens, window=64, cache=0)
    torch.testing.assert_close(recurrent_losses(model, tokens, window=8, cache=64), whole, atol=1e-5, rtol=1e-5)
    alone = recurrent_losses(model, tokens, window=8, cache=0)
    torch.testing.assert_close(alone[8:15], recurrent_losses(model, tokens[8:17], window=8, cache=0)[:7])
    changed = [(tokens[0] + 1) % 250, *tokens[1:]]
    near, far = (recurrent_losses(model, given, window=8, cache=8) for given in (tokens, changed))
    assert not torch.equal(near[:24], far[:24]), "two layers reach back two windows"
    torch.testing.assert_close(near[24:], far[24:])


def test_recurrent_training_minimises_the_loss_that_is_evaluated() -> None:
    model, tokens = plain_model(), torch.randint(0, 250, (1, 33)).numpy()
    grid = Grid(32, NO_LANDMARKS, model.config.landmark_token_id, "skip-landmarks", False, 256)
    rows = pack(tokens[:, :32], grid)
    loss, _, count = recurrent_loss(model, rows, window=8, cache=8)
    assert count == 31
    wanted = recurrent_losses(model, tokens[0, :32].tolist(), window=8, cache=8).mean()
    torch.testing.assert_close(loss.detach(), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", sizes.ARMS)
def test_no_arm_is_starved(name: str) -> None:
    for size in sizes.SIZES.values():
        arm = size.arm(name)
        assert size.step_tokens % arm.row_tokens == 0, "the same tokens in every step"
        assert arm.window + arm.cache <= 4 * size.window


def test_a_table_has_the_mean_and_the_deviation_of_its_seeds() -> None:
    row = {"arm": "causal", "length": 128, "local": 128, "k": 0, "blocks": 0, "attended": 128}
    rows = [row | {"loss": loss, "seed": seed} for seed, loss in enumerate((math.log(2.0), math.log(4.0)))]
    (summary,) = summarise(rows)
    assert summary["perplexity"] == pytest.approx(3.0) and summary["deviation"] == pytest.approx(2**0.5)
    assert summarise(rows[:1])[0]["deviation"] is None


def test_a_table_is_made_by_one_command_and_not_twice(tmp_path: Path, monkeypatch, capfd) -> None:
    size = replace(
        sizes.SIZES["tiny"], architecture=ARCHITECTURE, window=32, per_block=7, rows=4, steps=2, lengths=(32, 128),
        segments=1, top_ks=(2,), block_sizes=(7,),
    )  # fmt: skip
    monkeypatch.setitem(sizes.SIZES, "tiny", size)
    text = tmp_path / "text.txt"
    text.write_text("It has stood on the summit since then, and nobody knows for how long. " * 40)
    command = ["paper", "language", str(text), "--heldout", str(text), "--out", str(tmp_path / "run"), "--size", "tiny"]
    assert main([*command, "--seeds", "1", "--threads", "1"]) == 0
    rows = json.loads((tmp_path / "run" / "language.json").read_text())["rows"]
    assert {(row["arm"], row["length"], row["k"]) for row in rows} == {
        *((arm, length, 0) for arm in sizes.ARMS for length in (32, 128)), *(("landmark", n, 2) for n in (32, 128)),
    }  # fmt: skip
    assert all(1 < row["perplexity"] < 400 for row in rows)
    assert (tmp_path / "run" / "language.svg").read_text().startswith("<?xml")
    capfd.readouterr()
    assert main([*command, "--seeds", "1", "--threads", "1"]) == 0
    assert "steps in" not in capfd.readouterr().out, "nothing is trained again"
    assert main([*command[:1], "choice", *command[2:], "--seeds", "1", "--threads", "1"]) == 0
    choices = json.loads((tmp_path / "run" / "choice.json").read_text())["rows"]
    assert [row["choice"] for row in choices] == ["head and token", "head", "token"]
    monkeypatch.setitem(sizes.SIZES, "small", replace(size, name="small"))
    command[-1] = "small"
    assert main(command) == 2


def test_arms_are_named() -> None:
    size = sizes.SIZES["small"]
    assert size.arm("landmark-31") == Arm(
        name="landmark-31", kind="landmark", row_tokens=512, window=512, block_size=32
    )
    with pytest.raises(ValueError):
        size.arm("something")
