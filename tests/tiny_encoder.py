"""Tiny encoders with random weights, saved as Hugging Face checkpoints, over the words of some texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    XLMRobertaConfig,
)

from tests.tiny_reader import word_tokenizer

SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 130,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
CONFIGS: dict[str, type[PreTrainedConfig]] = {
    "bert": BertConfig,
    "distilbert": DistilBertConfig,
    "electra": ElectraConfig,
    "modernbert": ModernBertConfig,
    "mpnet": MPNetConfig,
    "roberta": RobertaConfig,
    "xlm-roberta": XLMRobertaConfig,
}
_NAMES = {"distilbert": {"hidden_size": "dim", "intermediate_size": "hidden_dim"}}


def save_tiny_encoder(
    folder: Path,
    texts: Sequence[str],
    family: str = "bert",
    *,
    project_to: int = 0,
    prompts: dict[str, str] | None = None,
) -> Path:
    """`project_to`: width of a ColBERT-style projection beside the weights; `prompts`: named as sentence-transformers
    names them."""
    words = word_tokenizer([*texts, *(prompts or {}).values()])
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **named)
    names = _NAMES.get(family, {})
    shape = {names.get(name, name): value for name, value in SHAPE.items()}
    config = CONFIGS[family](vocab_size=len(tokenizer), **shape)
    torch.manual_seed(5)
    encoder = AutoModel.from_config(config)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if "word_embeddings" in name or "tok_embeddings" in name:
                parameter.mul_(20)  # so that tokens are told apart, whatever stands around them and wherever
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if project_to:
        weights = load_file(folder / "model.safetensors")
        save_file(
            {**weights, "linear.weight": torch.randn(project_to, 32)}, folder / "model.safetensors", {"format": "pt"}
        )
    if prompts:
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    return folder
