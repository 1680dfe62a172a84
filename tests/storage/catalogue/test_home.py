"""A catalogue that does not know what is stored in a home is refused before anything is read, written or migrated."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from storage.catalogue import Catalogue
from storage.catalogue.home import Home
from storage.errors import CatalogueDamaged, CatalogueUnavailable, ForeignCatalogue
from storage.migrations.upgrade import HEAD, backup
from tests.storage.stored import (
    add_ready,
    collect_garbage,
    database_url,
    new_document,
    open_home,
    sqlite_only,
    write_shard,
)

pytestmark = sqlite_only
GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A home with one document."""
    catalogue, store = open_home(tmp_path / "home")
    add_ready(catalogue, store, 1)
    catalogue.close()
    return tmp_path / "home"


def files(home: Path) -> dict[str, bytes]:
    """What is stored, apart from the catalogue itself."""
    found = (path for folder in ("kv", "files", "trash") for path in (home / folder).rglob("*") if path.is_file())
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in found}


def refused(home: Path, match: str, url: str = "") -> None:
    before = files(home)
    with pytest.raises(ForeignCatalogue, match=match) as raised:
        Catalogue.open(url or database_url(home), home)
    assert "cairn rescue" in str(raised.value) and "Nothing was changed" in str(raised.value)
    assert files(home) == before


def without_catalogue(home: Path) -> Path:
    for path in home.glob("cairn.sqlite3*"):
        path.unlink()
    return home


def test_a_home_and_its_catalogue_have_the_same_id_from_the_first_opening_on(tmp_path):
    catalogue, _ = open_home(tmp_path)
    with catalogue.database.read() as connection:
        assert connection.exec_driver_sql("SELECT id FROM home").scalars().all() == [Home(tmp_path).id]
    catalogue.close()
    first = Home(tmp_path).id
    open_home(tmp_path)[0].close()
    assert Home(tmp_path).id == first is not None


def test_an_empty_catalogue_is_refused_where_something_is_stored_and_not_even_made(filled, tmp_path):
    refused(filled, "is empty", f"sqlite:///{tmp_path}/wrong.sqlite3")
    assert not (tmp_path / "wrong.sqlite3").exists()
    refused(without_catalogue(filled), "is empty")
    (filled / "home.json").unlink()  # nor where the home is of an earlier release
    refused(filled, "is empty")


def test_an_original_alone_is_enough_to_refuse_an_empty_catalogue(tmp_path):
    open_home(tmp_path)[0].close()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / f"{'a' * 32}.pdf").write_bytes(b"%PDF")
    refused(without_catalogue(tmp_path), "is empty")


def test_a_home_where_nothing_is_stored_may_start_anew(tmp_path):
    catalogue, store = open_home(tmp_path)
    document = add_ready(catalogue, store)
    store.delete(catalogue.delete_documents([document.id]).shards)
    catalogue.close()
    open_home(without_catalogue(tmp_path))[0].close()
    open_home(tmp_path)[0].close()


def test_the_catalogue_of_another_home_is_refused(filled, tmp_path):
    other, store = open_home(tmp_path / "other")
    add_ready(other, store, 2)
    other.close()
    refused(filled, "another home folder's", database_url(tmp_path / "other"))
    (filled / "home.json").unlink()
    refused(filled, "another home folder's", database_url(tmp_path / "other"))
    refused_by = tmp_path / "new home"
    refused_by.mkdir()
    refused(refused_by, "another home folder's", database_url(tmp_path / "other"))


def test_a_catalogue_that_was_cut_to_nothing_is_refused(filled):
    for path in filled.glob("cairn.sqlite3*"):
        path.write_bytes(b"")
    refused(filled, "is empty")


def test_an_older_copy_is_refused_whatever_came_since(filled, tmp_path):
    """A document that was only handed in, one that was read, one that was deleted."""
    for number, change in enumerate(("submit", "read", "delete")):
        copy = tmp_path / "copy.sqlite3"
        catalogue, store = open_home(filled)
        shutil.copy(backup(catalogue.database, copy), tmp_path / "before.sqlite3")
        if change == "submit":
            catalogue.add_document(new_document(10 + number))
        elif change == "read":
            add_ready(catalogue, store, 10 + number)
        else:
            catalogue.delete_documents([catalogue.documents()[0].id])
        newest = backup(catalogue.database, tmp_path / f"newest-{number}.sqlite3")
        catalogue.close()
        shutil.copy(copy, without_catalogue(filled) / "cairn.sqlite3")
        refused(filled, "an older copy")
        shutil.copy(newest, without_catalogue(filled) / "cairn.sqlite3")
        open_home(filled)[0].close()


def test_a_copy_with_only_newer_answers_missing_is_accepted(filled, tmp_path):
    catalogue, _ = open_home(filled)
    copy = backup(catalogue.database, tmp_path / "copy.sqlite3")
    catalogue.save_answer(question="q", text="a", body="{}", document_ids=[])
    catalogue.close()
    shutil.copy(copy, without_catalogue(filled) / "cairn.sqlite3")
    open_home(filled)[0].close()


def test_a_refused_catalogue_of_an_earlier_schema_is_not_migrated(filled, tmp_path):
    old = tmp_path / "old.sqlite3"
    with closing(sqlite3.connect(old)) as connection:
        connection.executescript((GOLDEN / "catalogue-0003.sql").read_text())
    before = old.read_bytes()
    refused(filled, "another home folder's", f"sqlite:///{old}")
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0003",)
    assert len(old.read_bytes()) == len(before)


def test_a_home_of_an_earlier_release_gets_its_id_at_the_first_opening(tmp_path):
    with closing(sqlite3.connect(tmp_path / "cairn.sqlite3")) as connection:
        connection.executescript((GOLDEN / "catalogue-0003.sql").read_text())
        (document_id,) = connection.execute("SELECT id FROM documents").fetchone()
    (tmp_path / "kv" / document_id).mkdir(parents=True)
    (tmp_path / "kv" / document_id / "x.kv").write_bytes(b"memory")
    catalogue, _ = open_home(tmp_path)
    with catalogue.database.read() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == HEAD
        assert connection.exec_driver_sql("SELECT id FROM home").scalar() == Home(tmp_path).id
    catalogue.close()


def test_a_damaged_id_file_is_written_anew_for_the_catalogue_that_knows_the_home(filled):
    own = Home(filled).id
    (filled / "home.json").write_bytes(b"{")
    open_home(filled)[0].close()
    assert Home(filled).id == own
    assert json.loads((filled / "home.json").read_bytes()) == {"id": own}


def test_garbage_is_not_collected_with_a_catalogue_that_became_foreign_or_damaged(filled, tmp_path):
    catalogue, store = open_home(filled)
    orphan = write_shard(store, group="gone")
    with catalogue.database.write() as connection:
        connection.exec_driver_sql("UPDATE home SET id = 'another'")
    with pytest.raises(ForeignCatalogue):
        collect_garbage(catalogue, filled)
    with catalogue.database.write() as connection:
        connection.exec_driver_sql(f"UPDATE home SET id = '{Home(filled).id}'")
    catalogue.close()
    path = filled / "cairn.sqlite3"
    content = bytearray(path.read_bytes())
    content[10 * 4096 :] = b"\x5a" * (len(content) - 10 * 4096)
    path.write_bytes(content)
    with pytest.raises((CatalogueDamaged, CatalogueUnavailable)):
        damaged, _ = open_home(filled)
        collect_garbage(damaged, filled)
    assert (store.folder / orphan.name).exists() and not (filled / "trash").exists()


def test_two_processes_may_note_the_progress_and_the_furthest_stays(tmp_path):
    one, two = Home(tmp_path), Home(tmp_path)
    one.note(5)
    two.note(7)
    one.note(6)
    assert Home(tmp_path).mark == 7


def test_a_catalogue_to_which_others_commit_while_it_is_opened_is_not_an_older_copy(filled, monkeypatch):
    """A commit between the look at the catalogue and what is compared with it."""
    committing, looked = Catalogue.open(database_url(filled), filled), Home.progress_of_own

    def progress_of_own(self, database):
        found = looked(self, database)
        committing.add_document(new_document(10))
        return found

    monkeypatch.setattr(Home, "progress_of_own", progress_of_own)
    Catalogue.open(database_url(filled), filled).close()
    assert len(committing.documents()) == 2
    committing.close()
