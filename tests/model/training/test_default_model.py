"""The recipe of the default model, from a small made-up data folder to a checkpoint, and the checkpoint that ships."""

import json
import lzma
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model.backbone import load_backbone
from model.generate import question_queries
from model.prefill import prefill_batch
from model.training.corpus import normalised, overlap, read_questions, sample_texts
from model.training.default_model import SIZES, make_default_model, prepare
from model.training.examples import encode_texts, tokens_of_span
from model.training.question_rows import QuestionRowMaker
from model.training.synthesis import draw_fact, plant
from model.training.tokenizer import SPECIAL_TOKENS, train_tokenizer

DEFAULT = Path(__file__).parents[3] / "model" / "default"
THINGS = ("river", "castle", "engine", "garden", "library", "harbour", "theory", "market", "bridge", "forest")
NAMES = ("Anna Bell", "Otto Frank", "Maria Lund", "Ivan Petrov", "Chen Wei", "Grace Stone", "Omar Said", "Paul Klee")


def _write(file: Path, rows: list[dict]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(file, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def _row(number: int, title: str) -> dict:
    rng = random.Random(number)
    thing, name, year = rng.choice(THINGS), rng.choice(NAMES), str(rng.randrange(1500, 2000))
    filler = " ".join(rng.choice(THINGS) for _ in range(60))
    context = f"{filler}. The {thing} of {title} was built in {year} by {name}. {filler}."
    return {
        "id": f"q{number}",
        "context_title": title,
        "context": context,
        "question": f"Who built the {thing} of {title}?",
        "answers": [name],
        "answer_starts": [context.index(name)],
        "source": "made up",
        "license": "none",
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    _write(folder / "qa" / "squad11.train.jsonl.xz", [_row(n, f"Town {n % 14}") for n in range(60)])
    _write(folder / "qa" / "squad11.dev.jsonl.xz", [_row(n, f"City {n % 4}") for n in range(200, 220)])
    _write(
        folder / "text" / "wiki.jsonl.xz",
        [
            {"id": str(n), "text": " ".join(_row(500 + 3 * n + i, "Land")["context"] for i in range(3))}
            for n in range(30)
        ],
    )
    _write(folder / "text" / "heldout.jsonl.xz", [{"id": "x", "text": "never seen in training"}])
    return folder


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
    return _row(number, f"Town {number % 14}")["context"][:40]


def test_heldout_text_is_never_sampled(data: Path) -> None:
    assert not any("never seen" in text for text in sample_texts(data, characters=10**9))


def test_overlap_finds_what_development_and_training_share(data: Path) -> None:
    train, dev = read_questions(data, "train"), read_questions(data, "dev")
    assert overlap(train, dev) == {"pair": [], "passage": []}
    assert overlap(train, train)["pair"] == [question.id for question in train.questions]
    assert normalised("  A-b,\nC ") == "a b c"


def test_a_planted_fact_holds_its_value(data: Path) -> None:
    tokenizer = train_tokenizer(sample_texts(data, characters=10**6), vocab_size=500)
    for seed in range(20):
        fact, planted = draw_fact(random.Random(seed)), plant(tokenizer, random.Random(seed))
        assert fact.value in fact.sentence
        assert tokenizer.decode(planted.ids[planted.value]).strip(" .:").endswith(fact.value.strip("."))


def test_rows_are_a_function_of_their_number_and_gold_blocks_hold_the_answer(data: Path, tmp_path: Path) -> None:
    recipe = SIZES["tiny"]
    prepared = prepare(data, tmp_path, recipe, teacher=None)
    from model.config import LandmarkConfig

    config = LandmarkConfig(block_size=recipe.block_size, landmark_token_id=2)
    maker = QuestionRowMaker(
        prepared.questions, prepared.texts, prepared.tokenizer, config, prepared.idf_V, recipe.shape
    )
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


def test_the_recipe_runs_from_data_to_a_checkpoint_that_loads(data: Path, tmp_path: Path) -> None:
    result = make_default_model(data, tmp_path, size="tiny", device="cpu")
    assert result.step == SIZES["tiny"].steps
    assert np.isfinite(result.last["loss"])
    model = load_backbone(tmp_path / "model", device="cpu", dtype=torch.float32)
    assert model.config.memory_layers == SIZES["tiny"].memory_layers
    assert set(json.loads((tmp_path / "prepared" / "overlap.json").read_text())) == {"pair", "passage"}


def test_search_is_left_alone_unless_the_recipe_learns_it(data: Path, tmp_path: Path) -> None:
    from model.training.default_model import build, learn_codes, train
    from model.training.initialise import search_path

    recipe = SIZES["tiny"]
    prepared = prepare(data, tmp_path, recipe, teacher=None)
    for learns in (False, True):
        model = build(prepared, recipe, learn_codes(prepared, recipe, tmp_path))
        before = [parameter.clone() for parameter in search_path(model.backbone)]
        train(model, prepared, replace(recipe, learns_search=learns), tmp_path / str(learns))
        assert all(torch.equal(a, b) for a, b in zip(before, search_path(model.backbone), strict=True)) is not learns


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
        query = question_queries(model, prompt.ids)[:, :, prompt.question].mean(2) * weights
        assert int(torch.einsum("yhd,yhnd->n", query, landmarks).argmax()) == expected
