"""A home that release 0.1.0 left behind opens, is migrated, and answers as it did then (tests/golden/README.md)."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from model.checkpoint.landmark_model import LandmarkModel
from retrieval.errors import NotFound
from retrieval.library import Library
from storage.catalogue.home import Home
from storage.records import Principal
from tests.retrieval.conftest import ask, substance
from tests.tiny_model import tiny_model

HOME = Path(__file__).parents[1] / "golden" / "home-0.1.0.zip"
QUESTION = "What does the keeper count?"


@pytest.fixture(scope="module")
def first_model() -> LandmarkModel:
    """Weights from exact arithmetic, so that every machine makes the model that the home's memory is bound to."""
    model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            steps = (torch.arange(parameter.numel(), dtype=torch.int64) * 7919 + 104729 * number) % 10007
            parameter.copy_((steps.double() / 10007 - 0.5).mul(0.2).view(parameter.shape))
    return model


@pytest.fixture
def library(tmp_path: Path, first_model: LandmarkModel) -> Iterator[Library]:
    with zipfile.ZipFile(HOME) as archive:
        archive.extractall(tmp_path / "home")
    with Library.open(tmp_path / "home", first_model, shard_bytes=20_000) as library:
        yield library


def seen_by(library: Library, name: str) -> Library:
    return library.as_seen_by(Principal(library.accounts.get(name).id, name))


def test_everything_of_the_first_release_is_still_there(library):
    assert {(one.source, one.state, one.owner) for one in library.documents.list()} == {
        ("tower.txt", "ready", "ann"),
        ("whales.txt", "ready", ""),
    }
    (reports,) = library.collections.list()
    assert (reports.name, reports.documents, reports.owner, reports.shared_with) == ("Reports", 1, "ann", ("ben",))
    assert [user.name for user in library.accounts.list()] == ["ann", "ben"]
    assert library.accounts.of_token("0" * 64) == library.accounts.get("ann")
    assert [(job.source, job.state) for job in library.jobs.list()] == [("whales.txt", "done"), ("tower.txt", "done")]
    report = library.maintenance.verify()
    assert report.ok and not report.orphans and (report.documents, report.shards) == (2, 5)


@pytest.mark.files_only
def test_its_home_gets_the_id_of_its_catalogue_and_a_backup_from_before(library, tmp_path):
    home = tmp_path / "home"
    with library.view.catalogue.database.read() as connection:
        assert connection.exec_driver_sql("SELECT id FROM home").scalars().all() == [Home(home).id]
    (copy,) = (home / "backups").iterdir()
    assert copy.name.startswith("cairn-schema-0003-")


def test_the_stored_answer_reopens_and_the_same_question_gets_the_same_answer(library):
    ann = seen_by(library, "ann")
    (head,) = ann.answers.list(conversation_id="c" * 32)
    stored = ann.answers.get(head.id)
    assert stored.question == QUESTION and stored.text == head.text
    assert {one.pages for one in (*stored.passages, *stored.near_misses)} == {(1,)}, "its body counts from 0"
    again, before = substance(ask(ann, QUESTION, k=2, max_tokens=4, quote=False)), substance(stored)
    assert again["text"] == before["text"]
    assert [one["text"] for one in again["passages"]] == [one["text"] for one in before["passages"]]
    for name in ("confidence", "memory_share"):
        assert again[name] == pytest.approx(before[name], rel=1e-4)


def test_its_accounts_see_what_they_saw(library):
    ben = seen_by(library, "ben")
    assert {one.source for one in ben.documents.list()} == {"tower.txt", "whales.txt"}
    with pytest.raises(NotFound):
        ben.answers.get(library.answers.list()[0].id)
    assert "candles" in "".join(one.text for one in ben.search("Who counts the candles?", 5))
