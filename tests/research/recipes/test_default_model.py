"""The recipe of the default model, from a small made-up data folder to a checkpoint, and the checkpoint that ships."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from model.checkpoint.backbones import DynamicCache
from model.checkpoint.landmark_model import cached
from model.checkpoint.load import load_backbone
from model.inference.prompt import encode_prompt
from research.prefill_batch import prefill_batch
from research.train.convert.init_from_encoder import Encoder
from research.train.data.batches.distillation_batches import DistillationBatchMaker
from research.train.data.batches.question_batches import QuestionBatchMaker
from research.train.data.corpus import normalised, overlap, read_questions, sample_texts
from research.train.data.encoder_frame import frame_of
from research.train.data.examples import encode_texts, tokens_of_span
from research.train.data.teacher_states import TeacherStates
from research.train.data.tokenizer import SPECIAL_TOKENS, train_tokenizer
from research.train.recipes.default_data import Prepared
from research.train.recipes.default_model import (
    export,
    load_weights,
    make_default_model,
    read,
    start,
)
from research.train.recipes.default_recipe import SIZES
from tests.research.conftest import made_up_row

DEFAULT = Path(__file__).parents[3] / "model" / "default"


def test_numbers_become_single_digits_and_special_names_stay_apart() -> None:
    tokenizer = train_tokenizer(["In 1685 they came. In 1686 they left."] * 20, vocab_size=400)
    assert [piece.strip("Ġ") for piece in tokenizer.tokenize(" 1685")] == ["1", "6", "8", "5"]
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(len(SPECIAL_TOKENS)))
    text = "Grüße, 漢字 and\n\n  tabs\t!"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_answer_spans_survive_joining_contexts_into_documents(data: Path) -> None:
    sets = read_questions(data, "train")
    assert len(sets.texts) == 14
    for question in sets.questions:
        assert [sets.texts[question.document][slice(*span)] for span in question.spans] == list(question.answers)
        assert sets.texts[question.document][slice(*question.context)].startswith(question_context_start(question.id))


def question_context_start(name: str) -> str:
    number = int(name[1:])
    return made_up_row(number, f"Town {number % 14}")["context"][:40]


def test_heldout_text_is_never_sampled(data: Path) -> None:
    assert not any("never seen" in each.text for each in sample_texts(data, characters=10**9))


def test_overlap_finds_what_development_and_training_share(data: Path) -> None:
    train, dev = read_questions(data, "train"), read_questions(data, "dev")
    assert overlap(train, dev) == {"pair": [], "passage": []}
    assert overlap(train, train)["pair"] == [question.id for question in train.questions]
    assert normalised("  A-b,\nC ") == "a b c"


def test_rows_are_a_function_of_their_number_and_gold_blocks_hold_the_answer(
    prepared: Prepared, encoder: Encoder
) -> None:
    recipe = SIZES["tiny"]
    model = start(prepared, recipe, encoder)
    maker = QuestionBatchMaker(prepared.questions, prepared.texts, model, prepared.idf_V, recipe.answer_shape)
    for index in (0, 3, 7):
        first, again = maker.make(index), maker.make(index)
        assert all(
            torch.equal(a, b)
            for a, b in zip(vars(first).values(), vars(again).values(), strict=True)
            if isinstance(a, torch.Tensor)
        )
        blocks = first.ids_RT.unflatten(1, (first.blocks_per_row, -1)).flatten(0, 1)
        for question in first.reads_Q.nonzero()[:, 0].tolist():
            answer = [
                t for t in first.targets_QT[question].tolist() if t not in (-100, prepared.tokenizer.eos_token_id)
            ]
            gold = blocks[first.gold_QN[question]][:, :-1].flatten().tolist()
            assert set(answer) <= set(gold)


def test_token_spans_cover_character_spans() -> None:
    tokenizer = train_tokenizer(["one two three four"] * 9, vocab_size=300)
    ((ids, offsets),) = encode_texts(tokenizer, ["one two three four"])
    first, last = tokens_of_span(offsets, 4, 13)
    assert tokenizer.decode(ids[first:last]).strip() == "two three"


def test_texts_are_encoded_whole_where_the_tokenizers_file_asks_to_cut_and_pad() -> None:
    tokenizer = train_tokenizer(["one two three four"] * 9, vocab_size=300)
    (whole, _), _ = encode_texts(tokenizer, ["one two three four", "one"])
    tokenizer.backend_tokenizer.enable_truncation(2)
    tokenizer.backend_tokenizer.enable_padding(length=9)
    (ids, _), (short, _) = encode_texts(tokenizer, ["one two three four", "one"])
    assert ids.tolist() == whole.tolist() and len(short) < 9


def test_a_token_starts_with_the_mean_embedding_of_the_encoders_pieces(prepared: Prepared, encoder: Encoder) -> None:
    model = start(prepared, SIZES["tiny"], encoder)
    table = model.backbone.get_input_embeddings().weight
    words = encoder.network.embeddings
    steady = words.token_type_embeddings.weight[0] + words.position_embeddings.weight[1:100].mean(0)
    compared = set()
    for token in range(len(model.tokenizer)):
        text = model.decode([token])
        pieces = encoder.tokenizer(text.strip(), add_special_tokens=False)["input_ids"]
        if text.startswith(" ") and text.strip().isalpha() and encoder.tokenizer.unk_token_id not in pieces:
            wanted = words.LayerNorm(words.word_embeddings.weight[pieces] + steady).mean(0)
            torch.testing.assert_close(table[token], wanted)
            compared.add(len(pieces))
    assert {1, 2} <= compared
    assert model.memory_layers == (encoder.network.config.num_hidden_layers,)


def test_training_goes_on_from_a_checkpoint(
    data: Path, prepared: Prepared, encoder: Encoder, encoder_folder: Path, tmp_path: Path
) -> None:
    model = start(prepared, SIZES["tiny"], encoder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)
    export(model, tmp_path / "given")
    again = start(prepared, SIZES["tiny"], encoder)
    load_weights(again, tmp_path / "given")
    given = load_backbone(tmp_path / "given", device="cpu", dtype=torch.float32)
    for (name, one), other in zip(again.named_parameters(), given.parameters(), strict=True):
        assert torch.equal(one, other), name
    make_default_model(
        data,
        tmp_path / "on",
        encoder=encoder_folder,
        size="tiny",
        device="cpu",
        begin=tmp_path / "given",
        phases=["teach"],
        seed=1,
    )
    made = load_backbone(tmp_path / "on" / "model", device="cpu", dtype=torch.float32)
    table, before = (m.backbone.get_input_embeddings().weight for m in (made, given))
    assert 0 < float((table - before).detach().abs().mean()) < 0.02 * float(before.detach().abs().mean())
    with pytest.raises(ValueError, match="not a checkpoint of this recipe"):
        load_weights(again, DEFAULT)


def test_the_frame_of_a_checkpoint_is_found_wherever_it_was_made(prepared: Prepared, encoder: Encoder) -> None:
    model = start(prepared, SIZES["tiny"], encoder)
    projections = (model.backbone.model.layers[-1].self_attn.q_proj, model.backbone.model.layers[-1].self_attn.k_proj)
    texts = [ids[:150] for ids in prepared.texts[:12]]
    before = frame_of(model, encoder, texts)
    width = len(before)
    turn = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(3))).Q
    with torch.no_grad():
        for projection in projections:  # the same network as another machine might have made it
            projection.weight.copy_(turn @ projection.weight)
    after = frame_of(model, encoder, texts)
    torch.testing.assert_close(after @ after.T, torch.eye(width), atol=1e-5, rtol=0)
    states = torch.stack([state for ids in texts for state in TeacherStates(encoder, model.tokenizer).of([ids])[0][0]])
    torch.testing.assert_close(states @ after.T, states @ before.T @ turn.T, atol=1e-3, rtol=1e-3)


def test_the_recipe_runs_from_data_to_a_checkpoint_that_loads(data: Path, tmp_path: Path, encoder_folder: Path) -> None:
    result = make_default_model(data, tmp_path, encoder=encoder_folder, size="tiny", device="cpu")
    assert result.step == SIZES["tiny"].reading.steps
    assert np.isfinite(result.last["loss"])
    model = load_backbone(tmp_path / "model", device="cpu", dtype=torch.float32)
    assert model.memory_layers == (2,)
    assert set(json.loads((tmp_path / "prepared" / "overlap.json").read_text())) == {"pair", "passage"}


def test_titles_of_training_have_the_keys_that_search_gives_them(prepared: Prepared, encoder: Encoder) -> None:
    model = start(prepared, SIZES["tiny"], encoder)
    maker = DistillationBatchMaker(prepared.questions, prepared.texts, model, encoder, SIZES["tiny"].shape)
    rows, seen = maker.make(0).titles_RT, []
    with torch.no_grad():
        cache = DynamicCache()
        model.encode(rows, model.context(), cache)
    for row, keys in zip(rows, cached(cache, model.memory_layers[0])[0], strict=True):
        ids = row[row != 0].tolist()
        ((_, block),) = prefill_batch(model, [ids])
        torch.testing.assert_close(block.keys_YGLD[0][:, : len(ids)], keys[:, : len(ids)], atol=1e-5, rtol=1e-4)
        seen.append(len(ids))
    assert len(set(seen)) > 1, "with and without padding"


def test_reading_leaves_search_as_it_is(prepared: Prepared, encoder: Encoder, tmp_path: Path) -> None:
    model = start(prepared, SIZES["tiny"], encoder)
    text = model.tokenize("The castle of Town 3 was built in 1712 by Anna Bell.").ids
    before = [block.keys_YGLD for _, block in prefill_batch(model, [text])]
    queries = encode_prompt(model, model.prompt("Who built it?").ids).queries_YHQD
    untouched = model.backbone.model.layers[-1].mlp.c_fc.weight.clone()
    read(model, prepared, SIZES["tiny"], tmp_path)
    after = [block.keys_YGLD for _, block in prefill_batch(model, [text])]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert torch.equal(queries, encode_prompt(model, model.prompt("Who built it?").ids).queries_YHQD)
    assert not torch.equal(untouched, model.backbone.model.layers[-1].mlp.c_fc.weight)


def test_the_shipped_checkpoint_is_small_and_finds_the_block_that_answers() -> None:
    assert sum(file.stat().st_size for file in DEFAULT.iterdir()) <= 32_000_000
    model = load_backbone(DEFAULT, device="cpu", dtype=torch.float32)
    texts = [
        "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen in the chloroplasts of plants.",
        "Huguenot refugees found a safe haven in the Lutheran and Reformed states of Germany and in Scandinavia.",
        "A mortgage is a loan that is secured by real estate; the lender may take the house if nothing is paid.",
        "The pass key is 71432. Remember it. 71432 is the pass key.",
    ]
    blocks = [
        block
        for _, block in sorted(
            prefill_batch(model, [model.tokenize(text).ids for text in texts]), key=lambda pair: pair[0]
        )
    ]
    landmarks = torch.stack([block.keys_YGLD[:, :, -1] for block in blocks], 2)
    weights = torch.tensor(model.config.search_weights)[..., None]
    for question, expected in (
        ("Where did the Huguenots flee?", 1),
        ("What is the pass key?", 3),
        ("What do plants make from light?", 0),
    ):
        prompt = model.prompt(question)
        query = encode_prompt(model, prompt.ids).queries_YHQD[:, :, prompt.question].mean(2) * weights
        assert int(torch.einsum("yhd,yhnd->n", query, landmarks).argmax()) == expected
