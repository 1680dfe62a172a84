"""Rows on the block grid, and a loss that is what the product's own reading and decoding give."""

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model.attention.selection import SelectionPolicy
from model.checkpoint.backbones import DynamicCache
from model.checkpoint.landmark_model import LandmarkModel, cached
from model.inference.generate import answer_logprobs
from research.landmark_lm.loss import LandmarkCache, Prepared, ReadBlocks, prepare, step_loss, told_lines
from research.landmark_lm.memories import read_passages
from research.landmark_lm.rows import IGNORED, Asked, Row, RowText, Size, fit, join, lay_out

TEXT = RowText(
    [list(range(10, 60)), list(range(60, 90)), list(range(90, 160))],
    [Asked([1, 2, 3], [40, 41, 42], ((0, 30, 33),)), Asked(list(range(100, 140)), [70, 71], ((1, 10, 12),))],
)


SIZE = Size(passages=3, blocks=3, questions=2, asked=64)


def laid_out(model: LandmarkModel, text: RowText = TEXT, size: Size = SIZE) -> Row:
    config, padding = model.config, model.tokenizer.pad_token_id
    return lay_out(
        fit(text, size), size, block_size=config.block_size, landmark=config.landmark_token_id, padding=padding
    )


def loss_of(
    model: LandmarkModel, step: Prepared, kept: LandmarkCache | None = None
) -> tuple[Tensor, list[dict[str, float]]]:
    loss, told = step_loss(model, step, kept or LandmarkCache(2), gate_share=0.5, choice_share=0.5)
    return loss, told_lines(step, told.tolist())[1]


def reads_of(row: Row, most: int, rng: random.Random | None = None, sum_share: float = 0.0) -> Prepared:
    return prepare(row, most_read=most, rng=rng or random.Random(0), sum_share=sum_share)


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


@pytest.mark.parametrize("size", [SIZE, Size(passages=5, blocks=4, questions=6, asked=64)])
def test_the_loss_of_words_is_what_the_product_gives_over_the_same_memory(lm: LandmarkModel, size: Size) -> None:
    memory = read_passages(lm, TEXT.passages).memory
    expected = []
    for asked in TEXT.asked:
        policy = SelectionPolicy(top_k=memory.num_blocks)
        expected += answer_logprobs(lm, asked.prompt, asked.answer, memory=memory, policy=policy)
    step = reads_of(laid_out(lm, size=size), 8, _always_most(0))
    assert step.given_QC.shape[1] == memory.num_blocks
    _, said = loss_of(lm, step)
    assert said[0]["words"] == pytest.approx(-torch.cat(expected).mean().item(), abs=1e-4)


def test_padding_changes_neither_losses_nor_gradients(lm: LandmarkModel) -> None:
    found = []
    for size in (SIZE, Size(passages=7, blocks=4, questions=5, asked=70)):
        lm.backbone.zero_grad()
        loss, said = loss_of(lm, reads_of(laid_out(lm, size=size), 8, _always_most(0), sum_share=0.5))
        loss.backward()
        found.append((said, lm.backbone.model.layers[1].self_attn.k_proj.weight.grad.clone()))
    (one, gradient), (other, padded) = found
    assert one[0] == pytest.approx(other[0], abs=1e-4)
    torch.testing.assert_close(gradient, padded)


def test_gradients_reach_what_stored_blocks_were_made_of(lm: LandmarkModel) -> None:
    whole, said = loss_of(lm, reads_of(laid_out(lm), 4, sum_share=0.5))
    whole.backward()
    landmark_row = lm.backbone.model.embed_tokens.weight.grad[lm.config.landmark_token_id]
    assert landmark_row.abs().sum() > 0
    assert set(said[0]) == {"kind", "words", "right", "sums", "choices", "found", "gates", "first"}


def test_a_question_is_given_its_right_blocks_in_ascending_order_and_every_second_one_chooses(
    lm: LandmarkModel,
) -> None:
    row, counts = laid_out(lm), set()
    for seed in range(40):
        step = reads_of(row, 4, random.Random(seed))
        counts.add(step.given_QC.shape[1])
        assert bool((step.given_QC.diff() > 0).all()) if step.given_QC.shape[1] > 1 else True
        assert bool((row.document_N[step.given_QC] >= 0).all())
        assert bool(row.gold_QN.gather(1, step.given_QC).any(1).all())
        assert step.chooses_Q.tolist() == [False, True] and step.taught_F.tolist() == [0]
    assert counts == {1, 2, 4}


def test_what_a_question_chooses_is_what_its_prompt_chooses_in_the_product(lm: LandmarkModel) -> None:
    row, memory, chosen = laid_out(lm), read_passages(lm, TEXT.passages).memory, TEXT.asked[1]
    policy = SelectionPolicy(top_k=2, voters="group")
    context = lm.context(reader=memory, policy=policy)
    lm.encode(torch.tensor([lm.with_landmarks(chosen.prompt)]), context)
    there = (row.document_N >= 0).nonzero()[:, 0]

    step = replace(reads_of(row, 2), given_QC=torch.tensor([[0, 1], [0, 1]]))
    asked: list[tuple[int, Tensor]] = []

    class Watched(ReadBlocks):
        def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            asked.append((layer, ids_BGXS))
            return super().read(layer, ids_BGXS)

    cache = DynamicCache()
    lm.fill_cache(row.ids_PT, lm.context(valid_BK=row.valid_PT), cache)
    keys, values = ({y: cached(cache, y)[part].unflatten(2, (-1, 32)) for y in (1, 2)} for part in (0, 1))
    rotary = lm.backbone.model.rotary_emb.rotary
    lm.encode(row.windows_QT, lm.context(reader=Watched(keys, values, step, rotary), policy=policy))
    assert [layer for layer, _ in asked] == [1, 2]
    for (_, ids_QGXS), selection in zip(asked, context.selections, strict=True):
        assert ids_QGXS[0].unique().tolist() == [0, 1]
        assert torch.equal(ids_QGXS[1, :, 0], there[selection.ids_BHQS[0, :: lm.num_heads // lm.num_kv_heads, 0]])


def test_passages_and_questions_that_are_too_many_or_too_long_are_left_out() -> None:
    assert fit(TEXT, SIZE) == TEXT
    assert fit(TEXT, Size(passages=1, blocks=3, questions=2, asked=64)).asked == TEXT.asked[:1]
    assert fit(TEXT, Size(passages=3, blocks=3, questions=2, asked=40)).asked == TEXT.asked[:1]
    assert fit(TEXT, Size(passages=3, blocks=3, questions=1, asked=64)).asked == TEXT.asked[:1]


def test_rows_are_joined_and_a_document_that_stands_in_two_is_kept_once(lm: LandmarkModel) -> None:
    one = RowText(TEXT.passages, TEXT.asked, [5, 6, 7])
    other = RowText([list(range(20, 50)), list(range(10, 60))], [*TEXT.asked[::-1]], [8, 5])
    row = join([one, other])
    assert row.documents == [5, 6, 7, 8] and row.passages == [*TEXT.passages, other.passages[0]]
    assert [asked.places for asked in row.asked] == [((0, 30, 33),), ((1, 10, 12),), ((3, 30, 33),)]


def test_the_log_sum_exp_teacher_is_at_rest_where_landmarks_carry_it(lm: LandmarkModel) -> None:
    """With all keys zero every landmark's logit is 0 and every sum is the logarithm of the block's length."""
    for layer in lm.backbone.model.layers:
        layer.self_attn.k_proj.weight.data.zero_()
    text = RowText([list(range(10, 41))], [Asked([1, 2], [3], ((0, 0, 1),))])
    _, said = loss_of(lm, reads_of(laid_out(lm, text), 1, sum_share=1.0))
    assert said[0]["sums"] == pytest.approx(torch.tensor(31.0).log().item() - 0.5, abs=1e-4)  # Huber's distance


def test_landmarks_of_earlier_steps_compete(lm: LandmarkModel) -> None:
    kept, row = LandmarkCache(2), laid_out(lm)
    other = laid_out(lm, RowText([list(range(5, 90))] * 3, TEXT.asked, [7, 8, 9]))
    gates = [loss_of(lm, reads_of(one, 4), kept)[1][0]["gates"] for one in (row, other, row)]
    assert gates[2] > gates[0]


class _always_most(random.Random):  # noqa: N801 - a generator
    """Draws the largest number of blocks."""

    def __new__(cls, _: int) -> "_always_most":
        return super().__new__(cls)

    def randrange(self, start: int, *_: int) -> int:
        return start - 1
