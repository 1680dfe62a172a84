import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from model.attention.selection import SelectionPolicy
from model.inference.generate import GeneratedToken
from research.train.__main__ import main
from research.train.evaluation import passkey
from research.train.evaluation.passkey import first_integer, passkey_prompt, passkey_scores
from research.train.evaluation.perplexity import perplexity_scores, segment_losses
from tests.tiny_model import tiny_model


def test_a_passkey_prompt_has_the_published_form() -> None:
    prompt = passkey_prompt(500, random.Random(1))
    task, before, statement, after, end = prompt.text.split("\n")
    assert task.startswith("There is an important info hidden")
    assert statement == f"The pass key is {prompt.key}. Remember it. {prompt.key} is the pass key."
    assert len(before) + len(after) == 500
    assert before.startswith("The grass is green.") and end == ""
    assert prompt.question == "What is the pass key? The pass key is"


@pytest.mark.parametrize(("text", "number"), [(" 123. 456", 123), ("none", None), ("a7b", 7)])
def test_the_first_integer_of_an_answer_counts(text: str, number: int | None) -> None:
    assert first_integer(text) == number


@pytest.mark.parametrize("positions", ["paper", "library"])
def test_passkey_prompts_are_read_through_the_memory(positions: str) -> None:
    model = tiny_model(window_blocks=4, context_blocks=2)
    policy = SelectionPolicy(top_k=2, positions=positions)  # type: ignore[arg-type]
    (score,) = passkey_scores(model, [60], prompts=2, policy=policy, max_tokens=3)
    assert (score.filler_characters, score.prompts) == (60, 2)
    assert 0 <= score.accuracy <= 1 and score.mean_tokens > 250


def test_a_model_that_knows_the_key_scores_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()

    def cheating(_, prompt, **__):  # type: ignore[no-untyped-def]
        key = model.decode(prompt).split("is the pass key")[0].split()[-1]
        return iter([GeneratedToken(0, f" {key}.", 0.0, (), None)])

    monkeypatch.setattr(passkey, "generate", cheating)
    (score,) = passkey_scores(model, [50], prompts=3, policy=SelectionPolicy(positions="paper"))
    assert score.accuracy == 1


def test_reading_every_block_has_the_loss_of_the_one_pass_forward() -> None:
    model = tiny_model()
    raw = torch.randint(0, 250, (80,), generator=torch.Generator().manual_seed(0)).tolist()
    found = segment_losses(model, raw, window_blocks=2, top_k=99)
    ids = model.with_landmarks(raw)
    logits = model(torch.tensor([ids]))[0].detach()
    at = [row for row, token in enumerate(ids) if token != model.config.landmark_token_id]
    wanted = nn.functional.cross_entropy(logits[at[:-1]], torch.tensor(raw[1:]), reduction="none")
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_blocks_in_files_change_nothing_and_only_the_memory_of_one_text_lies_there(tmp_path: Path) -> None:
    model = tiny_model()
    raw = torch.randint(0, 250, (120,), generator=torch.Generator().manual_seed(0)).tolist()
    held = segment_losses(model, raw, window_blocks=2, top_k=2)
    assert torch.equal(held, segment_losses(model, raw, window_blocks=2, top_k=2, offload=tmp_path))
    with pytest.raises(ValueError, match="--blocks or --offload"):
        segment_losses(model, raw, window_blocks=2, top_k=2, blocks=5, offload=tmp_path)
    paper, library = (SelectionPolicy(top_k=2, positions=positions) for positions in ("paper", "library"))
    scores = [list(passkey_scores(model, [60], prompts=1, policy=paper, offload=each)) for each in (None, tmp_path)]
    assert scores[0] == scores[1]
    with pytest.raises(ValueError, match="--positions paper"):
        list(passkey_scores(model, [60], policy=library, offload=tmp_path))
    assert not list(tmp_path.iterdir())


def test_without_memory_every_window_stands_alone() -> None:
    model = tiny_model()
    raw = torch.randint(0, 250, (35,), generator=torch.Generator().manual_seed(0)).tolist()
    alone = segment_losses(model, raw, window_blocks=2, top_k=0)
    first, second = (segment_losses(model, part, window_blocks=2, top_k=0) for part in (raw[:14], raw[14:28]))
    torch.testing.assert_close(alone[:26], torch.cat((first, second)))


def test_perplexity_is_scored_for_every_combination() -> None:
    model = tiny_model()
    tokens = np.random.default_rng(0).integers(0, 250, 200)
    scores = list(
        perplexity_scores(model, tokens, lengths=[40, 60], windows=[2], top_ks=[0, 1], blocks=[None, 3], segments=2)
    )
    assert [(s.length, s.top_k, s.blocks) for s in scores] == [
        (length, *rest) for length in (40, 60) for rest in ((0, None), (1, None), (1, 3))
    ]
    assert all(score.segments == 2 and math.isclose(score.perplexity, math.exp(score.loss)) for score in scores)
    assert scores[1].loss != scores[2].loss  # the ring buffer dropped something


def test_a_memory_smaller_than_k_is_refused() -> None:
    with pytest.raises(ValueError, match="more than k"):
        list(perplexity_scores(tiny_model(), np.arange(50), lengths=[40], windows=[2], top_ks=[4], blocks=[4]))


def test_the_commands_evaluate_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_model(window_blocks=4, context_blocks=2).save(tmp_path / "model")
    (tmp_path / "text.txt").write_text("a text of some length, held out from training. " * 4)
    common = ["--model", str(tmp_path / "model"), "--device", "cpu", "--out", str(tmp_path / "scores.json")]
    assert main(["evaluate", "passkey", *common, "--lengths", "0", "--prompts", "1", "--k", "2", "--window", "4"]) == 0
    assert json.loads((tmp_path / "scores.json").read_text())["scores"][0]["prompts"] == 1
    perplexity = [str(tmp_path / "text.txt"), "--lengths", "50", "--window", "2", "--k", "0", "--k", "1"]
    assert main(["evaluate", "perplexity", *common, *perplexity]) == 0
    report = json.loads((tmp_path / "scores.json").read_text())
    assert report["kind"] == "perplexity" and [score["top_k"] for score in report["scores"]] == [0, 1]
    assert "perplexity" in capsys.readouterr().out


def test_a_mistake_on_the_command_line_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(tmp_path)]) == 2
    assert "give the folder of a training run" in capsys.readouterr().err


def test_a_model_is_tokenized_trained_and_plotted_by_commands(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two three four five six seven eight nine ten. " * 20)
    text, tokens, run = str(tmp_path / "text.txt"), str(tmp_path / "tokens.bin"), str(tmp_path / "run")
    assert main(["tokenize", text, "--tokenizer", "bytes", "--out", tokens]) == 0
    training = [tokens, "--set", "training.steps=2", "--heldout", tokens, "--out", run, "--device", "cpu"]
    assert main(["pretrain", "--preset", "tiny", "--tokenizer", "bytes", *training]) == 0
    assert main(["plot", run]) == 0
    assert (tmp_path / "run" / "loss.svg").is_file()
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
