"""A tiny joint reader over the words of some texts, with random weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import BertPreTokenizer

from model.checkpoint.backbones import BertConfig
from model.reading.network import JointReader
from model.reading.span_reader import SpanReader

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", ":")


def word_tokenizer(texts: Sequence[str]) -> Tokenizer:
    words = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())} - {":"})
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *words))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), BertPreTokenizer()
    return tokenizer


def tiny_reader(texts: Sequence[str]) -> SpanReader:
    tokenizer = word_tokenizer(texts)
    torch.manual_seed(0)
    return SpanReader(JointReader(tiny_config(tokenizer)).eval(), tokenizer)


def tiny_config(tokenizer: Tokenizer) -> BertConfig:
    return BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=512,
    )


def save_encoder(folder: Path, texts: Sequence[str]) -> None:
    """A BERT-like checkpoint as the recipe starts from."""
    reader = tiny_reader(texts)
    folder.mkdir(parents=True)
    save_file(reader.network.encoder.state_dict(), folder / "model.safetensors")
    (folder / "config.json").write_text(reader.network.config.to_json_string())
    reader.tokenizer.save(str(folder / "tokenizer.json"))
