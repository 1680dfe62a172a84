"""The passage encoder: its vectors, what it shares with a reader, and its files."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.errors import ModelError
from model.reading import passage_encoder
from model.reading.passage_encoder import load_passage_encoder
from model.reading.span_reader import SpanReader
from research.train.recipes.fewer_bits import write_passage_encoder
from tests.tiny_reader import tiny_reader

TEXTS = ["Ada lives in Rome.", "Bert lives in Oslo, near the sea.", "No word of it."]


@pytest.fixture
def reader() -> SpanReader:
    return tiny_reader([*TEXTS, "query : passage"])


@pytest.fixture
def folder(reader: SpanReader, tmp_path: Path) -> Path:
    """An encoder with other layers than the reader's, and its words."""
    base, other = tmp_path / "base", tiny_reader([*TEXTS, "query : passage"]).network.encoder
    base.mkdir()
    save_file(other.state_dict(), base / "model.safetensors")
    (base / "config.json").write_text(reader.network.config.to_json_string())
    write_passage_encoder(base, tmp_path / "encoder")
    return tmp_path / "encoder"


def test_a_text_has_one_vector_of_length_1_whatever_is_read_with_it(folder: Path, reader: SpanReader) -> None:
    encoder = load_passage_encoder(folder, reader)
    vectors = encoder.passages(TEXTS)
    assert vectors.shape == (3, encoder.width) and vectors.norm(dim=1).tolist() == pytest.approx([1.0] * 3)
    torch.testing.assert_close(torch.cat([encoder.passages([text]) for text in TEXTS]), vectors)
    assert len(encoder.passages([])) == 0
    assert not torch.allclose(encoder.question(TEXTS[0]), vectors[0]), "questions begin with another word"


def test_it_reads_no_more_than_its_longest_text(
    folder: Path, reader: SpanReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passage_encoder, "LONGEST", 6)
    encoder = load_passage_encoder(folder, reader)
    torch.testing.assert_close(*encoder.passages([TEXTS[0], f"{TEXTS[0]} Bert lives in Oslo."]))


def test_its_words_are_those_of_the_reader_and_take_no_room(folder: Path, reader: SpanReader) -> None:
    assert not any("word_embeddings" in name for name in load_file(folder / "model.safetensors"))
    encoder = load_passage_encoder(folder, reader)
    before = encoder.question(TEXTS[0])
    with torch.no_grad():
        reader.network.encoder.embeddings.word_embeddings.weight.neg_()
    assert not torch.allclose(encoder.question(TEXTS[0]), before), "the same memory"


def test_another_encoder_has_another_digest(folder: Path, reader: SpanReader) -> None:
    digest = load_passage_encoder(folder, reader).digest
    assert load_passage_encoder(folder, reader).digest == digest
    weights = load_file(folder / "model.safetensors")
    save_file(
        weights | {"embeddings.LayerNorm.bias": weights["embeddings.LayerNorm.bias"] + 1}, folder / "model.safetensors"
    )
    assert load_passage_encoder(folder, reader).digest != digest


@pytest.mark.parametrize("damage", ["no weights", "no config", "other weights"])
def test_damaged_files_are_named(folder: Path, reader: SpanReader, damage: str) -> None:
    if damage == "other weights":
        save_file({"embeddings.LayerNorm.bias": torch.zeros(2)}, folder / "model.safetensors")
    else:
        (folder / {"no weights": "model.safetensors", "no config": "config.json"}[damage]).unlink()
    with pytest.raises(ModelError, match="copied again|copy the checkpoint again"):
        load_passage_encoder(folder, reader)
