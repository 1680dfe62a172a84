"""Encoders as finders: states are the keys, the blocks' means the landmarks, tokens are found in the text."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from model.checkpoint.load import load_backbone
from model.errors import ContextTooLong, ModelError
from model.inference.prefill import prefill
from model.inference.prompt import encode_prompt
from tests.tiny_encoder import CONFIGS, save_tiny_encoder

TEXT = "The dam was raised in 1962, after the flood; Nobody was hurt. " * 8


def load(folder, **settings):
    return load_backbone(folder, device="cpu", block_size=16, **settings)


@pytest.mark.parametrize("family", CONFIGS)
def test_keys_are_the_states_of_the_network_and_landmarks_their_mean(tmp_path, family):
    model = load(save_tiny_encoder(tmp_path, [TEXT], family))
    ids = model.tokenize(TEXT).ids[:-4]
    blocks = list(prefill(model, ids))
    window = model.config.window_blocks * model.config.tokens_per_block
    assert len(ids) > window and blocks[-1].num_tokens < model.config.tokens_per_block, "several windows, a short block"
    network = AutoModel.from_pretrained(tmp_path).eval()
    expected = []
    with torch.no_grad():
        for start in range(0, len(ids), window):
            wrapped = torch.tensor([[2, *ids[start : start + window], 3]])
            expected.append(
                network(input_ids=wrapped, attention_mask=torch.ones_like(wrapped)).last_hidden_state[0, 1:-1]
            )
    states_TE = torch.nn.functional.normalize(torch.cat(expected), dim=-1)
    keys_TE = torch.cat([block.keys_YGLD[0, 0, : block.num_tokens] for block in blocks])
    torch.testing.assert_close(keys_TE, states_TE)
    for block in blocks:
        mean_E = block.keys_YGLD[0, 0, : block.num_tokens].mean(0)
        torch.testing.assert_close(block.keys_YGLD[0, 0, -1], mean_E / mean_E.norm())
        assert not block.values_YGLD.any()


def test_a_question_is_read_alone_with_its_prefix(tmp_path):
    model = load(save_tiny_encoder(tmp_path, [TEXT], prompts={"query": "query :", "passage": "passage :"}))
    prompt = model.prompt("Was the dam raised?")
    queries_QE = encode_prompt(model, prompt.ids).queries_YHQD[0, 0]
    network = AutoModel.from_pretrained(tmp_path).eval()
    before = model.tokenize("query :").ids
    wrapped = torch.tensor([[2, *before, *model.tokenize("Was the dam raised?").ids, 3]])
    with torch.no_grad():
        states = network(input_ids=wrapped).last_hidden_state[0, 1 + len(before) : -1]
    torch.testing.assert_close(queries_QE, torch.nn.functional.normalize(states, dim=-1))
    with pytest.raises(ContextTooLong, match="shorten"):
        encode_prompt(model, model.prompt("dam " * 200).ids)


def test_prefixes_that_are_set_go_before_those_of_the_checkpoint_and_change_the_identity(tmp_path):
    folder = save_tiny_encoder(tmp_path, [TEXT], prompts={"query": "query :", "document": "passage :"})
    stated, plain = load(folder), load(folder, query_prefix="", passage_prefix="")
    assert stated.prefixes.passage == tuple(stated.tokenize("passage :").ids)
    assert plain.prefixes.query == plain.prefixes.passage == ()
    ids = stated.tokenize(TEXT).ids
    assert not torch.equal(next(prefill(stated, ids)).keys_YGLD, next(prefill(plain, ids)).keys_YGLD)
    one, other = stated.identity(), plain.identity()
    assert [name for name in one if one[name] != other[name]] == ["finder"]
    assert load(folder).identity() == one, "the same each time it is loaded"


def test_the_projection_of_a_colbert_style_checkpoint_is_used(tmp_path):
    model = load(save_tiny_encoder(tmp_path / "beside", [TEXT], project_to=8))
    plain = load(save_tiny_encoder(tmp_path / "plain", [TEXT]))
    projection = load_file(tmp_path / "beside" / "model.safetensors")["linear.weight"]
    ids = model.tokenize(TEXT).ids[:10]
    (block,), (without,) = prefill(model, ids), prefill(plain, ids)
    assert model.head_dim == 8 and plain.head_dim == 32
    projected = torch.nn.functional.normalize(without.keys_YGLD[0, 0, :10] @ projection.T, dim=-1)
    torch.testing.assert_close(block.keys_YGLD[0, 0, :10], projected)
    assert model.identity()["finder"] != plain.identity()["finder"]
    dense = tmp_path / "plain" / "1_Dense"
    dense.mkdir()
    save_file({"linear.weight": projection}, dense / "model.safetensors")
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    folder = dense.parent / "modules.json"
    folder.write_text(json.dumps([*modules, {"type": "pylate.models.Dense.Dense", "path": "1_Dense"}]))
    assert load(dense.parent).head_dim == 8
    pooled = {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}
    folder.write_text(json.dumps([*modules, pooled, {"type": "sentence_transformers.models.Dense", "path": "1_Dense"}]))
    assert load(dense.parent).head_dim == 32, "behind pooling it is no projection of tokens"


def test_tokens_are_found_in_a_text_that_they_do_not_spell(tmp_path):
    model = load(save_tiny_encoder(tmp_path, [TEXT]))
    found, size = model.tokenize(TEXT), model.config.tokens_per_block
    for first in range(0, len(found.ids), size):
        start, end = int(found.starts[first]), int(found.ends[min(first + size, len(found.ids)) - 1])
        ends = model.token_ends(found.ids[first : first + size], TEXT, start, end)
        assert ends == found.ends[first : first + size].tolist()
    other = model.token_ends([5, 6, 7, 8], TEXT, 0, 40)
    assert other == [10, 20, 30, 40], "tokens that are not those of the text share it evenly"


def test_what_cannot_be_a_finder_is_refused(tmp_path):
    folder = save_tiny_encoder(tmp_path, [TEXT])
    with pytest.raises(ModelError, match="too few for a block of 256"):
        load_backbone(folder, device="cpu", block_size=256)
    weights = load_file(folder / "model.safetensors")
    gone = next(name for name in weights if "query" in name)
    save_file(
        {name: one for name, one in weights.items() if name != gone}, folder / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(ModelError, match=f"missing: {gone}"):
        load(folder)


BROKEN = {
    "settings cut short": ("config_sentence_transformers.json", b"{"),
    "settings that are a list": ("config_sentence_transformers.json", b"[]"),
    "modules that are an object": ("modules.json", b'{"one": 1, "two": 2}'),
    "a projection cut short": ("1_Dense/model.safetensors", b"x" * 100),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_damaged_file_beside_the_weights_is_a_sentence(tmp_path, fault):
    folder = save_tiny_encoder(tmp_path, [TEXT])
    modules = [{"type": "Transformer", "path": ""}, {"type": "pylate.models.Dense.Dense", "path": "1_Dense"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Dense").mkdir()
    name, content = BROKEN[fault]
    (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match="cannot be read"):
        load(folder)
