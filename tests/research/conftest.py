"""A small made-up data folder, a tiny sentence encoder, and what the tiny recipe prepares of them."""

import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from research.train.convert.init_from_encoder import Encoder
from research.train.data.corpus import sample_texts
from research.train.recipes.default_data import Prepared, prepare
from research.train.recipes.default_recipe import SIZES

THINGS = ("river", "castle", "engine", "garden", "library", "harbour", "theory", "market", "bridge", "forest")
NAMES = ("Anna Bell", "Otto Frank", "Maria Lund", "Ivan Petrov", "Chen Wei", "Grace Stone", "Omar Said", "Paul Klee")


@pytest.fixture(autouse=True)
def denormal_numbers() -> Iterator[None]:
    """Commands of training flush denormal numbers to zero for all of their process, which other tests then share."""
    yield
    torch.set_flush_denormal(False)


def _write(file: Path, rows: list[dict]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(file, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def made_up_row(number: int, title: str) -> dict:
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


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    _write(folder / "qa" / "squad11.train.jsonl.xz", [made_up_row(n, f"Town {n % 14}") for n in range(60)])
    _write(folder / "qa" / "squad11.dev.jsonl.xz", [made_up_row(n, f"City {n % 4}") for n in range(200, 220)])
    _write(
        folder / "text" / "wiki.jsonl.xz",
        [
            {
                "id": str(n),
                "title": f"Land {n}",
                "text": " ".join(made_up_row(500 + 3 * n + i, "Land")["context"] for i in range(3)),
            }
            for n in range(30)
        ],
    )
    _write(folder / "text" / "heldout.jsonl.xz", [{"id": "x", "text": "never seen in training"}])
    return folder


@pytest.fixture(scope="session")
def encoder_folder(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny sentence encoder with random weights and a WordPiece tokenizer."""
    folder = tmp_path_factory.mktemp("encoder")
    pieces = BertWordPieceTokenizer(lowercase=True)
    pieces.train_from_iterator(
        [each.text for each in sample_texts(data, characters=10**6)], vocab_size=400, show_progress=False
    )
    pieces.save(str(folder / "tokenizer.json"))
    names = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("unk", "sep", "pad", "cls", "mask")}
    PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **names).save_pretrained(folder)
    torch.manual_seed(0)
    BertModel(
        BertConfig(
            vocab_size=pieces.get_vocab_size(),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=256,
            initializer_range=0.2,
        )
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def encoder(encoder_folder: Path) -> Encoder:
    return Encoder.load(encoder_folder)


@pytest.fixture(scope="session")
def prepared(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(data, tmp_path_factory.mktemp("prepared"), SIZES["tiny"])
