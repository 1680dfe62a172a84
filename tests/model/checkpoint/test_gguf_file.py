"""A GGUF file is the checkpoint that it was made of: the same weights, tokens and chat frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from model.checkpoint import backbone_model
from model.checkpoint.load import load_chat_model
from model.errors import ModelError
from tests.tiny_model import CHAT_TEMPLATE, SHAPE, tiny_chat_model

gguf = pytest.importorskip("gguf")

NORMAL, CONTROL = 1, 3  # kinds of tokens


def write_gguf(path: Path, model: Any) -> None:
    """A llama with a byte-level tokenizer, as llama.cpp writes it: in float32, queries and keys in its own order."""
    writer = gguf.GGUFWriter(path, "llama")
    config = model.backbone.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    tokenizer = model.tokenizer
    tokens = [tokenizer.convert_ids_to_tokens(at) or f"<unused{at}>" for at in range(SHAPE["vocab_size"])]
    tokens[-1] = "QQ"  # a tokenizer without merges would be taken for another kind
    special = set(tokenizer.all_special_tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if token in special else NORMAL for token in tokens])
    writer.add_token_merges(["Q Q"])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_chat_template(CHAT_TEMPLATE)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in model.backbone.state_dict().items():
        layer_part = name.split(".")[-2]
        if layer_part in heads:
            halves = weight.view(heads[layer_part], 2, -1, weight.shape[1])
            weight = halves.transpose(1, 2).reshape(weight.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_gives_weights_tokens_and_frame_of_its_checkpoint(tmp_path: Path) -> None:
    model = tiny_chat_model("llama")
    write_gguf(tmp_path / "tiny.gguf", model)
    read = load_chat_model(tmp_path / "tiny.gguf", device="cpu")
    assert read.frame == model.frame and read.stop_ids == {model.tokenizer.eos_token_id}
    ids = model.suffix_ids("Where is the key?")
    assert read.suffix_ids("Where is the key?") == ids
    for name, weight in model.backbone.state_dict().items():
        torch.testing.assert_close(read.backbone.state_dict()[name], weight, atol=0, rtol=0)


def test_the_weights_of_a_gguf_file_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, kept, hashed = tmp_path / "tiny.gguf", tmp_path / "weights.json", list[str]()
    plain = backbone_model.weights_digest
    monkeypatch.setattr(backbone_model, "weights_digest", lambda network: hashed.append("") or plain(network))
    write_gguf(file, tiny_chat_model("llama"))
    first = load_chat_model(file, device="cpu").identity(kept)
    assert load_chat_model(file, device="cpu").identity(kept) == first and len(hashed) == 1
    write_gguf(file, tiny_chat_model("llama", seed=2))
    assert load_chat_model(file, device="cpu").identity(kept)["weights"] != first["weights"]


def test_a_file_that_is_missing_or_no_gguf_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no file"):
        load_chat_model(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_text("this is text")
    with pytest.raises(ModelError, match="cannot be read as a GGUF file"):
        load_chat_model(tmp_path / "text.gguf")


def test_without_its_package_a_gguf_file_names_the_extra_and_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "any.gguf").touch()
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with pytest.raises(ModelError, match=r"cairn\[gguf\].*Ollama"):
        load_chat_model(tmp_path / "any.gguf")
