"""What a preset trains can be used: it reads a document, and answers over what it stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from model.checkpoint.load import load_backbone
from research.train.recipes.finetune import finetune
from research.train.recipes.presets import load_preset, preset_names
from research.train.recipes.pretrain import byte_tokenizer, pretrain
from retrieval.extraction import extract
from retrieval.library import Library
from tests.retrieval.reading_here import ReadingHere

SMALL = [f"architecture.{name}={size}" for name, size in (
    ("hidden_size", 32), ("intermediate_size", 48), ("num_hidden_layers", 2), ("num_attention_heads", 2),
    ("num_key_value_heads", 2), ("pad_vocab_to", 0),
)]  # fmt: skip
ONE_STEP = [
    "rows.rows=1", "training.steps=1", "training.accumulation=1", "training.max_seconds=60", "training.precision=fp32",
    "training.compile=false",
]  # fmt: skip
TEXT = "The dam was raised by three metres in 1981, when the eastern villages were connected to the network. " * 20


@pytest.mark.parametrize("name", preset_names())
def test_what_every_preset_trains_reads_a_document_and_answers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, run = tmp_path / "text.txt", tmp_path / "run"
    data.write_text(TEXT)
    if load_preset(name).architecture is None:
        shape = LlamaConfig(
            vocab_size=260, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=2048,
        )  # fmt: skip
        LlamaForCausalLM(shape).save_pretrained(tmp_path / "base")
        byte_tokenizer().save_pretrained(tmp_path / "base")
        finetune(load_preset(name, ONE_STEP), str(tmp_path / "base"), [data], run, device="cpu", progress_bar=False)
    else:
        pretrain(load_preset(name, SMALL + ONE_STEP), byte_tokenizer(), [data], run, device="cpu", progress_bar=False)
    sandbox = ReadingHere()
    monkeypatch.setattr(extract, "SANDBOX", sandbox)
    with Library.open(tmp_path / "home", load_backbone(run / "model", device="cpu")) as library:
        job = library.jobs.run(library.documents.submit(data).id)
        assert job.state == "done", job.error
        *_, answer = library.ask("When was the dam raised?", k=2, max_tokens=4)
        assert answer.decided_by == "attention" and answer.settings["space"] == "memory"
    sandbox.close()


def test_rows_that_the_network_could_not_read_again_are_refused(tmp_path: Path) -> None:
    preset = load_preset("tiny", ["architecture.max_position_embeddings=63"])
    with pytest.raises(ValueError, match="need 64 positions, but the network has 63"):
        pretrain(preset, byte_tokenizer(), [tmp_path / "none.txt"], tmp_path / "run", device="cpu")
