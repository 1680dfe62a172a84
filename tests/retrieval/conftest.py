"""A small library over a random model: enough to test everything but the quality of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from model.backbone import LandmarkModel
from retrieval.library import Library
from retrieval.passages import Answer, AnswerToken
from tests.tiny_model import tiny_model

BLOCK_SIZE = 16

FOX = "The quick brown fox jumps over the lazy dog. " * 30
WHALE = "Whales sing across the whole of the ocean. " * 25
RAIN = "Rain in the plain falls mainly in the afternoon! " * 20


@pytest.fixture(scope="session")
def model() -> LandmarkModel:
    return tiny_model(block_size=BLOCK_SIZE, window_blocks=4, context_blocks=2)


OpenLibrary = Callable[..., Library]


@pytest.fixture
def open_library(tmp_path: Path, model: LandmarkModel) -> Iterator[OpenLibrary]:
    """Opens the library in tmp_path/home; small shards, so that a document has several."""
    opened: list[Library] = []

    def open_(**settings: object) -> Library:
        arguments = {"model": model, "shard_bytes": 20_000, "home": tmp_path / "home"} | settings
        library = Library.open(**arguments)  # type: ignore[arg-type]
        opened.append(library)
        return library

    yield open_
    for library in opened:
        library.close()


@pytest.fixture
def library(open_library: OpenLibrary) -> Library:
    return open_library()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write_(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write_


def add(library: Library, path: Path, **settings: object) -> str:
    """Ingests a file; returns the document's id."""
    job = library.run_job(library.submit(path, **settings).id)  # type: ignore[arg-type]
    assert job.state == "done", job.error
    return job.document_id


def ask(library: Library, question: str, **settings: object) -> Answer:
    """The finished answer."""
    *tokens, answer = library.ask(question, **{"max_tokens": 6, "k": 3} | settings)  # type: ignore[arg-type]
    assert isinstance(answer, Answer) and all(isinstance(token, AnswerToken) for token in tokens)
    return answer


def substance(answer: Answer) -> dict:
    """What must not depend on when and where an answer was given."""
    plain = answer.to_dict()
    for name in ("id", "timings", "created_at", "conversation_id"):
        del plain[name]
    return plain
