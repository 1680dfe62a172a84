"""Graded targets: what a reader makes of the blocks that search ranks best, and the loss that learns it."""

import math

import torch

from model.checkpoint.landmark_model import LandmarkModel
from model.reading.rows import RowTokens, join_rows
from model.reading.span_reader import SpanReader
from research.train.convert.init_from_encoder import Encoder
from research.train.data.batches.batch_types import DistillationBatch
from research.train.data.batches.distillation_batches import DistillationBatchMaker
from research.train.losses.graded_targets import Graded, TargetGrader, graded_loss
from research.train.losses.retriever_loss import RetrieverTrainer, retriever_loss
from research.train.recipes.default_data import Prepared
from research.train.recipes.default_model import start
from research.train.recipes.default_recipe import SIZES
from tests.tiny_reader import tiny_reader


def test_the_loss_is_the_divergence_from_the_readers_shares() -> None:
    scores_QN = torch.tensor([[1.0, -2.0, 0.5, 3.0], [0.0, 1.0, 2.0, -1.0], [4.0, 1.0, 0.0, 0.0]])
    share_GC = torch.tensor([[0.7, 0.3], [0.25, 0.75]])
    graded = Graded(torch.tensor([0, 2]), torch.tensor([[3, 1], [0, 1]]), share_GC, torch.tensor([0.9, 0.1]))
    expected, weight = 0.0, 0.0
    for question, blocks, shares, answered in (
        (scores_QN[0], (3, 1), (0.7, 0.3), 0.9),
        (scores_QN[2], (0, 1), (0.25, 0.75), 0.1),
    ):
        total = sum(math.exp(float(question[block])) for block in blocks)
        for block, share in zip(blocks, shares, strict=True):
            expected += answered * share * (math.log(share) - math.log(math.exp(float(question[block])) / total))
        weight += answered
    torch.testing.assert_close(graded_loss(scores_QN, graded), torch.tensor(expected / weight))


def test_nothing_is_left_to_learn_where_the_scores_are_the_shares() -> None:
    share_GC = torch.tensor([[0.6, 0.4, 0.0]])
    graded = Graded(torch.tensor([0]), torch.tensor([[2, 0, 1]]), share_GC, torch.tensor([1.0]))
    scores_QN = torch.tensor([[0.4, 1e9, 0.6]]).log().requires_grad_()  # block 1 has no share and does not count
    loss = graded_loss(scores_QN, graded)
    torch.testing.assert_close(loss.detach(), torch.tensor(0.0), atol=1e-6, rtol=0)
    loss.backward()
    torch.testing.assert_close(scores_QN.grad, torch.zeros(1, 3), atol=1e-6, rtol=0)


def made(prepared: Prepared, encoder: Encoder) -> tuple[LandmarkModel, DistillationBatch, SpanReader]:
    recipe = SIZES["tiny"]
    model = start(prepared, recipe, encoder)
    batch = DistillationBatchMaker(prepared.questions, prepared.texts, model, encoder, recipe.shape).make(0)
    return model, batch, tiny_reader([model.decode(ids.tolist()) for ids in prepared.texts[:20]])


def test_shares_are_those_of_reading_each_question_with_its_candidates(prepared: Prepared, encoder: Encoder) -> None:
    model, batch, reader = made(prepared, encoder)
    size = model.config.block_size
    valid_NL = batch.valid_RT.unflatten(1, (-1, size)).flatten(0, 1)
    late_QN = torch.randn(len(batch.question_ids_QT), len(valid_NL), generator=torch.Generator().manual_seed(0))
    graded = TargetGrader(reader, model, questions=3, candidates=4).grade(batch, late_QN)
    assert graded.block_GC.shape == (3, 4)
    full_N = valid_NL[:, 0]
    for question in range(3):
        chosen = graded.block_GC[question].tolist()
        gold = set(batch.gold_QN[question].nonzero().flatten().tolist())
        assert gold <= set(chosen), "the right block is always a candidate"
        ranked = late_QN[question].masked_fill(~full_N, -torch.inf).argsort(descending=True).tolist()
        assert set(chosen) - gold <= set(ranked[: len(chosen)])
        torch.testing.assert_close(graded.share_GC[question].sum(), torch.tensor(1.0))
        asked = model.decode(batch.question_ids_QT[question][batch.question_mask_QT[question]].tolist())
        begins, ends = [], []
        for block in chosen:
            row = block // (batch.ids_RT.shape[1] // size)
            ids_L = batch.ids_RT.unflatten(1, (-1, size)).flatten(0, 1)[block, :-1][valid_NL[block, :-1]]
            title = model.decode(batch.titles_RT[row][batch.title_mask_RT[row]].tolist())
            pieces = [reader.tokenizer.encode(text, add_special_tokens=False).ids for text in (asked, title)]
            text = reader.tokenizer.encode(model.decode(ids_L.tolist()), add_special_tokens=False).ids
            rows = join_rows([(*pieces, text)], 1, RowTokens.of(reader.tokenizer))
            with torch.no_grad():
                points_T2 = reader.network.read(*(each.flatten(0, 1) for each in rows.inputs()[:3]))[0]
            inside_T2 = points_T2[rows.passage_QKT[0, 0]].double().exp().sum(0)
            begins.append(float(inside_T2[0]))
            ends.append(float(inside_T2[1]))
        # Shares are of the mean chance to begin and to end in a block, among all of the question's.
        none = 1 - float(graded.answered_G[question])
        assert 0 < none < 1
        shares = [0.5 * (b / sum(begins) + e / sum(ends)) for b, e in zip(begins, ends, strict=True)]
        torch.testing.assert_close(graded.share_GC[question], torch.tensor(shares), atol=0.02, rtol=0.05)


def test_the_finder_learns_from_grades_and_the_reader_stays_as_it_is(prepared: Prepared, encoder: Encoder) -> None:
    model, batch, reader = made(prepared, encoder)
    frame_EE = model.backbone.model.layers[-1].self_attn.k_proj.weight
    torch.manual_seed(0)  # of dropout
    plain, _, _ = retriever_loss(RetrieverTrainer(model, frame_EE), batch)
    trainer = RetrieverTrainer(model, frame_EE, grader=TargetGrader(reader, model, questions=4, candidates=4))
    torch.manual_seed(0)
    loss, parts, _ = retriever_loss(trainer, batch)
    assert "graded" in parts
    torch.testing.assert_close(loss, plain + trainer.weights.graded * parts["graded"])
    loss.backward()
    assert model.backbone.get_input_embeddings().weight.grad is not None
    assert all(weight.grad is None for weight in reader.network.parameters())
    assert not any("reader" in name or "grader" in name for name in trainer.state_dict())
