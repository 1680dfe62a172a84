"""The mapped file of a library's landmarks: used where it is right and of this moment, never where it is not."""

from __future__ import annotations

import logging

import pytest

from retrieval.index.mapped import DamagedLandmarkFile, LandmarkFile
from storage.kv.store import KVBlockStore
from tests.retrieval.conftest import RAIN, add, ask, prose

WORDS = "rain over the river"


@pytest.fixture
def mapped(library, three, open_library):
    """A library with three documents, whose landmarks are in a file."""
    first = open_library(index="mapped")
    first.search(WORDS)
    first.view.index.close()
    return first


def found(library) -> list[tuple[object, float]]:
    return [(tuple(passage.block_ids), round(passage.score, 4)) for passage in library.search(WORDS, 100)]


def path_of(library):
    return library.view.workspace.home / "index" / "landmarks.map"


def no_shard_is_read(monkeypatch) -> None:
    monkeypatch.setattr(KVBlockStore, "landmarks", lambda *_: pytest.fail("a shard was read"))


def test_it_finds_what_exact_search_finds(library, mapped, open_library):
    assert found(mapped) == found(library)
    assert found(open_library(index="mapped")) == found(library)
    mine, other = ask(library, "whales?"), ask(mapped, "whales?")
    assert (mine.text, mine.confidence) == (other.text, pytest.approx(other.confidence, abs=1e-4))
    assert other.settings["index"] == "mapped"


def test_opened_again_it_reads_no_shard_and_no_row_of_one(mapped, open_library, monkeypatch):
    before = found(mapped)
    again = open_library(index="mapped")
    no_shard_is_read(monkeypatch)
    monkeypatch.setattr(type(again.view.catalogue), "all_block_refs", lambda *_, **__: pytest.fail("rows were read"))
    assert found(again) == before
    assert again.view.index.size_bytes < 1 << 20


def test_documents_that_came_and_went_since_are_found_and_not(mapped, library, three, open_library, write, monkeypatch):
    new = add(library, write("new.txt", RAIN.replace("rain", "snow")))
    library.documents.delete([three["fox"]])
    for opened in (mapped, open_library(index="mapped")):
        assert found(opened) == found(library)
        documents = {passage.document_id for passage in opened.search(WORDS, 100)}
        assert new in documents and three["fox"] not in documents


def test_when_much_has_changed_it_is_written_again(mapped, open_library, write, monkeypatch):
    monkeypatch.setattr("retrieval.index.mapped.FEWEST_NEW", 1)
    held = LandmarkFile(path_of(mapped)).num_blocks
    add(mapped, write("new.txt", prose(9, 900)))
    before = found(mapped)
    mapped.view.index.close()
    assert LandmarkFile(path_of(mapped)).num_blocks > held
    assert found(mapped) == before
    assert mapped.view.index._index.not_in_file == 0, "the new file is in use"
    no_shard_is_read(monkeypatch)
    assert found(open_library(index="mapped")) == before


@pytest.mark.parametrize("section", ["header", "codes", "keys", "scale", "ids", "document_ids"])
def test_a_damaged_file_is_noticed_and_made_again(mapped, open_library, section, caplog):
    before, path = found(mapped), path_of(mapped)
    offset = 30 if section == "header" else LandmarkFile(path)._sections[section][0] + 3
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x41]))
    again = open_library(index="mapped")
    if section in ("codes", "keys"):  # noticed when they are read: the question is refused, the next one answered
        with pytest.raises(DamagedLandmarkFile, match="ask once more"):
            found(again)
        assert not path.exists()
        assert found(again) == before
    else:
        with caplog.at_level(logging.WARNING):
            assert found(again) == before
        assert "made again" in caplog.text
    again.view.index.close()
    assert LandmarkFile(path).num_blocks == len(mapped.view.index._index.ids)


@pytest.mark.parametrize("kept", [0, 10, 3000, 5000])
def test_a_torn_file_is_made_again(mapped, open_library, kept):
    before, path = found(mapped), path_of(mapped)
    contents = path.read_bytes()
    path.unlink()  # another file: the one that is mapped here stays as it is
    path.write_bytes(contents[:kept])
    assert found(open_library(index="mapped")) == before
    assert found(mapped) == before


def test_a_file_of_an_earlier_catalogue_that_was_put_back_is_not_taken_for_todays(mapped):
    """Versions are counted, so a copy of the catalogue that is put back can come to the same number again."""
    catalogue = mapped.view.catalogue
    before = catalogue.memory_mark()
    with catalogue.database.write() as connection:
        connection.exec_driver_sql("update shards set name = name || 'x' where id = (select max(id) from shards)")
    assert catalogue.memory_mark() != before


def test_without_room_for_it_landmarks_stay_in_ram(library, three, open_library, monkeypatch, caplog):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("retrieval.index.mapped.write_landmark_file", full)
    opened = open_library(index="mapped")
    with caplog.at_level(logging.WARNING):
        assert found(opened) == found(library)
        opened.view.index.close()
    assert "could not be written" in caplog.text
    assert found(opened) == found(library)


def test_a_library_that_grows_past_the_size_changes_by_itself(library, three, open_library, monkeypatch):
    monkeypatch.setattr("retrieval.index.snapshot.AUTO_MAPPED_BLOCKS", 3)
    before = found(library)
    opened = open_library()
    assert found(opened) == before and opened.view.index.kind == "mapped"
    opened.view.index.close()
    assert path_of(opened).is_file() and path_of(opened).stat().st_mode & 0o077 == 0
