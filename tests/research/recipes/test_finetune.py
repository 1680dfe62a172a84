import json
from pathlib import Path

import pytest
import torch

from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from research.train.recipes.finetune import add_adapters, finetune, merge_adapters
from research.train.recipes.presets import LoraSettings, load_preset, preset_names
from research.train.recipes.pretrain import byte_tokenizer, new_model
from tests.tiny_model import tiny_model

STEPS = ["training.steps=3", "training.learning_rate=1e-2", "rows.rows=2"]


def text_file(folder: Path) -> Path:
    file = folder / "text.jsonl"
    file.write_text("".join(json.dumps({"text": f"line {n} says {n * n} things"}) + "\n" for n in range(40)))
    return file


def changed_rows(before: LandmarkModel, after: LandmarkModel, name: str) -> list[int]:
    old, new = before.state_dict()[name], after.state_dict()[name]
    return [row for row in range(len(old)) if not torch.equal(old[row], new[row])]


@pytest.mark.parametrize("family", ["llama", "llama-tied"])
def test_lora_trains_the_landmark_rows_and_leaves_an_ordinary_checkpoint(tmp_path: Path, family: str) -> None:
    start = tiny_model(family)
    start.save(tmp_path / "start")
    preset = load_preset("tiny", [*STEPS, "lora.rank=2"])
    finetune(preset, str(tmp_path / "start"), [text_file(tmp_path)], tmp_path / "run", device="cpu", progress_bar=False)
    tuned = load_backbone(tmp_path / "run" / "model", device="cpu")
    assert set(tuned.state_dict()) == set(start.state_dict())
    landmark = start.config.landmark_token_id
    assert changed_rows(start, tuned, "backbone.model.embed_tokens.weight") == [landmark]
    assert changed_rows(start, tuned, "backbone.model.layers.0.self_attn.q_proj.weight")
    assert not changed_rows(start, tuned, "backbone.model.norm.weight")


def test_merged_adapters_compute_what_the_adapters_did() -> None:
    model = tiny_model().eval()
    add_adapters(model, LoraSettings(rank=2))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape) * 0.1)
    ids = torch.randint(0, 250, (1, 30))
    ids[:, 7::8] = model.config.landmark_token_id
    with torch.no_grad():
        before = model(ids)
        merge_adapters(model)
        torch.testing.assert_close(model(ids), before, atol=1e-4, rtol=1e-4)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_full_fine_tuning_trains_everything_and_resumes_its_run(tmp_path: Path) -> None:
    start = tiny_model()
    start.save(tmp_path / "start")
    arguments = (str(tmp_path / "start"), [text_file(tmp_path)])
    for steps in (2, 4):
        preset = load_preset("tiny", [*STEPS, f"training.steps={steps}", "training.activation_checkpointing=true"])
        result = finetune(preset, *arguments, tmp_path / "run", device="cpu", progress_bar=False)
    assert result.step == 4
    tuned = load_backbone(tmp_path / "run" / "model", device="cpu")
    assert tuned.config.block_size == start.config.block_size == 8  # that of the checkpoint, not of the preset
    assert changed_rows(start, tuned, "backbone.model.norm.weight")
    in_run = load_backbone(tmp_path / "run" / "checkpoints" / "step-00000004" / "model", device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(in_run.parameters(), tuned.parameters(), strict=True))


def test_activation_checkpointing_changes_memory_not_gradients() -> None:
    from research.train.engine.network import enable_activation_checkpointing

    gradients = []
    for recompute in (False, True):
        model = tiny_model().train()
        if recompute:
            enable_activation_checkpointing(model)
        ids = torch.randint(0, 250, (1, 30), generator=torch.Generator().manual_seed(0))
        model.encode(ids, model.context()).logsumexp(-1).mean().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_be_read(name: str) -> None:
    preset = load_preset(name)
    grid = preset.rows.grid(1, 2)
    assert grid.row_tokens > preset.rows.raw_tokens
    if preset.architecture is not None:
        assert grid.row_tokens <= preset.architecture.max_position_embeddings


def test_the_published_recipes_are_those_of_the_specification() -> None:
    tuning, scratch = load_preset("paper-llama-finetune"), load_preset("paper-12-layer-lm")
    assert (tuning.rows.raw_tokens, tuning.rows.block_size, tuning.rows.targets) == (512, 51, "all")
    assert tuning.rows.rows * tuning.training.accumulation == 128
    assert tuning.training.rate(15000, 0) == pytest.approx(2e-6, rel=0.05)
    assert (scratch.training.steps, scratch.training.clip_norm, scratch.training.sum_gradients) == (240_000, None, True)
    assert scratch.training.rate(239_999, 0) == pytest.approx(4e-4, rel=1e-3)


@pytest.mark.parametrize(
    ("override", "message"),
    [("training.step=1", "unknown keys step"), ("steps=1", "table.key=value"), ("rows.block_size=1", "a token")],
)
def test_a_wrong_override_says_what_is_wrong(override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_preset("tiny", [override]).rows.grid(1, 2)


def test_a_new_model_has_a_landmark_and_starts_as_configured() -> None:
    preset = load_preset("tiny")
    assert preset.architecture is not None
    model = new_model(preset.architecture, byte_tokenizer(), preset.rows, seed=3)
    assert model.tokenizer.convert_tokens_to_ids("<landmark>") == model.config.landmark_token_id == 257
    assert model.config.block_size == preset.rows.block_size
    again = new_model(preset.architecture, byte_tokenizer(), preset.rows, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
