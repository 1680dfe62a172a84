"""What the pointing head of the default model learns from, and that it learns."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from model.inference.prefill import prefill_batch
from model.inference.prompt import encode_prompt
from model.scoring.span_head import SpanHead
from model.training.convert.init_from_encoder import Encoder
from model.training.data.batches.key_cache import cache_keys, retrieve_candidates
from model.training.data.batches.span_batches import SpanBatchMaker
from model.training.data.batches.span_dataset import build_span_dataset, same_titles
from model.training.data.examples import TokenQuestion
from model.training.losses.span_loss import span_loss
from model.training.recipes.default_data import Prepared
from model.training.recipes.default_model import start
from model.training.recipes.default_recipe import SIZES


@pytest.fixture(scope="module")
def pointing(prepared: Prepared, encoder: Encoder, tmp_path_factory: pytest.TempPathFactory):
    """(model, maker of rows, documents, folder) of the tiny recipe."""
    recipe, folder = SIZES["tiny"], tmp_path_factory.mktemp("point")
    model, shape = start(prepared, recipe, encoder), recipe.span_shape
    documents, questions = build_span_dataset(
        model, prepared.questions, prepared.held_out.questions, prepared.texts, shape
    )
    stored = cache_keys(model, documents, folder)
    met = retrieve_candidates(model, stored, [question.ids for question in questions], folder, found=shape.found)
    maker = SpanBatchMaker(stored, questions, met, shape, range(len(questions)))
    return model, maker, documents, folder


def test_pointing_rows_mark_the_answer_and_show_what_a_library_would_store(pointing) -> None:
    model, maker, _, _ = pointing
    stored, met, questions = maker._stored, maker._met, maker._questions
    spelled = set()
    for number in range(6):
        batch, again = maker.make(number), maker.make(number)
        assert all(torch.equal(a, b) for a, b in zip(vars(batch).values(), vars(again).values(), strict=True))
        assert (batch.target_mask_Q2CL.flatten(2).any(-1).all(1) == ~batch.no_answer_Q).all()
        assert not (batch.target_mask_Q2CL.any(1) & ~batch.valid_QCL).any()
    for number, question in enumerate(questions):
        batch = maker._collate([number], [stored.blocks(question.document, question.start, question.stop)])
        tokens = stored.tokens_NL[stored.blocks(question.document, question.start, question.stop)].ravel()
        first, last = (int(side.flatten().nonzero()[0]) for side in batch.target_mask_Q2CL[0])
        said = [token for token in tokens[first : last + 1].tolist() if token >= 0]
        assert said == list(question.answer[:-1])
        spelled.add(question.source)
    assert {"squad11", "fact"} <= spelled
    number = next(n for n, question in enumerate(questions) if question.document >= 0)
    document = questions[number].document
    ids = [token for block in stored.blocks(document, 0, 200) for token in stored.tokens_NL[block] if token >= 0]
    blocks = [block for _, block in prefill_batch(model, [ids])]
    kept = torch.from_numpy(np.array(stored.keys_NLE[stored.first[document]])).float()
    torch.testing.assert_close(kept, blocks[0].keys_YGLD[-1].transpose(0, 1).flatten(1), atol=2e-2, rtol=1e-2)
    queries = torch.from_numpy(met.queries_TE[met.begin_M[number] : met.begin_M[number + 1]]).float()
    prompt = model.prompt_of(questions[number].ids)
    wanted = encode_prompt(model, [*prompt.ids, 1]).queries_YHQD[0].transpose(0, 1).flatten(1)[prompt.question.start :]
    torch.testing.assert_close(queries, wanted, atol=2e-2, rtol=1e-2)


def test_what_was_stored_is_taken_from_the_folder_and_that_of_other_questions_refused(pointing) -> None:
    model, maker, documents, folder = pointing
    asked = [question.ids for question in maker._questions]
    before = (folder / "questions.safetensors").stat().st_mtime_ns
    again = retrieve_candidates(model, maker._stored, asked, folder, found=4)
    assert np.array_equal(again.found_MF, maker._met.found_MF)
    assert (folder / "questions.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match=r"questions\.safetensors was made with other"):
        retrieve_candidates(model, maker._stored, asked[:-1], folder, found=4)
    with pytest.raises(ValueError, match=r"keys\.npy was made with other"):
        cache_keys(model, {0: np.arange(10)}, folder)
    later = copy.deepcopy(model)
    with torch.no_grad():
        later.backbone.model.norm.weight.mul_(1.01)
    with pytest.raises(ValueError, match=r"keys\.npy was made with other weights"):
        cache_keys(later, documents, folder)


def test_a_gold_block_withheld_means_that_nothing_is_right(pointing) -> None:
    _, maker, _, _ = pointing
    other = maker._stored.first[maker._questions[-1].document]
    batch = maker._collate([0], [[other]])
    assert batch.no_answer_Q.all() and not batch.target_mask_Q2CL.any()


def test_half_an_answer_is_neither_right_nor_wrong(pointing) -> None:
    _, maker, _, _ = pointing
    stored, border = maker._stored, maker._stored.tokens_per_block
    question = replace(maker._questions[0], start=border - 2, stop=border + 3, passage=(0, 2 * border))
    crossing = SpanBatchMaker(stored, [question], maker._met, maker._shape, [0])
    first, second = stored.blocks(question.document, question.start, question.stop)
    whole = crossing._collate([0], [[first, second]])
    assert (
        whole.target_mask_Q2CL[0].nonzero().tolist() == [[0, 0, border - 2], [1, 1, 2]] and not whole.no_answer_Q.any()
    )
    for block, row in ((first, border - 2), (second, 2)):
        half = crossing._collate([0], [[block]])
        assert half.no_answer_Q.all() and not half.target_mask_Q2CL.any()
        assert half.ignored_QCL[0].nonzero().tolist() == [[0, row]]


def test_pointing_learns_a_batch(pointing) -> None:
    model, maker, _, _ = pointing
    torch.manual_seed(0)
    head, batch = SpanHead(model.num_kv_heads * model.head_dim, 16, 1), maker.make(0)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        loss, metrics, _ = span_loss(head, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0] and float(metrics["first_top1"]) > 0.9


def test_questions_about_an_article_that_is_held_out_are_held_out_in_every_set() -> None:
    def about(document: int) -> TokenQuestion:
        return TokenQuestion("s", document, (5,), 0, 1, (6, 1), True)

    titles = ["Normans", "Oxygen", "Normans", ""]
    held = same_titles([about(0), about(1), about(2), about(3), about(-1)], titles, [about(0), about(3)])
    assert held == [0, 2, 3]
