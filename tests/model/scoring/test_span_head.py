from pathlib import Path

import pytest
import torch
from torch import Tensor

from model.checkpoint.load import load_backbone
from model.errors import ModelError
from model.scoring.span_head import FILE, SpanHead, load_head
from research.train.recipes.rounding import save_int8
from tests.tiny_model import tiny_model

E, L = 16, 12
WEIGHED = ((1.0,) * 4,)


def made(seed: int = 0, questions: int = 2, blocks: int = 3) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    there = torch.ones(questions, blocks, L, dtype=torch.bool)
    there[:, :, -1] = False
    there[:, 1, 5:] = False
    return {
        "keys_QCLE": torch.randn(questions, blocks, L, E, generator=draw),
        "valid_QCL": there,
        "queries_QTE": torch.randn(questions, 4, E, generator=draw),
        "question_mask_QT": torch.tensor([[True] * 4, [True, True, False, False]])[:questions],
        "span_queries_Q2E": torch.randn(questions, 2, E, generator=draw),
    }


def head(**sizes: int) -> SpanHead:
    torch.manual_seed(1)
    return SpanHead(E, sizes.get("width", 8), sizes.get("layers", 2)).eval()


@torch.no_grad()
def test_what_is_no_token_is_never_pointed_at_and_changes_nothing() -> None:
    given, pointing = made(), head()
    points, nothing = pointing(**given)
    assert points.shape == (2, 2, 3, L) and nothing.shape == (2, 2)
    assert (points == -torch.inf).eq(~given["valid_QCL"][:, None].expand_as(points)).all()
    keys, queries = given["keys_QCLE"].clone(), given["queries_QTE"].clone()
    keys[~given["valid_QCL"]] = 100.0
    queries[~given["question_mask_QT"]] = 100.0
    again, nothing_again = pointing(**(given | {"keys_QCLE": keys, "queries_QTE": queries}))
    torch.testing.assert_close(again, points)
    torch.testing.assert_close(nothing_again, nothing)


@torch.no_grad()
def test_a_block_is_judged_by_itself_and_a_token_by_those_around_it() -> None:
    given, pointing = made(), head(layers=1)
    points, _ = pointing(**given)
    keys = given["keys_QCLE"].clone()
    keys[:, 2, 6] += 1.0
    changed = (pointing(**(given | {"keys_QCLE": keys}))[0] - points).abs().nan_to_num(0) > 1e-6
    assert not changed[:, :, :2].any()
    assert changed[:, :, 2, 3:10].all()  # three tokens on each side


def test_the_head_learns_what_a_product_cannot_the_token_before_the_one_that_matches() -> None:
    pointing = head(width=16, layers=1)
    optimizer = torch.optim.AdamW(pointing.parameters(), lr=1e-2)

    def task(seed: int) -> tuple[dict[str, Tensor], Tensor]:
        draw = torch.Generator().manual_seed(seed)
        keys = torch.randn(64, 1, L, E, generator=draw)
        there = torch.ones(64, 1, L, dtype=torch.bool)
        row = torch.randint(1, L, (64,), generator=draw)
        asked = keys[torch.arange(64), 0, row][:, None]
        given = {"keys_QCLE": keys, "valid_QCL": there, "queries_QTE": asked, "span_queries_Q2E": torch.ones(64, 2, E)}
        return given | {"question_mask_QT": torch.ones(64, 1, dtype=torch.bool)}, row - 1

    for step in range(120):
        given, wanted = task(step)
        loss = torch.nn.functional.cross_entropy(pointing(**given)[0][:, 0, 0], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    given, wanted = task(1000)
    assert (pointing(**given)[0][:, 0, 0].argmax(-1) == wanted).float().mean() > 0.9


@pytest.mark.parametrize("compact", [False, True])
def test_a_checkpoint_carries_its_head(compact: bool, tmp_path: Path) -> None:
    plain = tiny_model(memory_layers=(2,), search_weights=WEIGHED, ranks_by_tokens=True, points_at_answers=True)
    width = plain.num_kv_heads * plain.head_dim
    pointed = plain.with_span_head(SpanHead(width, 8, 1).eval())
    assert pointed.identity() == plain.identity(), "a memory can be read by a model whose head was trained again"
    save_int8(pointed, tmp_path) if compact else pointed.save(tmp_path)
    again = load_backbone(tmp_path, device="cpu", dtype=torch.bfloat16)
    assert again.config.pointing == (8, 1) and again.span_head is not None and pointed.span_head is not None
    for name, weight in again.span_head.state_dict().items():
        assert weight.dtype == torch.float32
        torch.testing.assert_close(weight, pointed.span_head.state_dict()[name], rtol=0.01, atol=1e-3)
    file = tmp_path / FILE
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="copy the checkpoint again"):
        load_backbone(tmp_path, device="cpu")
    file.unlink()
    with pytest.raises(ModelError, match=f"holds no {FILE}"):
        load_backbone(tmp_path, device="cpu")


def test_a_head_of_another_size_is_refused(tmp_path: Path) -> None:
    head().save(tmp_path)
    with pytest.raises(ModelError, match="cannot be used"):
        load_head(tmp_path / FILE, key_width=E, width=9, layers=2)


def test_a_head_needs_what_it_is_made_of() -> None:
    with pytest.raises(ModelError, match="span head .* needs"):
        tiny_model(pointing=(8, 1))
