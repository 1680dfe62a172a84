"""Adapters and the loop: what is trained, what a kill loses, and that something is learned."""

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from model.checkpoint.landmark_model import LandmarkModel
from research.landmark_lm import training
from research.landmark_lm.lora import adapt, train_all
from research.landmark_lm.rows import Asked, RowText
from research.landmark_lm.sources import (
    Context,
    Mixture,
    Passkeys,
    PlainText,
    Questions,
    Source,
    Tokens,
    draw_row,
    open_sources,
    read_contexts,
)
from research.landmark_lm.training import MasterWeights, Progress, Settings, rate_at, train
from tests.research.landmark_lm.conftest import SHAPE, long_text
from tests.tiny_model import tiny_model

LM = {"block_size": 32, "window_blocks": 4, "context_blocks": 0, "memory_layers": (1, 2)}


@dataclass
class OneRow:
    """The same row again and again: a name stands before a number in the memory, and is asked for."""

    tokens: Tokens
    killed_at: int | None = None
    drawn: int = 0

    def draw(self, rng: random.Random) -> RowText:
        self.drawn += 1
        if self.drawn == self.killed_at:
            raise KeyboardInterrupt
        passages = [list(b"the key of Anna is 17 today"), list(b"the key of Peter is 42 today")]
        asked = [
            Asked(self.tokens.prompt("Anna"), self.tokens.answer("17"), ((0, 19, 21),)),
            Asked(self.tokens.prompt("Peter"), self.tokens.answer("42"), ((1, 20, 22),)),
        ]
        return RowText(passages, asked)


def fresh(rank: int = 4) -> tuple[LandmarkModel, dict[str, nn.Parameter]]:
    torch.manual_seed(0)
    model = tiny_model("llama-tied", **LM)
    trained = adapt(model, rank=rank, alpha=2 * rank, layers=range(3)) if rank else train_all(model)
    return model, trained


def all_kinds(source: Source) -> dict[str, Source]:
    return dict.fromkeys(("questions", "gaps", "passkeys", "copying", "text"), source)


def test_an_adapter_of_a_lower_rank_is_gone_on_from(tmp_path: Path) -> None:
    settings = Settings(steps=3, warmup=1, rate=1e-2, most_read=2)
    model, trained = fresh(2)
    train(model, trained, all_kinds(OneRow(Tokens(model, SHAPE))), SHAPE, settings, tmp_path)
    wider, more = fresh(4)
    ids = torch.arange(20)[None]
    assert not torch.equal(wider.encode(ids, wider.context()), model.encode(ids, model.context()))
    MasterWeights(more, settings).load(tmp_path / "weights.safetensors", moments=False)
    torch.testing.assert_close(wider.encode(ids, wider.context()), model.encode(ids, model.context()))


@pytest.mark.parametrize(("rank", "left"), [(8, 0.85), (0, 0.3)])
def test_an_answer_is_learned_from_memory(tmp_path: Path, rank: int, left: float) -> None:
    model, trained = fresh(rank)
    settings = Settings(rate=1e-2, warmup=5, steps=40, rows=1, most_read=2)
    train(model, trained, all_kinds(OneRow(Tokens(model, SHAPE))), SHAPE, settings, tmp_path)
    rows = [json.loads(line)["rows"][0] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert rows[-1]["words"] < left * rows[0]["words"]


def test_an_adapter_changes_nothing_before_it_is_trained() -> None:
    plain, (adapted, _) = tiny_model("llama-tied", **LM), fresh()
    ids = torch.arange(20)[None]
    assert torch.equal(plain.encode(ids, plain.context()), adapted.encode(ids, adapted.context()))


def test_only_the_adapter_and_the_landmark_are_trained() -> None:
    model, trained = fresh()
    moving = {id(weight) for weight in model.backbone.parameters() if weight.requires_grad}
    assert moving == {id(weight) for weight in trained.values()}
    assert "landmark" in trained and "2.down_proj.b" in trained
    assert len(trained) == 1 + 3 * 7 * 2


def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    """But for landmarks kept from rows before, of which there are none here."""
    settings = Settings(steps=6, warmup=2, kept_steps=0, most_read=2, checkpoint_minutes=0)
    weights = []
    for folder, killed_at in (("whole", None), ("parts", 3)):
        model, trained = fresh()
        source = OneRow(Tokens(model, SHAPE), killed_at)
        if killed_at is not None:
            with pytest.raises(KeyboardInterrupt):
                train(model, trained, all_kinds(source), SHAPE, settings, tmp_path / folder)
            with (tmp_path / folder / "log.jsonl").open("a") as log:
                log.write('{"step": 3, "rows": []}\n{"step": 4, "ro')  # behind the last checkpoint, and cut off
            model, trained = fresh()
            source = OneRow(Tokens(model, SHAPE))
        train(model, trained, all_kinds(source), SHAPE, settings, tmp_path / folder)
        weights.append({name: weight.detach().clone() for name, weight in trained.items()})
    steps = [json.loads(line)["step"] for line in (tmp_path / "parts" / "log.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 5, 6]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight)


@pytest.mark.parametrize("killed_at", [3, 5, 6])  # files that are put in their place
def test_a_run_that_was_killed_while_it_was_saved_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    settings = Settings(steps=6, warmup=2, kept_steps=0, most_read=2, checkpoint_minutes=0)
    put: list[Path] = []

    def kill(new: Path, file: Path) -> None:
        put.append(file)
        if len(put) == killed_at:
            raise KeyboardInterrupt
        new.rename(file)

    weights = []
    for folder in ("whole", "parts"):
        if folder == "parts":
            monkeypatch.setattr("research.landmark_lm.training.os.replace", kill)
            model, trained = fresh()
            with pytest.raises(KeyboardInterrupt):
                train(model, trained, all_kinds(OneRow(Tokens(model, SHAPE))), SHAPE, settings, tmp_path / folder)
        model, trained = fresh()
        train(model, trained, all_kinds(OneRow(Tokens(model, SHAPE))), SHAPE, settings, tmp_path / folder)
        weights.append({name: weight.detach().clone() for name, weight in trained.items()})
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight)


@pytest.mark.gpu
def test_steps_that_are_replayed_as_graphs_are_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded as they are: bfloat16 adds up in another order."""
    losses = []
    for replayed in (True, False):
        model, trained = fresh()
        model.backbone.to("cuda")
        if not replayed:
            monkeypatch.setattr(training, "_Replayed", lambda run: lambda step: run(step.to(torch.device("cuda"))))
        source, folder = all_kinds(OneRow(Tokens(model, SHAPE))), tmp_path / str(replayed)
        train(model, trained, source, SHAPE, Settings(rate=1e-2, steps=12, warmup=2, most_read=2), folder)
        lines = (folder / "log.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["rows"][0]["words"] for line in lines])
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_weights_of_a_higher_rank_are_refused(tmp_path: Path) -> None:
    settings = Settings(steps=1, most_read=2)
    model, trained = fresh(4)
    train(model, trained, all_kinds(OneRow(Tokens(model, SHAPE))), SHAPE, settings, tmp_path / "a")
    model, trained = fresh(2)
    with pytest.raises(ValueError, match="higher rank"):
        source = all_kinds(OneRow(Tokens(model, SHAPE)))
        train(
            model, trained, source, SHAPE, settings, tmp_path / "b", start_from=tmp_path / "a" / "weights.safetensors"
        )


def test_the_rate_rises_and_falls_to_a_tenth() -> None:
    settings = Settings(rate=1.0, warmup=10, steps=110)
    rates = [rate_at(Progress(step), settings) for step in range(110)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == rates[9] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.1, abs=1e-3)
    timed = Settings(rate=1.0, warmup=10, minutes=2)
    assert rate_at(Progress(50, seconds=60), timed) == pytest.approx(0.55)
    assert rate_at(Progress(50, seconds=130), timed) == pytest.approx(0.1)


def test_made_rows_come_first() -> None:
    rng = random.Random(0)
    early, late = ([Mixture(0.8, 0.1).draw(done, 1, rng)[0] for _ in range(2000)] for done in (0.0, 1.0))
    made = [sum(kind in ("passkeys", "copying") for kind in kinds) / 2000 for kinds in (early, late)]
    assert made == pytest.approx([0.8, 0.1], abs=0.05)


def test_passkeys_stand_in_one_row_of_a_step_at_most() -> None:
    rng = random.Random(0)
    steps = [Mixture(0.4, 0.4).draw(0.5, 4, rng) for _ in range(500)]
    assert {len(kinds) for kinds in steps} == {4}
    assert sum(kinds.count("passkeys") for kinds in steps) / 500 == pytest.approx(0.8, abs=0.06)
    assert max(kinds.count("passkeys") for kinds in steps) == 1


@pytest.mark.parametrize("kind", ["questions", "gaps", "passkeys", "copying", "text"])
def test_every_kind_of_row_asks_for_what_stands_in_its_gold_passage(
    lm: LandmarkModel, tokens: Tokens, data: Path, kind: str
) -> None:
    source = open_sources(data, tokens)[kind]
    for seed in range(5):
        row = draw_row(source, random.Random(seed))
        assert row.asked and all(0 < len(passage) <= tokens.room for passage in row.passages)
        for asked in row.asked:
            assert asked.kind == kind
            if kind == "text":
                assert not asked.prompt and len(asked.answer) == 31
                assert [passage for passage, _, _ in asked.places] == list(range(len(row.passages)))
                continue
            assert len(asked.places) == 1 or kind == "gaps"
            said = lm.decode(asked.answer[:-1]).removeprefix("The pass key is ").strip()
            assert all(said in lm.decode(row.passages[passage][first:last]) for passage, first, last in asked.places)


def test_files_without_questions_are_refused(tokens: Tokens, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no plain text"):
        open_sources(tmp_path, tokens)


def test_questions_without_an_answer_span_are_refused(tokens: Tokens, tmp_path: Path) -> None:
    row = {"context": "House 1 is red.", "question": "How is house 1?", "answers": ["red"], "answer_starts": []}
    (tmp_path / "set.jsonl").write_text(json.dumps(row))
    with pytest.raises(ValueError, match="no question with an answer span"):
        read_contexts(tmp_path / "set.jsonl")
    beyond = Context(1, "", "House 1 is red.", (("How is house 1?", "red", 40),))
    with pytest.raises(ValueError, match="Questions has nothing to ask .* no answer span"):
        draw_row(Questions(tokens, [[[beyond]]]), random.Random(0))


@pytest.mark.parametrize("passages", [2, 22, 24, 60])
def test_passkeys_stand_in_as_many_passages_as_there_are_names(lm: LandmarkModel, passages: int) -> None:
    text = PlainText(Tokens(lm, replace(SHAPE, passages=passages, blocks=8)), [long_text(1, 2000)])
    rows = [draw_row(Passkeys(text), random.Random(seed)) for seed in range(6)]
    assert {len(row.passages) for row in rows} == {passages // 2}
    assert {len(row.asked) for row in rows} > {1}
