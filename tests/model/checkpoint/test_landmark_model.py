import json
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Starcoder2Config,
)

from model.checkpoint import backbone_model
from model.checkpoint.config import LandmarkConfig
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from model.checkpoint.published import add_landmark_token
from model.errors import ModelError, UnsupportedBackbone
from tests.tiny_model import FAMILIES, SHAPE, byte_tokenizer, tiny_model


def checkpoint(folder: Path, family: str) -> Path:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(deepcopy(FAMILIES[family])).save_pretrained(folder)
    tokenizer = byte_tokenizer()
    plain = json.loads(tokenizer.backend_tokenizer.to_str())
    plain["added_tokens"] = [t for t in plain["added_tokens"] if t["content"] != "<landmark>"]
    fast = type(tokenizer)(tokenizer_object=Tokenizer.from_str(json.dumps(plain)), eos_token="<end>")
    fast.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_a_plain_checkpoint_gets_a_landmark_whose_rows_are_the_mean_of_the_others(family: str, tmp_path: Path) -> None:
    model = load_backbone(checkpoint(tmp_path / "plain", family), device="cpu", block_size=16)
    token = model.config.landmark_token_id
    assert model.tokenizer.convert_ids_to_tokens(token) == "<landmark>" and model.config.block_size == 16
    for table in (model.backbone.get_input_embeddings(), model.backbone.get_output_embeddings()):
        torch.testing.assert_close(table.weight[token], table.weight[:token].mean(0), atol=1e-5, rtol=1e-4)
    model.save(tmp_path / "landmark")
    again = load_backbone(tmp_path / "landmark", device="cpu")
    assert again.config == model.config
    ids = torch.randint(0, 256, (1, 40))
    with torch.no_grad():
        torch.testing.assert_close(again(ids), model(ids))


def test_other_families_are_refused_by_name(tmp_path: Path) -> None:
    GPT2Config().save_pretrained(tmp_path)
    with pytest.raises(UnsupportedBackbone, match="'gpt2' is not supported.*llama"):
        load_backbone(tmp_path)


def test_rope_that_depends_on_the_length_is_refused(tmp_path: Path) -> None:
    LlamaConfig(**SHAPE, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}).save_pretrained(
        tmp_path
    )
    with pytest.raises(UnsupportedBackbone, match="rope type 'dynamic'"):
        load_backbone(tmp_path)


def test_a_folder_without_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="config.json is missing"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("family", [MistralConfig, Starcoder2Config])
def test_a_sliding_window_limits_the_positions(family: type[PreTrainedConfig]) -> None:
    torch.manual_seed(0)
    backbone = AutoModelForCausalLM.from_config(family(**SHAPE, sliding_window=64))
    model = LandmarkModel(backbone, byte_tokenizer(), LandmarkConfig(block_size=8, landmark_token_id=260))
    assert model.max_positions == 64


def test_a_backbone_called_without_its_model_says_so() -> None:
    model = tiny_model()
    with pytest.raises(ModelError, match="call it through LandmarkModel"):
        model.backbone(input_ids=torch.ones((1, 4), dtype=torch.long))


def test_the_identity_changes_with_whatever_changes_a_memory() -> None:
    model = tiny_model()
    before = model.identity()
    assert before == tiny_model().identity()
    weight = next(model.backbone.parameters())
    with torch.no_grad():
        weight.view(-1)[0] = torch.nextafter(weight.view(-1)[0], torch.tensor(9.0))
    assert {k for k, v in model.identity().items() if v != before[k]} == {"weights"}
    assert {k for k, v in tiny_model(block_size=16).identity().items() if v != before[k]} == {"block_size"}
    assert {k for k, v in tiny_model(memory_layers=(2,)).identity().items() if v != before[k]} == {"memory_layers"}
    assert "rope" in {k for k, v in tiny_model("llama-yarn").identity().items() if v != before[k]}


def test_names_of_special_tokens_in_a_text_are_plain_text() -> None:
    model = tiny_model()
    tokens = model.tokenize("a <landmark> b <end>")
    assert model.config.landmark_token_id not in tokens.ids and model.tokenizer.eos_token_id not in tokens.ids
    text = "a <landmark> b <end>"
    assert "".join(text[s:e] for s, e in zip(tokens.starts, tokens.ends, strict=True)) == text
    assert model.prompt("<landmark>?").ids == model.prompt("<landmark>?").ids
    assert model.config.landmark_token_id not in model.prompt("<landmark>?").ids


def test_the_question_is_found_inside_the_prompt() -> None:
    model = tiny_model(prompt="Q: {question}\nA:")
    prompt = model.prompt("Who?")
    assert model.decode(prompt.ids) == "Q: Who?\nA:" and model.decode(prompt.ids[prompt.question]) == "Who?"


def test_where_a_question_stands_twice_its_repetition_counts() -> None:
    model = tiny_model(prompt="{question} Again: {question}\nA:")
    prompt = model.prompt("Who?")
    assert model.decode(prompt.ids) == "Who? Again: Who?\nA:"
    assert prompt.question.start == len(model.tokenize("Who? Again: ").ids)
    assert model.decode(prompt.ids[prompt.question]) == "Who?"


def test_token_ends_are_the_lengths_of_the_decoded_prefixes() -> None:
    for model in (tiny_model(), load_backbone(Path(__file__).parents[3] / "model" / "default", device="cpu")):
        ids = model.tokenize("Müller’s 漢字 are “naïve” – 12.5 % of it 🙂.").ids
        wanted = [len(model.decode(ids[: stop + 1])) for stop in range(len(ids))]
        assert model.token_text.ends(ids) == wanted
        plain = model.tokenize("Nothing but letters, then. It is 12 o'clock.").ids
        for stretch in (plain, plain[3:], plain[:1], []):
            wanted = [len(model.decode(stretch[: stop + 1])) for stop in range(len(stretch))]
            assert model.token_text.ends(stretch) == wanted


def test_token_ends_of_a_long_text_decode_no_long_beginnings(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    ids = model.tokenize("Grüße an alle: 漢字. " * 200).ids
    longest, plain = [0], model.token_text._beginnings

    def watched(tokens: list[int]) -> list[str]:
        longest.append(len(tokens))
        return plain(tokens)

    monkeypatch.setattr(model.token_text, "_beginnings", watched)
    assert model.token_text.ends(ids)[-1] == len(model.decode(ids))
    assert 1 < max(longest) < 20


def test_settings_that_an_earlier_release_had_are_dropped() -> None:
    old = {"block_size": 8, "landmark_token_id": 1, "points_at_answers": True, "pointing": [64, 3]}
    plain = LandmarkConfig(block_size=8, landmark_token_id=1)
    assert LandmarkConfig.from_dict(old) == plain
    assert LandmarkConfig.from_dict({**old, "quotes": True}) == replace(plain, answers="quoted")


def test_settings_of_a_newer_version_are_refused() -> None:
    with pytest.raises(ModelError, match="newer version"):
        LandmarkConfig.from_dict({"block_size": 8, "landmark_token_id": 1, "tomorrow": 1})


@pytest.mark.parametrize(
    "odd", [{"block_size": "64"}, {"memory_layers": 6}, {"landmark_token_id": None}, {"evidence_weights": [[0.0, 0.0]]}]
)
def test_settings_of_another_type_are_refused(odd: dict[str, object]) -> None:
    with pytest.raises(ModelError):
        LandmarkConfig.from_dict({"block_size": 8, "landmark_token_id": 1, **odd})


def test_adding_a_landmark_keeps_the_other_rows() -> None:
    torch.manual_seed(0)
    backbone = AutoModelForCausalLM.from_config(LlamaConfig(**{**SHAPE, "vocab_size": 256}))
    before = backbone.get_input_embeddings().weight.detach().clone()
    token = add_landmark_token(backbone, byte_tokenizer())
    assert token >= 256
    torch.testing.assert_close(backbone.get_input_embeddings().weight[:256], before)


def test_left_padding_is_refused_and_right_padding_changes_nothing() -> None:
    model = tiny_model().requires_grad_(False)
    ids = torch.randint(0, 256, (2, 16))
    valid = torch.ones(2, 16, dtype=torch.bool)
    valid[1, 5:] = False
    torch.testing.assert_close(model(ids, valid)[1, :5], model(ids[1:, :5])[0], atol=1e-5, rtol=1e-5)
    with pytest.raises(ModelError, match="padding on the right"):
        model(ids, valid.flip(-1))


def test_a_landmark_inside_a_block_is_refused() -> None:
    model = tiny_model().requires_grad_(False)
    ids = torch.tensor([model.with_landmarks(range(16))] * 2)
    model(ids)
    ids[1, 9] = model.config.landmark_token_id
    with pytest.raises(ModelError, match="position 9 of row 1.* stand at positions 7, 15"):
        model(ids)
    valid = torch.ones_like(ids, dtype=torch.bool)
    valid[1, 9:] = False
    assert bool(torch.isfinite(model(ids, valid)).all()), "padding may hold anything"


def test_many_threads_may_tokenize_at_once_and_names_of_special_tokens_are_plain_text() -> None:
    model = tiny_model()
    texts = [f"<landmark> is a word {number} and <end> another. " * 50 for number in range(8)]
    alone = [model.tokenize(text).ids for text in texts]
    assert all(max(ids) < 256 for ids in alone), "bytes, and no special token"
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: model.tokenize(text).ids, texts)) == alone
    assert model.prompt("What?").ids, "the model's own template still knows its special tokens"


def test_weights_of_a_folder_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, kept, hashed = tmp_path / "checkpoint", tmp_path / "weights.json", list[str]()
    plain = backbone_model.weights_digest
    monkeypatch.setattr(backbone_model, "weights_digest", lambda network: hashed.append("") or plain(network))
    tiny_model().save(folder)
    model = load_backbone(folder, device="cpu")
    first = model.identity(kept)
    assert load_backbone(folder, device="cpu").identity(kept) == first
    assert len(hashed) == 1
    assert model.identity() == first
    with torch.no_grad():
        model.backbone.lm_head.weight[3] += 1.0
    assert model.identity(kept)["weights"] != first["weights"]  # other numbers in memory
    kept.write_text("{")
    assert load_backbone(folder, device="cpu").identity(kept) == first
    tiny_model(seed=2).save(folder)
    assert load_backbone(folder, device="cpu").identity(kept)["weights"] != first["weights"]
