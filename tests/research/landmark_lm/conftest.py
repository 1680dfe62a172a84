"""A tiny base, a landmark model of it, and a folder of data as the commands read it."""

import json
import lzma
from pathlib import Path

import pytest
import torch

from model.checkpoint.landmark_model import LandmarkModel
from research.landmark_lm.sources import Shape, Tokens
from tests.tiny_model import tiny_model

SHAPE = Shape(passages=4, blocks=4, questions=6, each=2, answer_tokens=12, asked_tokens=128)
WORDS = [
    "the",
    "river",
    "runs",
    "past",
    "an",
    "old",
    "mill",
    "where",
    "a",
    "grey",
    "Heron",
    "waits",
    "for",
    "fish",
    "and",
    "nobody",
    "counts",
    "the",
    "hours",
]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.manual_seed(0)


@pytest.fixture
def lm() -> LandmarkModel:
    """Blocks of 32, windows of 4 blocks, memory in both later layers."""
    return tiny_model("llama-tied", block_size=32, window_blocks=4, context_blocks=0, memory_layers=(1, 2))


@pytest.fixture
def tokens(lm: LandmarkModel) -> Tokens:
    return Tokens(lm, SHAPE)


def long_text(number: int, words: int) -> str:
    """Words in an order of its own for each number."""
    said = (WORDS[(i * (number + 3) + i // 7) % len(WORDS)] for i in range(words))
    return " ".join(f"{word}." if i % 12 == 11 else word for i, word in enumerate(said))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """qa/squad11 and text/, in small."""
    folder: Path = tmp_path_factory.mktemp("data")

    def write(name: str, rows: list[dict[str, object]]) -> None:
        file = folder / f"{name}.jsonl.xz"
        file.parent.mkdir(exist_ok=True)
        with lzma.open(file, "wt", encoding="utf-8") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in rows)

    def question(number: int) -> dict[str, object]:
        context = f"House {number} is painted {['red', 'green', 'blue'][number % 3]}. {long_text(number, 8)}."
        answer = ["red", "green", "blue"][number % 3]
        return {
            "context_title": f"Street {number // 4}",
            "context": context,
            "question": f"How is house {number} painted?",
            "answers": [answer],
            "answer_starts": [context.index(answer)],
        }

    write("qa/squad11.train", [question(number) for number in range(12)])
    write("qa/squad11.dev", [question(number) for number in range(20, 32)])
    write("text/openstax", [{"title": str(n), "text": long_text(n, 2_000)} for n in range(3)])
    write("text/heldout", [{"title": str(n), "text": long_text(n + 9, 2_500)} for n in range(3)])
    return folder
