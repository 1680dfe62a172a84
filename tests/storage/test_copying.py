"""A catalogue is copied while it is in use, and put back, also into the other database."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage.backups import copy_catalogue
from storage.catalogue import Catalogue
from storage.errors import CatalogueDamaged, CatalogueUnavailable, ForeignCatalogue
from storage.kv.store import KVBlockStore
from storage.maintenance import catalogue_problems, verify
from storage.recovery import NothingToRescueFrom, restore
from tests.postgresql import Databases
from tests.storage.stored import add_ready, commit, database_url, give_database, new_document, open_home, sqlite_only


def everything(catalogue: Catalogue) -> list[object]:
    of_each = (catalogue.blocks_of_document, catalogue.pages, catalogue.extracted_text, catalogue.shards)
    return [[document, *(get(document.id) for get in of_each)] for document in catalogue.documents()] + [
        catalogue.users(),
        catalogue.collections(),
        [catalogue.answer(head.id) for head in catalogue.answers()],
        catalogue.jobs(),
    ]


def filled(home: Path) -> tuple[Catalogue, KVBlockStore]:
    catalogue, store = open_home(home)
    first, _ = add_ready(catalogue, store, 1, collection="Reports"), add_ready(catalogue, store, 2)
    catalogue.add_user("ann", "hash")
    catalogue.set_properties(first.id, {"author": ["Lindqvist"]})
    catalogue.put_title_keys(first.id, first.title, b"keys")
    catalogue.save_answer(question="q", text="t", body="{}", document_ids=[first.id])
    return catalogue, store


def test_a_library_moves_between_the_databases_with_all_it_holds(tmp_path: Path, postgresql: Databases) -> None:
    try:
        catalogue, store = filled(tmp_path)
        before = everything(catalogue)
        copy = copy_catalogue(catalogue.database, tmp_path / "copies" / "one")
        catalogue.close()
        server = postgresql.take_bare()
        assert restore(copy, server, tmp_path).dropped == ()
        give_database(tmp_path, server)
        catalogue, store = open_home(tmp_path)
        assert everything(catalogue) == before
        assert verify(catalogue, store.blobs) == catalogue_problems(catalogue) == []
        added = add_ready(catalogue, store, 3)
        after, ids = everything(catalogue), {row.id for row in catalogue.shards()}
        assert len(ids) == 6, "numbers of shards go on behind those that were copied"
        with catalogue.database.write() as connection:
            connection.exec_driver_sql("SELECT 1")
            back = copy_catalogue(catalogue.database, tmp_path / "copies" / "two")  # nobody waits for it
        catalogue.close()
        restore(back, f"sqlite:///{tmp_path}/cairn.sqlite3", tmp_path)
        catalogue = Catalogue.open(f"sqlite:///{tmp_path}/cairn.sqlite3", tmp_path)
        assert everything(catalogue) == after
        assert catalogue.properties_of([added.id, before[0][0].id]).keys() <= {
            each.id for each in catalogue.documents()
        }
        catalogue.close()
    finally:
        postgresql.give_back()


def test_an_older_copy_comes_back_with_what_was_stored_since(
    home: tuple[Catalogue, KVBlockStore], tmp_path: Path
) -> None:
    catalogue, store = home
    old = add_ready(catalogue, store, 1)
    catalogue.set_properties(old.id, {"tag": ["kept"]})
    copy = copy_catalogue(catalogue.database, tmp_path / "copy")
    deleted = catalogue.delete_documents([old.id])
    store.delete(deleted.shards)
    last = catalogue.add_document(new_document(7)).document
    mark = commit(catalogue, store, last.id).block_ids.stop
    catalogue.close()
    report = restore(copy, database_url(tmp_path), tmp_path)
    assert report.dropped == (old.source,) and report.base == copy
    catalogue, store = open_home(tmp_path)
    assert commit(catalogue, store, catalogue.add_document(new_document(8)).document.id).first_block_id >= mark - 3
    catalogue.close()


def test_what_is_no_copy_of_this_library_is_refused_and_nothing_changes(
    home: tuple[Catalogue, KVBlockStore], tmp_path: Path
) -> None:
    catalogue, store = home
    document = add_ready(catalogue, store, 1)
    with pytest.raises(CatalogueUnavailable, match="cannot be used now"):
        restore(copy_catalogue(catalogue.database, tmp_path / "copy"), database_url(tmp_path), tmp_path)
    catalogue.close()
    damaged, empty = tmp_path / "damaged", tmp_path / "empty"
    damaged.write_bytes(b"noise" * 3000)
    empty.touch()
    for refused in (damaged, empty):
        with pytest.raises(CatalogueDamaged, match=str(refused)):
            restore(refused, database_url(tmp_path), tmp_path)
    other = Catalogue.open(f"sqlite:///{tmp_path}/other/x.sqlite3", tmp_path / "other")
    foreign = copy_catalogue(other.database, tmp_path / "foreign")
    other.close()
    with pytest.raises(ForeignCatalogue, match=str(foreign)):
        restore(foreign, database_url(tmp_path), tmp_path)
    catalogue, _ = open_home(tmp_path)
    assert catalogue.documents() == [document]
    catalogue.close()


def test_another_homes_catalogue_without_documents_is_not_replaced_either(tmp_path: Path) -> None:
    for home in (other := tmp_path / "other", mine := tmp_path / "mine"):
        home.mkdir()
    catalogue, _ = filled(mine)
    copy = copy_catalogue(catalogue.database, tmp_path / "copy")
    catalogue.close()
    catalogue, _ = open_home(other)
    catalogue.create_collection("reports")
    catalogue.close()
    with pytest.raises(CatalogueUnavailable, match="of another home folder"):
        restore(copy, database_url(other), mine)
    catalogue, _ = open_home(other)
    assert [one.name for one in catalogue.collections()] == ["reports"]
    catalogue.close()


@pytest.mark.parametrize("where", ["sqlite", "postgresql"])
def test_another_homes_catalogue_is_replaced_only_where_that_is_said(
    tmp_path: Path, request: pytest.FixtureRequest, where: str
) -> None:
    for home in (other := tmp_path / "other", mine := tmp_path / "mine"):
        home.mkdir()
    databases: Databases | None = request.getfixturevalue("postgresql") if where == "postgresql" else None
    try:
        if databases is not None:
            give_database(other, databases.take_bare())
        catalogue, _ = filled(other)
        theirs = everything(catalogue)
        catalogue.close()
        catalogue, _ = filled(mine)
        ours = everything(catalogue)
        copy = copy_catalogue(catalogue.database, tmp_path / "copy")
        catalogue.close()
        with pytest.raises(CatalogueUnavailable, match="of another home folder"):
            restore(copy, database_url(other), mine)
        catalogue, _ = open_home(other)
        assert everything(catalogue) == theirs
        catalogue.close()
        restore(copy, database_url(other), mine, anyway=True)
        for _again in range(2):  # now it is ours
            give_database(mine, database_url(other))
            catalogue, _ = open_home(mine)
            assert everything(catalogue) == ours
            catalogue.close()
            restore(copy, database_url(mine), mine)
    finally:
        if databases is not None:
            databases.give_back()


def test_a_file_without_tables_is_no_copy_for_a_new_home_either(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(CatalogueDamaged, match="no tables of Cairn"):
        restore(tmp_path / "empty", f"sqlite:///{tmp_path}/cairn.sqlite3", tmp_path)


@sqlite_only
def test_a_catalogue_that_was_copied_with_its_log_comes_back_whole(
    home: tuple[Catalogue, KVBlockStore], tmp_path: Path
) -> None:
    catalogue, store = home
    document = add_ready(catalogue, store, 1)
    (tmp_path / "copy").mkdir()
    for path in tmp_path.glob("cairn.sqlite3*"):  # of a disk, while the program runs
        shutil.copy(path, tmp_path / "copy")
    assert (tmp_path / "copy" / "cairn.sqlite3-wal").stat().st_size
    catalogue.close()
    assert restore(tmp_path / "copy" / "cairn.sqlite3", database_url(tmp_path), tmp_path).kept == (document.source,)


def test_a_copy_is_not_put_back_beside_folders_that_are_not_there(
    home: tuple[Catalogue, KVBlockStore], tmp_path: Path
) -> None:
    catalogue, store = home
    add_ready(catalogue, store, 1)
    copy = copy_catalogue(catalogue.database, tmp_path / "copy")
    catalogue.close()
    store.folder.rename(tmp_path / "unmounted")
    with pytest.raises(NothingToRescueFrom, match="not mounted"):
        restore(copy, database_url(tmp_path), tmp_path)
