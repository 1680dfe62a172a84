"""The paper's tables in small: what the arms compute, and that a table is made, and made only once."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM

from research.train.__main__ import main
from research.train.data.packing import Grid, pack
from research.train.losses.next_token import next_token_loss
from research.train.paper import sizes
from research.train.paper.arms import (
    NO_LANDMARKS,
    Arm,
    recurrent_loss,
    recurrent_losses,
)
from research.train.paper.made_sets import MADE_SETS
from research.train.paper.runs import Experiment, _readings
from research.train.paper.tables import summarise
from research.train.recipes.presets import Architecture, RowSettings
from research.train.recipes.pretrain import byte_tokenizer, new_model

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


def test_no_gradient_flows_into_the_cache() -> None:
    model, tokens = plain_model(), torch.randint(0, 250, (1, 32)).numpy()
    rows = pack(tokens, Grid(32, NO_LANDMARKS, model.config.landmark_token_id, "skip-landmarks", False, 256))
    recurrent_loss(model, rows, window=8, cache=64)[0].backward()
    through_cache = model.backbone.model.layers[0].self_attn.v_proj.weight.grad.clone()
    model.zero_grad()
    next_token_loss(model, rows)[0].backward()
    assert not torch.allclose(through_cache, model.backbone.model.layers[0].self_attn.v_proj.weight.grad)


def test_the_published_cells_of_table_1_are_among_those_read() -> None:
    """Rows of 10 blocks of 50: k, blocks of the window (50 each), blocks kept at the most."""
    cells = {
        length: {(k, 50 * window, kept) for k, window, kept in _readings(10, -(-length // 50), (0, 2, 3, 4), True)}
        for length in (512, 2048, 4096)
    }
    assert {(0, 500, None), (2, 250, None)} <= cells[512]
    assert {(2, 250, None), (2, 350, None), (3, 300, None), (4, 250, 20), (4, 250, None)} <= cells[2048]
    assert {(4, 250, 41), (2, 250, None), (4, 250, None)} <= cells[4096]
    plain = set(_readings(10, 41, (0, 2, 4), False))
    assert plain == {(0, 10, None), (2, 7, None), (4, 5, None)}


@pytest.mark.parametrize("name", [*sizes.ARMS, "landmark-tuned"])
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


def test_seeds_are_paired_with_the_first_arm() -> None:
    """The same text for every arm: what a seed adds to both is not noise of their difference."""
    seeds = (1.0, 2.0, 3.0)
    rows = [
        {"arm": arm, "length": 64, "k": 0, "loss": loss + better, "seed": seed}
        for arm, better in (("causal", 0.0), ("landmark", -0.5))
        for seed, loss in enumerate(seeds)
    ]
    causal, landmark = summarise(rows)
    assert (causal["paired"], landmark["paired"]) == (0.0, pytest.approx(-0.5))
    assert landmark["paired_error"] == pytest.approx(0.0, abs=1e-9) and landmark["deviation"] > 1.0


def test_a_table_is_made_by_one_command_and_not_twice(tmp_path: Path, monkeypatch, capfd) -> None:
    size = replace(
        sizes.SIZES["tiny"], architecture=ARCHITECTURE, window=32, per_block=7, rows=4, steps=2, tuning_steps=1,
        rates=(1e-3, 2e-3), lengths=(32, 128), segments=1, top_ks=(2,), block_sizes=(7,),
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
    assert {row["blocks"] for row in rows if row["length"] == 128 and row["k"]} == {18, 9}, "all, and half of them"
    assert all(1 < row["perplexity"] < 400 and row["milliseconds"] > 0 for row in rows)
    runs = sorted(run.name for run in (tmp_path / "run" / "runs" / "causal").iterdir())
    assert runs[0].startswith("seed-0-rate-0.00") and runs[0].count("steps") == 0, "the run of the better rate"
    assert {"seed-0-rate-0.001-steps-1", "seed-0-rate-0.002-steps-1"} < set(runs) and len(runs) == 3
    assert (tmp_path / "run" / "language.svg").read_text().startswith("<?xml")
    capfd.readouterr()
    assert main([*command, "--seeds", "1", "--threads", "1"]) == 0
    assert "steps in" not in capfd.readouterr().out, "nothing is trained again"
    assert main([*command[:1], "choice", *command[2:], "--seeds", "1", "--threads", "1"]) == 0
    choices = json.loads((tmp_path / "run" / "choice.json").read_text())["rows"]
    assert [row["choice"] for row in choices] == ["head and token", "head", "token"]
    assert main([*command[:1], "passages", *command[2:], "--seeds", "1", "--threads", "1"]) == 0
    passages = json.loads((tmp_path / "run" / "passages.json").read_text())["rows"]
    assert [(row["passages"], row["stride"]) for row in passages] == [
        ("landmarks", 1), ("BM25", 1), ("newest", 1)
    ]  # fmt: skip
    monkeypatch.setitem(sizes.SIZES, "small", replace(size, name="small"))
    command[-1] = "small"
    assert main(command) == 2
    one = [*command[:-3], str(tmp_path / "one"), "--size", "tiny", "--seeds", "1", "--threads", "1", "--rate"]
    assert main([*one, "3e-3"]) == 0
    assert [run.name for run in (tmp_path / "one" / "runs" / "causal").iterdir()] == ["seed-0-rate-0.003"]
    assert main([*one, "1e-3"]) == 2, "what is there was trained at another rate"
    assert main([*one, "0"]) == 2


def test_tables_of_made_sets_are_made_by_one_command(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    size = replace(
        sizes.SIZES["tiny"], architecture=ARCHITECTURE, window=32, per_block=4, rows=4, steps=1, rates=(1e-3,),
        lengths=(32, 64), segments=1, top_ks=(2,), documents=1, prompts=1,
    )  # fmt: skip
    monkeypatch.setitem(sizes.SIZES, "tiny", size)

    def rows(table: str, made: str) -> list[dict[str, object]]:
        folder = tmp_path / made
        assert (
            main(["paper", table, made, "--out", str(folder), "--size", "tiny", "--seeds", "1", "--threads", "1"]) == 0
        )
        return json.loads((folder / f"{table}.json").read_text())["rows"]  # type: ignore[no-any-return]

    found = rows("passkey", "passkey")
    assert [(row["arm"], row["k"]) for row in found] == [("causal", 0)] * 3 + [("landmark-tuned", 2)] * 3
    assert all(row["accuracy"] == 0 for row in found), "one step teaches nothing"


def test_fine_tuning_goes_on_from_the_causal_network(tmp_path: Path) -> None:
    size = replace(
        sizes.SIZES["tiny"], architecture=ARCHITECTURE, window=32, per_block=4, rows=4, steps=1, rates=(0.0,),
        lengths=(32,), segments=1, documents=1,
    )  # fmt: skip
    made = MADE_SETS["series"]
    experiment = Experiment(tmp_path, size, made.tokenizer(), "cpu")
    experiment.prepare(made.train(1), made.heldout(1, 32))
    tuned, causal = (experiment.trained(size.arm(name), 0) for name in ("landmark-tuned", "causal"))
    assert tuned.config.block_size == 5 and causal.config.block_size == NO_LANDMARKS
    for name, weight in causal.backbone.state_dict().items():
        assert torch.equal(tuned.backbone.state_dict()[name], weight), "a rate of 0 leaves it where it starts"


def test_arms_are_named() -> None:
    size = sizes.SIZES["small"]
    assert size.arm("landmark-31") == Arm(
        name="landmark-31", kind="landmark", row_tokens=512, window=512, block_size=32,
        rated_as="landmark",
    )  # fmt: skip
    with pytest.raises(ValueError):
        size.arm("something")


def test_a_variant_takes_the_rate_of_the_landmark_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Experiment(tmp_path, replace(sizes.SIZES["small"], rates=(1e-3, 2e-3, 4e-3)), None, "cpu")  # type: ignore[arg-type]
    losses = {("causal", 1e-3): 1.0, ("landmark", 4e-3): 1.0}
    monkeypatch.setattr(Experiment, "_run", lambda self, arm, seed, rate, steps: rate)
    monkeypatch.setattr(Experiment, "_heldout_loss", lambda self, arm, rate: losses.get((arm.name, rate), 2.0))
    rates = {name: experiment.rate(experiment.size.arm(name)) for name in ("causal", "landmark", "landmark-31")}
    assert rates == {"causal": 1e-3, "landmark": 4e-3, "landmark-31": 4e-3}
