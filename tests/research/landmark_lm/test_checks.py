"""The goals are measured end to end, and a trained adapter is what the product loads."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.attention.selection import SelectionPolicy
from model.checkpoint.adapter import Base
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from research.landmark_lm.evaluation import Amounts, answer, evaluate
from research.landmark_lm.export import export_adapter, shrink_adapter
from research.landmark_lm.lora import adapt
from research.landmark_lm.memories import PartOfMemory, landmark_votes, read_passages
from research.landmark_lm.report import Point, read_curve, tokens_until, write_report
from research.landmark_lm.sources import Tokens
from research.landmark_lm.training import MasterWeights, Progress, Settings
from tests.research.landmark_lm.conftest import SHAPE
from tests.tiny_model import FAMILIES, byte_tokenizer, tiny_backbone


def test_every_goal_is_measured(lm: LandmarkModel, data: Path, tmp_path: Path) -> None:
    amounts = Amounts(passkeys=1, passkey_tokens=(300, 600), questions=2, blocks=12, texts=2, top_k=2)
    figures = dict(evaluate(Tokens(lm, SHAPE), data, amounts))
    assert set(figures) == {"passkey_248", "passkey_496", "questions", "text", "time"}
    assert figures["questions"]["blocks"] >= 12
    assert 0 <= figures["questions"]["bm25_first"] <= figures["questions"]["bm25_among_8"] <= 1
    page = write_report(tmp_path, figures)
    assert page.count("\n| ") == 2 + 6 and (tmp_path / "report.md").read_text() == page


def test_parts_of_a_memory_read_what_they_say(lm: LandmarkModel) -> None:
    library = read_passages(lm, [list(range(10, 60)), list(range(60, 90))])
    assert library.first_block == [0, 2, 3] and library.memory.num_blocks == 3
    queries = torch.randn(1, lm.num_kv_heads, 1, 2, lm.head_dim)
    best, worst = (part.search(1, queries, 1) for part in (library.memory, PartOfMemory(library.memory, worst=True)))
    assert not torch.equal(best, worst)
    (ids,) = (torch.zeros(1, lm.num_kv_heads, 1, 1, dtype=torch.long),)
    keys, values, _ = PartOfMemory(library.memory, zeroed=True).read(1, ids)
    assert not keys.any() and not values.any()
    only = PartOfMemory(library.memory, blocks=[2])
    torch.testing.assert_close(only.read(1, ids)[0], library.memory.read(1, ids + 2)[0])


def test_votes_are_shares_of_the_whole_memory(lm: LandmarkModel) -> None:
    memory = read_passages(lm, [list(range(10, 100))]).memory
    votes_N = landmark_votes(lm, memory, lm.prompt("who?").ids, SelectionPolicy(top_k=2))
    assert votes_N.shape == (3,) and votes_N.sum().item() == pytest.approx(1, abs=1e-5)


def test_a_trained_adapter_answers_in_the_product_as_it_did_in_training(lm: LandmarkModel, tmp_path: Path) -> None:
    tiny_backbone(FAMILIES["llama-tied"]).save_pretrained(tmp_path / "base")
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(tmp_path / "base")
    lm.backbone.load_state_dict(tiny_backbone(FAMILIES["llama-tied"]).state_dict())
    trained = adapt(lm, rank=2, alpha=4.0, layers=range(3))
    with torch.no_grad():
        for weight in trained.values():
            weight.copy_(torch.randn_like(weight).mul(0.05).bfloat16())  # as an exported adapter holds them
    MasterWeights(trained, Settings()).save(tmp_path / "weights.safetensors", Progress())
    export_adapter(tmp_path / "weights.safetensors", lm.config, Base("nobody/nothing"), tmp_path / "adapter", scale=2.0)

    loaded = load_backbone(f"{tmp_path / 'adapter'}@{tmp_path / 'base'}", device="cpu")
    assert loaded.config == lm.config
    ids = torch.tensor([lm.with_landmarks(range(50))])
    with torch.no_grad():
        hidden = [model.encode(ids, model.context()) for model in (loaded, lm)]
    torch.testing.assert_close(*hidden, atol=1e-4, rtol=1e-4)
    assert answer(loaded, "who?", None, SelectionPolicy()) == answer(lm, "who?", None, SelectionPolicy())


def test_an_adapter_of_a_lower_rank_is_the_nearest_one(tmp_path: Path) -> None:
    low = {"0.q_proj.a": torch.randn(2, 9), "0.q_proj.b": torch.randn(7, 2), "landmark": torch.randn(9)}
    # The same product written with a higher rank, and one that no low rank holds.
    mixed = torch.randn(5, 2)
    held = low | {"0.q_proj.a": mixed @ low["0.q_proj.a"], "0.q_proj.b": low["0.q_proj.b"] @ torch.linalg.pinv(mixed)}
    held |= {"1.q_proj.a": torch.eye(5, 9), "1.q_proj.b": torch.eye(7, 5)}
    (tmp_path / "high").mkdir()
    (tmp_path / "high" / "config.json").write_text("{}")
    save_file(held, tmp_path / "high" / "adapter.safetensors")
    assert shrink_adapter(tmp_path / "high", tmp_path / "low", 2) == pytest.approx(2 / 5)
    kept = load_file(tmp_path / "low" / "adapter.safetensors")
    assert kept["0.q_proj.a"].shape == (2, 9) and (tmp_path / "low" / "config.json").is_file()
    product = low["0.q_proj.b"] @ low["0.q_proj.a"]
    torch.testing.assert_close(kept["0.q_proj.b"] @ kept["0.q_proj.a"], product, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(kept["landmark"], low["landmark"])


def test_the_curve_tells_how_many_tokens_a_loss_would_take(tmp_path: Path) -> None:
    lines = [
        {"tokens": 100 * n, "questions": n, "rows": [{"kind": "questions", "words": 6 - 0.5 * n**0.5, "first": 0.5}]}
        for n in range(1, 41)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    curve = read_curve(tmp_path / "log.jsonl", "questions", points=4)
    assert [point.tokens for point in curve] == [1000, 2000, 3000, 4000]
    assert read_curve(tmp_path / "log.jsonl", "text") == []
    straight = [Point(10**n, 0, 5.0 - n, None) for n in range(1, 5)]
    assert tokens_until(straight, -1.0) == pytest.approx(10**6)
    assert tokens_until([Point(10**n, 0, 5.0, None) for n in range(1, 5)], 1.0) is None
