"""Vectors of blocks, by shard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.storage.stored import add_ready, open_home

pytestmark = pytest.mark.both_catalogues


def test_vectors_are_kept_by_encoder_until_their_document_is_deleted(tmp_path: Path) -> None:
    catalogue, store = open_home(tmp_path / "home")
    documents = [add_ready(catalogue, store, seed) for seed in (1, 2)]
    (first, *others), (second, *_) = (catalogue.shards(document.id) for document in documents)

    def without(**given: Any) -> list[int]:
        return [shard_id for shard_id, _, _ in catalogue.shards_without_vectors(**given)]

    everywhere = [shard.id for shard in catalogue.shards()]
    assert without(encoder="a", most=10) == everywhere
    catalogue.put_vectors(first.id, b"12", encoder="a", title=documents[0].title)
    catalogue.put_vectors(second.id, b"34", encoder="a", title=documents[1].title)
    assert without(encoder="a", document_id=documents[0].id, most=10) == [s.id for s in others]
    assert catalogue.shards_without_vectors(encoder="b", most=1) == [(first.id, documents[0].id, documents[0].title)]
    assert catalogue.vectors_held(encoder="a") == {
        one.id: (one.first_block_id, document.title) for one, document in zip((first, second), documents, strict=True)
    }
    assert catalogue.vectors([first.id, second.id, 99], encoder="a") == {first.id: b"12", second.id: b"34"}

    catalogue.rename_document(documents[1].id, "Renamed")
    assert second.id in without(encoder="a", most=10)
    assert catalogue.vectors([second.id], encoder="a"), "they count until they are made again"
    catalogue.put_vectors(first.id, b"56", encoder="b", title="")
    assert catalogue.vectors(everywhere, encoder="a") == {second.id: b"34"}, "of another encoder they are replaced"
    catalogue.delete_documents([documents[0].id])
    catalogue.put_vectors(first.id, b"56", encoder="b", title="")
    assert catalogue.vectors_held(encoder="b") == {}
    catalogue.close()


def test_questions_see_vectors_of_documents_that_were_ready_once_they_are_shown(tmp_path: Path) -> None:
    catalogue, store = open_home(tmp_path / "home")
    document = add_ready(catalogue, store)
    version = catalogue.memory_version()
    catalogue.put_vectors(catalogue.shards(document.id)[0].id, b"12", encoder="a", title="")
    assert catalogue.memory_version() == version
    catalogue.show_vectors()
    assert catalogue.memory_version() > version
    catalogue.close()
