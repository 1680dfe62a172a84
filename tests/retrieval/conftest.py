"""A small library over a random model: enough to test everything but the quality of answers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest

from model.checkpoint.landmark_model import LandmarkModel
from model.reading import passage_encoder, ranker, two_readers
from retrieval.extraction import extract
from retrieval.library import Library
from retrieval.types.answers import Answer, AnswerToken
from tests import elsewhere
from tests.retrieval.reading_here import ReadingHere
from tests.tiny_model import tiny_model

READERS = ((two_readers, "load_reader"), (passage_encoder, "load_passage_encoder"), (ranker, "reader_digest"))
BLOCK_SIZE = 16
SHARD_BYTES = 60_000
"""A text of a thousand characters has six shards in bf16. Each costs as much as the reading of what is in it."""

SUBJECTS = [
    "fox",
    "dog",
    "river",
    "mill",
    "bridge",
    "garden",
    "tower",
    "keeper",
    "sailor",
    "candle",
    "letter",
    "winter",
    "orchard",
    "kettle",
    "lantern",
]
VERBS = [
    "crosses",
    "finds",
    "keeps",
    "paints",
    "follows",
    "forgets",
    "mends",
    "carries",
    "hears",
    "guards",
    "counts",
    "leaves",
]


def prose(seed: int, characters: int, *always: str) -> str:
    """Sentences without repetition, so that no two blocks are alike; `always` are among them."""
    random = Random(seed)
    sentences = list(always)
    while sum(map(len, sentences)) < characters:
        one, two, three = random.sample(SUBJECTS, 3)
        sentences.append(f"The {one} {random.choice(VERBS)} the {two} near {three} {random.randrange(1000)}. ")
    random.shuffle(sentences)
    return "".join(sentences)


FOX = prose(1, 1100, "The quick brown fox jumps over the lazy dog. ")
WHALE = prose(2, 900, "Whales sing across the whole of the ocean. ", "A whale is not a fish! ")
RAIN = prose(3, 700, "Rain in Spain falls mainly in the plain. ")
TEXTS = {"fox": FOX, "whale": WHALE, "rain": RAIN}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    elsewhere.choose(metafunc)


@pytest.fixture(autouse=True)
def library_places(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Where this test's libraries have catalogue and memory."""
    yield from elsewhere.places(request)


@pytest.fixture(scope="session")
def model() -> LandmarkModel:
    return tiny_model(block_size=BLOCK_SIZE, window_blocks=4, context_blocks=2)


@pytest.fixture(scope="session", autouse=True)
def reading_here() -> Iterator[None]:
    """Text is read without a process for each file; tests/retrieval/extraction has the processes back."""
    sandbox = ReadingHere()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extract, "SANDBOX", sandbox)
        yield
    sandbox.close()


@pytest.fixture(scope="session", autouse=True)
def one_reader() -> Iterator[None]:
    """What reads for a checkpoint is loaded once a process, as the shipped checkpoint is, not once a library."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in READERS:
            patch.setattr(module, name, cache(getattr(module, name)))
        yield


OpenLibrary = Callable[..., Library]


@pytest.fixture
def open_library(tmp_path: Path, model: LandmarkModel) -> Iterator[OpenLibrary]:
    """Opens the library in tmp_path/home; small shards, so that a document has several."""
    opened: list[Library] = []

    def open_(**settings: object) -> Library:
        arguments = {"model": model, "shard_bytes": SHARD_BYTES, "home": tmp_path / "home"} | settings
        library = Library.open(**arguments)  # type: ignore[arg-type]
        opened.append(library)
        return library

    yield open_
    for library in opened:
        library.close()


@pytest.fixture
def library(request: pytest.FixtureRequest, open_library: OpenLibrary) -> Library:
    """Empty, unless the test asks for `three` as well."""
    if "three" in request.fixturenames:
        request.getfixturevalue("three")
    return open_library()


@pytest.fixture(scope="session")
def filled_home(tmp_path_factory: pytest.TempPathFactory, model: LandmarkModel) -> Path:
    """The home of a library of three documents, to be copied."""
    folder = tmp_path_factory.mktemp("filled")
    with Library.open(folder / "home", model, shard_bytes=SHARD_BYTES) as library:
        for name, text in TEXTS.items():
            (folder / f"{name}.txt").write_text(text)
            add(library, folder / f"{name}.txt")
    return folder / "home"


@pytest.fixture
def three(filled_home: Path, tmp_path: Path, open_library: OpenLibrary) -> dict[str, str]:
    """Makes `library` hold three documents; their ids by name."""
    shutil.copytree(filled_home, tmp_path / "home", dirs_exist_ok=True)
    with Library.open(tmp_path / "home", lambda: pytest.fail("no model needed")) as library:
        return {document.title: document.id for document in library.documents.list()}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write_(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write_


def add(library: Library, path: Path, **settings: object) -> str:
    """Ingests a file; returns the document's id."""
    job = library.jobs.run(library.documents.submit(path, **settings).id)  # type: ignore[arg-type]
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
    return _numbered(plain)


def without_ids(token: dict) -> dict:
    """A token of an answer, with what it read but not the ids of the blocks."""
    return token | {"blocks": [share for _, share in token["blocks"]]}


def _numbered(plain: dict) -> dict:
    """With the ids of blocks, which count from anywhere, by their order."""
    text = json.dumps(plain)
    ids = sorted({int(found) for found in re.findall(r"(?<![\w.])\d{12,}(?!\w)", text)})
    for number, block_id in enumerate(ids):
        text = re.sub(rf"(?<![\w.]){block_id}(?!\w)", str(number), text)
    return json.loads(text)
