"""Blocks are found by what they are about."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from model.checkpoint.landmark_model import LandmarkModel
from model.reading.passage_encoder import PassageEncoder
from retrieval.engine.workspace import Workspace
from retrieval.index import vectors
from retrieval.index.vectors import BlockVectors, VectorIndex, index_vectors
from retrieval.library import Library
from retrieval.query import search
from retrieval.query.search import find_blocks
from tests.retrieval.conftest import SHARD_BYTES, add
from tests.retrieval.index.test_inverted_index import texts_of
from tests.retrieval.query.test_token_ranking import by_tokens  # noqa: F401
from tests.tiny_model import shipped_model

PLAIN = "There are many forms, and they are sent by mail. "
WIDTH = 8


class AboutDucks:
    """An encoder for which a text is about ducks (or what they are called in French), or it is not."""

    width, digest = WIDTH, "ducks"

    def __init__(self) -> None:
        self.passes: list[int] = []

    def question(self, text: str) -> Tensor:
        about = any(name in text for name in ("duck", "canard"))
        return torch.tensor([0.6, 0.8, *[0.0] * 6] if about else [1.0, *[0.0] * 7])

    def passages(self, texts: Sequence[str]) -> Tensor:
        self.passes.append(len(texts))
        return torch.stack([self.question(text) for text in texts])


class AboutNothing(AboutDucks):
    digest = "nothing"


def codes(of: BlockVectors) -> np.ndarray:
    return of.index.reconstruct_n(0, len(of.ids_M))


@pytest.fixture
def encoder() -> AboutDucks:
    return AboutDucks()


def use(encoder: AboutDucks, library: Library, patch: pytest.MonkeyPatch) -> None:
    loaded = replace(library.view.workspace.loaded(), encoder=cast(PassageEncoder, encoder))
    patch.setattr(Workspace, "loaded", lambda _workspace, any_memory=False: loaded)
    patch.setattr(Workspace, "opened", loaded)


@pytest.fixture(scope="module")
def forms(
    by_tokens: LandmarkModel,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[int]]:
    """The home of a library with one document, and how many texts its encoder was given at a time."""
    folder, encoder = tmp_path_factory.mktemp("forms"), AboutDucks()
    (folder / "forms.txt").write_text(PLAIN * 60 + "Le canard nage. " + PLAIN * 60)
    with (
        pytest.MonkeyPatch.context() as patch,
        Library.open(folder / "home", by_tokens, shard_bytes=SHARD_BYTES) as library,
    ):
        use(encoder, library, patch)
        add(library, folder / "forms.txt")
    return folder / "home", encoder.passes


@pytest.fixture
def library(
    forms: tuple[Path, list[int]],
    open_library: Callable[..., Library],
    by_tokens: LandmarkModel,  # noqa: F811
    tmp_path: Path,
    encoder: AboutDucks,
    monkeypatch: pytest.MonkeyPatch,
) -> Library:
    shutil.copytree(forms[0], tmp_path / "home")
    library = open_library(model=by_tokens)
    use(encoder, library, monkeypatch)
    encoder.passes += forms[1]
    return library


def found(library: Library, question: str) -> str:
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        return texts_of(library, snapshot, find_blocks(library.view.workspace, snapshot, question, 1, None).indices_C)[
            0
        ]


def held(library: Library) -> BlockVectors:
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        assert snapshot.vectors is not None
        return snapshot.vectors


def test_what_means_the_same_is_found_without_a_word_in_common(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "FEWEST_PROPOSED", 1)
    monkeypatch.setattr(search, "PROPOSED_PER_BLOCK", 1)
    assert "canard" in found(library, "Does a duck swim?")
    monkeypatch.setattr(search, "VECTOR_WEIGHT", 0.0)
    assert "canard" not in found(library, "Does a duck swim?")


def test_each_block_has_a_vector_made_in_small_pieces_once_its_document_is_ready(
    library: Library, encoder: AboutDucks
) -> None:
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        assert snapshot.vectors is not None
        assert np.array_equal(snapshot.vectors.ids_M, snapshot.blocks.ids_N)
        assert sum(encoder.passes) == snapshot.num_blocks and max(encoder.passes) <= 16


def test_what_was_stored_without_gets_vectors_in_the_background_and_can_be_stopped(library: Library) -> None:
    before, catalogue = held(library), library.view.catalogue
    with catalogue.database.write() as connection:  # as an older release has stored it
        connection.exec_driver_sql("DELETE FROM shard_vectors")
    catalogue.show_vectors()
    assert len(held(library).ids_M) == 0 and found(library, "Does a duck swim?")
    shards = len(catalogue.shards())
    assert library.maintenance.index_blocks(lambda: False) == 0
    assert library.maintenance.index_blocks() == shards
    assert library.maintenance.index_blocks() == 0
    assert np.array_equal(codes(held(library)), codes(before))


def test_vectors_come_and_go_with_their_documents(library: Library, tmp_path: Path) -> None:
    ids = held(library).ids_M
    (tmp_path / "mail.txt").write_text("Nobody knows. " + PLAIN * 20)
    mail = add(library, tmp_path / "mail.txt")
    both = held(library)
    assert len(both.ids_M) > len(ids) and set(ids) < set(both.ids_M)
    library.documents.delete([document.id for document in library.documents.list() if document.id != mail])
    assert set(held(library).ids_M) == set(both.ids_M) - set(ids)
    fresh = VectorIndex().current(library.view.catalogue, library.view.workspace.opened.encoder)  # type: ignore[arg-type]
    assert np.array_equal(fresh.ids_M, held(library).ids_M)
    assert np.array_equal(codes(fresh), codes(held(library)))


def test_cosines_are_those_of_the_vectors_and_the_mean_without_one(library: Library) -> None:
    all_of = held(library)
    question = torch.tensor([0.6, 0.8, *[0.0] * 6])
    rows = np.append(all_of.rows(all_of.ids_M), all_of.rows(all_of.ids_M[-1:] + 1))
    assert rows.tolist() == [*range(len(all_of.ids_M)), -1]
    cosines = all_of.cosines(question, rows)
    assert sorted({round(value, 2) for value in cosines[:-1].tolist()}) == [0.15, 0.35], "codes end at a quarter"
    assert float(cosines[-1]) == pytest.approx(float(cosines[:-1].mean()))
    assert VectorIndex().current(library.view.catalogue, cast(PassageEncoder, AboutNothing())).rows(rows).max() == -1


def test_the_nearest_in_scope_are_found(library: Library, tmp_path: Path) -> None:
    (tmp_path / "mail.txt").write_text("A duck. " + PLAIN * 20)
    mail = add(library, tmp_path / "mail.txt")
    question = torch.tensor([0.0, 1.0, *[0.0] * 6])
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        best = texts_of(library, snapshot, snapshot.nearest(question, 2, None).tolist())
        assert len(best) == 2 and all("canard" in text or "duck" in text for text in best)
        within = snapshot.indices_of([mail])
        assert "duck" in texts_of(library, snapshot, snapshot.nearest(question, 1, within).tolist())[0]
        alone = snapshot.restricted_to([mail])
        assert alone.nearest(question, 1000, None).tolist() == list(range(alone.num_blocks))


def test_as_long_as_many_blocks_have_no_vector_none_counts(library: Library) -> None:
    question = torch.tensor([0.0, 1.0, *[0.0] * 6])
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        assert snapshot.vectors is not None
        few = BlockVectors(snapshot.vectors.ids_M[:2], snapshot.vectors.index)
        partly = replace(snapshot, vectors=few)
        assert len(partly.nearest(question, 2, None)) == 0
        assert partly.lead(question, torch.arange(3)).tolist() == [0.0] * 3


def test_without_an_encoder_nothing_is_made(open_library: Callable[..., Library], by_tokens: LandmarkModel) -> None:  # noqa: F811
    assert index_vectors(open_library(model=by_tokens).view.workspace) == 0


def test_a_new_title_counts_at_once_in_a_small_document_and_later_in_a_large_one(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = library.documents.list()[0]
    monkeypatch.setattr(vectors, "MOST_AT_ONCE", 1_000_000)
    before = held(library)
    assert "canard" in found(library, "Does a duck swim?")
    library.documents.rename(document.id, "About a duck")
    renamed = held(library)
    assert not np.array_equal(codes(renamed), codes(before)) and np.array_equal(renamed.ids_M, before.ids_M)
    monkeypatch.setattr(vectors, "MOST_AT_ONCE", 1)
    library.documents.rename(document.id, "Forms")
    assert held(library) is renamed
    assert library.maintenance.index_blocks() == len(library.view.catalogue.shards())
    assert np.array_equal(codes(held(library)), codes(before))


SPANISH = (
    "El puente de la ciudad fue construido por ingenieros alemanes en el siglo pasado y une las dos orillas.",
    "La biblioteca abre todos los días de la semana, salvo los domingos por la tarde, y presta libros a los niños.",
    "Las copias en cinta fueron descartadas porque eran lentas y demasiado caras para una empresa tan pequeña.",
    "El mercado vende pescado fresco, frutas del valle y pan de trigo desde las seis de la mañana.",
    "Los trenes nocturnos salen del andén número cuatro y llegan a la frontera antes del amanecer.",
    "La fábrica de vidrio cerró sus puertas después del incendio y hoy es un museo de arte moderno.",
)


def test_the_shipped_checkpoint_finds_what_is_asked_for_in_another_language(
    open_library: Callable[..., Library], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = open_library(model=shipped_model())
    for number, sentence in enumerate(SPANISH):
        (tmp_path / f"{number}.txt").write_text(sentence)
        add(library, tmp_path / f"{number}.txt")
    questions = {"Why were tape backups rejected?": "cinta", "What became of the glassworks?": "museo"}
    first = [library.search(question, 1)[0].text for question in questions]
    assert all(word in text for word, text in zip(questions.values(), first, strict=True))
    monkeypatch.setattr(search, "VECTOR_WEIGHT", 0.0)
    first = [library.search(question, 1)[0].text for question in questions]
    assert not all(word in text for word, text in zip(questions.values(), first, strict=True))
