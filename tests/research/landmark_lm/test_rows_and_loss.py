"""Rows on the block grid, and a loss that is what the product's own reading and decoding give."""

import random

import pytest
import torch

from model.attention.selection import SelectionPolicy
from model.checkpoint.landmark_model import LandmarkModel
from model.inference.generate import answer_logprob
from research.landmark_lm import loss
from research.landmark_lm.loss import LandmarkCache, draw_reads, row_loss
from research.landmark_lm.memories import read_passages
from research.landmark_lm.rows import IGNORED, Asked, Row, RowText, lay_out

TEXT = RowText(
    "questions",
    [list(range(10, 60)), list(range(60, 90)), list(range(90, 160))],
    [Asked([1, 2, 3], [40, 41, 42], 0, ((30, 33),)), Asked(list(range(100, 140)), [70, 71], 1, ((10, 12),))],
)


def laid_out(model: LandmarkModel, text: RowText = TEXT) -> Row:
    config, padding = model.config, model.tokenizer.pad_token_id
    size, landmark = config.block_size, config.landmark_token_id
    return lay_out(text, block_size=size, blocks=4, landmark=landmark, padding=padding)


def test_passages_stand_on_the_block_grid_and_the_block_of_the_answer_is_gold(lm: LandmarkModel) -> None:
    row, landmark = laid_out(lm), lm.config.landmark_token_id
    assert row.ids_PT.shape == (3, 96)
    assert row.ids_PT[0, :33].tolist() == [*range(10, 41), landmark, 41]
    assert row.lengths_N.tolist() == [31, 19, 0, 30, 0, 0, 31, 31, 8]
    assert row.document_N.tolist() == [0, 0, -1, 1, -1, -1, 2, 2, 2]
    assert row.gold_QN.nonzero().tolist() == [[0, 0], [0, 1], [1, 3]]  # tokens 30..32 lie across a border


def test_every_token_of_the_answer_is_a_target_and_no_landmark_predicts(lm: LandmarkModel) -> None:
    row = laid_out(lm)
    assert row.targets_QT[0][row.targets_QT[0] != IGNORED].tolist() == [40, 41, 42]
    assert row.targets_QT[1][row.targets_QT[1] != IGNORED].tolist() == [70, 71]
    assert bool((row.targets_QT[row.windows_QT == lm.config.landmark_token_id] == IGNORED).all())


def test_the_loss_of_words_is_what_the_product_gives_over_the_same_memory(lm: LandmarkModel) -> None:
    row = laid_out(lm)
    memory = read_passages(lm, TEXT.passages).memory
    expected = []
    for asked in TEXT.asked:
        policy = SelectionPolicy(top_k=memory.num_blocks)
        expected.append(answer_logprob(lm, asked.prompt, asked.answer, memory=memory, policy=policy))
    _, said = row_loss(
        lm, row, LandmarkCache(2), gate_share=0.5, sum_share=0.0, most_read=6, rng=_always_all(memory.num_blocks)
    )
    assert said["words"] == pytest.approx(-torch.cat(expected).mean().item(), abs=1e-4)


def test_gradients_reach_what_stored_blocks_were_made_of(lm: LandmarkModel) -> None:
    whole, said = row_loss(
        lm, laid_out(lm), LandmarkCache(2), gate_share=0.5, sum_share=0.5, most_read=4, rng=random.Random(0)
    )
    whole.backward()
    landmark_row = lm.backbone.model.embed_tokens.weight.grad[lm.config.landmark_token_id]
    assert landmark_row.abs().sum() > 0
    assert set(said) == {"words", "right", "sums", "gates", "first"}


def test_a_question_reads_its_right_blocks_and_every_second_one_whatever_there_is_in_ascending_order(
    lm: LandmarkModel,
) -> None:
    row = laid_out(lm)
    counts, blind = set(), list[bool]()
    for seed in range(40):
        reads_QC = draw_reads(row, 6, random.Random(seed))
        counts.add(reads_QC.shape[1])
        assert bool((reads_QC.diff() > 0).all()) if reads_QC.shape[1] > 1 else True
        assert bool((row.document_N[reads_QC] >= 0).all())
        read_gold_Q = row.gold_QN.gather(1, reads_QC).any(1)
        assert bool(read_gold_Q[::2].all())
        blind += read_gold_Q[1::2].tolist()
    assert {1, 6} <= counts and {True, False} == set(blind)


def test_words_of_a_question_that_read_nothing_right_are_not_trained_but_its_choice_is(
    lm: LandmarkModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "draw_reads", lambda *_: torch.tensor([[0], [0]]))  # right for the first alone

    def said(row: Row) -> dict[str, float]:
        kept, rng = LandmarkCache(0), random.Random(0)
        return row_loss(lm, row, kept, gate_share=1.0, sum_share=0, most_read=1, rng=rng)[1]

    both, alone = laid_out(lm), laid_out(lm)
    alone.targets_QT[1] = IGNORED
    assert said(both)["words"] == pytest.approx(said(alone)["words"])
    assert said(both)["gates"] != pytest.approx(said(alone)["gates"])


def test_the_log_sum_exp_teacher_is_at_rest_where_landmarks_carry_it(lm: LandmarkModel) -> None:
    """With all keys zero every landmark's logit is 0 and every sum is the logarithm of the block's length."""
    for layer in lm.backbone.model.layers:
        layer.self_attn.k_proj.weight.data.zero_()
    text = RowText("questions", [list(range(10, 41))], [Asked([1, 2], [3], 0, ((0, 1),))])
    _, said = row_loss(
        lm, laid_out(lm, text), LandmarkCache(2), gate_share=0, sum_share=1.0, most_read=1, rng=random.Random(0)
    )
    assert said["sums"] == pytest.approx(torch.tensor(31.0).log().item() - 0.5, abs=1e-4)  # Huber's distance


def test_landmarks_of_earlier_rows_compete(lm: LandmarkModel) -> None:
    kept = LandmarkCache(2)
    row = laid_out(lm)
    other = laid_out(lm, RowText("text", [list(range(5, 100))] * 2, TEXT.asked, [7, 8]))
    gates = []
    for one in (row, other, row):
        _, said = row_loss(lm, one, kept, gate_share=1.0, sum_share=0, most_read=4, rng=random.Random(0))
        gates.append(said["gates"])
    assert gates[2] > gates[0]


class _always_all(random.Random):  # noqa: N801 - a generator
    """Draws the largest number of blocks."""

    def __new__(cls, _: int) -> "_always_all":
        return super().__new__(cls)

    def uniform(self, a: float, b: float) -> float:
        return b
