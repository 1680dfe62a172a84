"""The layout in which the LLaMA weights of the paper were published, from its files to an answer."""

from __future__ import annotations

import json
import struct
from itertools import islice, product
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from model.checkpoint.load import load_backbone
from model.errors import ModelError, UnsupportedBackbone
from research.train.convert.llama_delta import convert_llama
from research.train.convert.sentencepiece_file import read_pieces
from retrieval.extraction import extract
from retrieval.library import Library
from tests.retrieval.reading_here import ReadingHere

ROWS, PAD, LANDMARK = 32_002, 32_000, 32_001
TEXT = "The dam was raised by three metres in 1981. Größe: 3 µm. " * 30
WORDS = ("▁the", "▁dam", "▁was", "▁raised", "am", "▁d", "▁w", "as", "▁r", "ai", "se", "aised", "▁t", "he", "ised")


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3, value])
    size, length = b"", len(value)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + value


def _piece(text: str, score: float, kind: int) -> bytes:
    message = _field(1, text.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", score) + _field(3, kind)
    return _field(1, message)


def _tokenizer_model() -> bytes:
    """32,000 pieces as LLaMA has them: three special ones, the bytes, then pieces by falling score."""
    letters = "▁abcdefghijklmnopqrstuvwxyzTGß.:0123456789"
    made = (
        f"▁{a}{b}{c}{d}"
        for a, b, c, d in product("bcdfghjklmnpqrst", "aeiou", "bcdfghjklmnpqrstvwxz", "aeiourstlmnbcdfghjkpvwxz")
    )
    normal = [*WORDS, *letters]
    normal += islice(made, 32_000 - 259 - len(normal))  # of five characters with its mark, as none of `WORDS`
    pieces = [_piece("<unk>", 0.0, 2), _piece("<s>", 0.0, 3), _piece("</s>", 0.0, 3)]
    pieces += [_piece(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    pieces += [_piece(text, -float(rank), 1) for rank, text in enumerate(normal)]
    assert len(pieces) == 32_000
    return b"".join(pieces) + _field(2, _field(4, b"trainer"))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """config.json without anything of landmarks, two .bin shards with rotary buffers, tokenizer.model, added tokens."""
    folder = tmp_path_factory.mktemp("published")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=ROWS, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=2048, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    state = LlamaForCausalLM(config).state_dict()
    state |= {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.zeros(8) for layer in range(3)}
    for number, part in enumerate((list(state)[::2], list(state)[1::2]), 1):
        torch.save({name: state[name] for name in part}, folder / f"pytorch_model-0000{number}-of-00002.bin")
    (folder / "config.json").write_text(json.dumps(config.to_dict() | {"torch_dtype": "float32"}, default=str))
    (folder / "tokenizer.model").write_bytes(_tokenizer_model())
    (folder / "added_tokens.json").write_text(json.dumps({"<landmark>": LANDMARK, "[PAD]": PAD}))
    return folder


def test_as_published_it_is_refused_with_the_command_that_converts_it(published: Path) -> None:
    with pytest.raises(UnsupportedBackbone, match="convert-llama --published"):
        load_backbone(published, device="cpu")


def test_it_is_converted_once_reads_a_document_and_answers(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert_llama(published, tmp_path / "llama")
    model = load_backbone(tmp_path / "llama", device="cpu")
    assert (model.config.landmark_token_id, model.config.block_size) == (LANDMARK, 51)
    tokens = model.tokenize("the dam was raised, Größe µ")
    pieces = model.tokenizer.convert_ids_to_tokens(tokens.ids)
    assert pieces[:6] == ["▁the", "▁dam", "▁was", "▁r", "ai", "se"] and "<0xC2>" in pieces, pieces
    assert model.decode(tokens.ids) == "the dam was raised, Größe µ"
    (tmp_path / "dam.txt").write_text(TEXT)
    sandbox = ReadingHere()
    monkeypatch.setattr(extract, "SANDBOX", sandbox)
    with Library.open(tmp_path / "home", model) as library:
        job = library.jobs.run(library.documents.submit(tmp_path / "dam.txt").id)
        assert job.state == "done", job.error
        *_, answer = library.ask("When was the dam raised?", k=2, max_tokens=4)
        assert answer.decided_by == "attention" and answer.passages[0].text in TEXT
    sandbox.close()


def test_what_is_no_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.model"
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ModelError, match="tokenizer.model is no SentencePiece model"):
        read_pieces(file)
