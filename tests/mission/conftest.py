"""A library over the memory of a landmark language model that was trained for it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from retrieval.extraction import extract
from retrieval.library import Library
from retrieval.types.answers import Answer
from retrieval.types.records import Scope
from tests.mission.passkey_model import QUESTION, STORED, passkey_model, text_with_key
from tests.retrieval.reading_here import ReadingHere

SENTENCES = 80
"""Of filler in a stored text, ten times as much as in the rows of training."""


@dataclass(frozen=True)
class Keyed:
    """A stored library, and the pass key that each of its documents holds."""

    library: Library
    keys: dict[str, int]

    def ask(self, document_id: str, **options: object) -> Answer:
        settings = {"within": Scope((document_id,)), "k": 4, "max_tokens": 7} | options
        *_, answer = self.library.ask(QUESTION, **settings)  # type: ignore[arg-type]
        assert isinstance(answer, Answer)
        return answer

    def answers(self, **options: object) -> list[Answer]:
        """One for each document, in order."""
        return [self.ask(document_id, **options) for document_id in self.keys]

    def right(self, answers: list[Answer]) -> int:
        """How many of `answers` begin with their key."""
        given = zip(answers, self.keys.values(), strict=True)
        return sum(answer.text.lstrip().startswith(str(key)) for answer, key in given)


@pytest.fixture(scope="session", params=["as stored", pytest.param("trained anew", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> LandmarkModel:
    return load_backbone(STORED, device="cpu") if request.param == "as stored" else passkey_model()


@pytest.fixture(scope="session")
def keyed(model: LandmarkModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    folder, rng, keys = tmp_path_factory.mktemp("mission"), random.Random(7), {}
    with pytest.MonkeyPatch.context() as patch, Library.open(folder / "home", model) as library:
        sandbox = ReadingHere()
        patch.setattr(extract, "SANDBOX", sandbox)
        for number in range(10):
            text, key = text_with_key(rng, SENTENCES)
            file = folder / f"{number}.txt"
            file.write_text(text)
            job = library.jobs.run(library.documents.submit(file).id)
            assert job.state == "done" and job.document_id is not None, job.error
            keys[job.document_id] = key
        yield Keyed(library, keys)
        sandbox.close()
