"""Which blocks hold which words, and their vectors, by shard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.records import Principal
from tests.storage.stored import add_ready, open_home

pytestmark = pytest.mark.both_catalogues


def held(found: dict[int, np.ndarray]) -> dict[int, list[int]]:
    return {term: ids.tolist() for term, ids in found.items()}


def test_blocks_are_found_by_their_words_until_they_are_deleted(tmp_path: Path) -> None:
    catalogue, store = open_home(tmp_path / "home")
    documents = [add_ready(catalogue, store, seed) for seed in (1, 2)]
    (first, *others), (second, *_) = (catalogue.shards(document.id) for document in documents)
    assert catalogue.shards_without_terms(rule=1, most=10) == [shard.id for shard in catalogue.shards()]
    for shard in catalogue.shards():
        catalogue.put_terms(shard.id, {}, rule=1)
    catalogue.put_terms(first.id, {7: [0, 2], 8: [1]}, rule=1)
    catalogue.put_terms(second.id, {7: [1], 9: []}, rule=1)
    assert catalogue.shards_without_terms(rule=1, most=10) == []
    a, b = first.first_block_id, second.first_block_id
    assert held(catalogue.blocks_with_terms({7, 8, 99})) == {7: [a, a + 2, b + 1], 8: [a + 1]}
    assert catalogue.count_terms({7, 8, 99}) == {7: 2, 8: 1}

    catalogue.put_terms(first.id, {8: [0]}, rule=2)
    assert catalogue.shards_without_terms(rule=2, document_id=documents[0].id, most=10) == [s.id for s in others]
    assert held(catalogue.blocks_with_terms({7, 8})) == {7: [b + 1], 8: [a]}

    catalogue.delete_documents([documents[0].id])
    catalogue.put_terms(first.id, {8: [0]}, rule=2)
    assert held(catalogue.blocks_with_terms({7, 8})) == {7: [b + 1]}
    catalogue.close()


def test_of_documents_that_a_user_may_not_read_no_word_is_known_or_counted(tmp_path: Path) -> None:
    catalogue, store = open_home(tmp_path / "home")
    ann = catalogue.acting_for(Principal("a" * 32, "ann"))
    documents = [add_ready(catalogue, store, seed) for seed in (1, 2)]
    shards = [catalogue.shards(document.id)[0] for document in documents]
    for shard in shards:
        catalogue.put_terms(shard.id, {7: [0]}, rule=1)
    closed = catalogue.acting_for(Principal("b" * 32, "bob")).create_collection("closed")
    catalogue.move_document(documents[0].id, closed.id)
    assert held(catalogue.blocks_with_terms({7})) == {7: [shard.first_block_id for shard in shards]}
    assert held(ann.blocks_with_terms({7})) == {7: [shards[1].first_block_id]}
    catalogue.close()


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
