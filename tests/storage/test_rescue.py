"""A catalogue made anew knows what is stored, says what it could not know, and gives no number twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage.backups import keep_backup
from storage.blobs.files import FileBlobs
from storage.catalogue import Catalogue
from storage.catalogue.database import Database
from storage.catalogue.home import Home, progress_of
from storage.errors import CatalogueUnavailable, ForeignCatalogue
from storage.maintenance import catalogue_problems, verify
from storage.migrations.upgrade import backup
from storage.records import Document, Principal
from storage.recovery import FOLDER, NothingToRescueFrom, needs_rescue, rescue, sidecar_name, write_sidecar
from tests.storage.stored import FINGERPRINT, add_ready, new_document, open_home, sqlite_only, write_shard

pytestmark = sqlite_only


class Books:
    """A home whose catalogue is lost in one way or another."""

    def __init__(self, home: Path):
        self.home, self.path, self.blobs = home, home / "cairn.sqlite3", FileBlobs(home)
        self.catalogue, self.store = open_home(home)
        (home / "files").mkdir()

    def add(self, seed: int, **settings: str) -> Document:
        """A whole document with its original and its sidecar."""
        document = add_ready(self.catalogue, self.store, seed, **settings)
        self.original(document)
        write_sidecar(self.catalogue.database, self.blobs, document.id)
        return document

    def original(self, document: Document) -> None:
        self.catalogue.replace_original(document.id, f"{document.id}.pdf")
        (self.home / "files" / f"{document.id}.pdf").write_bytes(document.source.encode())

    def delete(self, document: Document) -> None:
        self.store.delete(self.catalogue.delete_documents([document.id]).shards)
        (self.home / "files" / f"{document.id}.pdf").unlink()
        (self.home / FOLDER / sidecar_name(document.id)).unlink()

    def lose(self, *, backups: bool = False) -> None:
        """Close the catalogue and write noise over it."""
        self.catalogue.close()
        for path in self.home.glob("cairn.sqlite3*"):
            path.write_bytes(b"noise" * 3000)
        if backups:
            shutil.rmtree(self.home / "backups", ignore_errors=True)

    def everything(self, document_id: str) -> tuple:
        return (
            self.catalogue.blocks_of_document(document_id),
            self.catalogue.pages(document_id),
            self.catalogue.extracted_text(document_id),
            [(each.name, each.first_block_id) for each in self.catalogue.shards(document_id)],
        )

    def reopen(self) -> Catalogue:
        self.catalogue, self.store = open_home(self.home)
        assert not catalogue_problems(self.catalogue)
        return self.catalogue


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)


def plain(blocks: tuple) -> tuple:
    """Without the ids of shards' rows, which are the catalogue's own business."""
    return ([vars(block) | {"shard_id": 0} for block in blocks[0]], *blocks[1:])


def test_without_any_copy_every_document_comes_back_from_its_sidecar(books):
    documents = [books.add(seed, collection="Reports") for seed in (1, 2)]
    before = [plain(books.everything(document.id)) for document in documents]
    documents = [books.catalogue.document(document.id) for document in documents]
    books.lose(backups=True)
    assert needs_rescue(books.path, books.home)
    report = rescue(books.path, books.home)
    assert (report.base, report.num_users, report.missing_shards) == (None, 0, 0)
    assert (report.restored, report.kept, report.reread, report.dropped) == (
        ("report-1.pdf", "report-2.pdf"),
        (),
        (),
        (),
    )
    catalogue = books.reopen()
    assert sorted(catalogue.documents(), key=lambda each: each.source) == documents
    assert [plain(books.everything(document.id)) for document in documents] == before
    assert [each.name for each in catalogue.collections()] == ["Reports"]
    assert not verify(catalogue, books.store.blobs) and not needs_rescue(books.path, books.home)


def test_the_newest_backup_gives_accounts_and_answers_and_the_sidecars_what_came_after(books):
    old = books.add(1)
    ann = books.catalogue.add_user("ann", "hash")
    answer = books.catalogue.save_answer(question="q", text="a", body="{}", document_ids=[old.id])
    backup = keep_backup(books.catalogue.database)
    new = books.add(2)
    books.lose()
    report = rescue(books.path, books.home)
    assert (report.base, report.num_users) == (backup, 1)
    assert (report.kept, report.restored) == (("report-1.pdf",), ("report-2.pdf",))
    catalogue = books.reopen()
    assert catalogue.users() == [ann] and [head.id for head in catalogue.answers()] == [answer.id]
    assert {document.id for document in catalogue.documents()} == {old.id, new.id}


def test_what_was_deleted_after_the_backup_does_not_come_back(books):
    deleted, kept = books.add(1), books.add(2)
    books.catalogue.save_answer(question="q", text="a", body="{}", document_ids=[deleted.id])
    keep_backup(books.catalogue.database)
    books.delete(deleted)
    books.lose()
    assert rescue(books.path, books.home).dropped == ("report-1.pdf",)
    catalogue = books.reopen()
    assert [document.id for document in catalogue.documents()] == [kept.id] and catalogue.answers() == []


def test_an_older_copy_in_the_place_of_the_newest_is_brought_up_to_date(books, tmp_path):
    books.add(1)
    copy = backup(books.catalogue.database, tmp_path / "copy.sqlite3")
    new = books.add(2)
    books.lose(backups=True)
    for path in books.home.glob("cairn.sqlite3*"):
        path.unlink()
    shutil.copy(copy, books.path)
    with pytest.raises(ForeignCatalogue, match="older"):
        books.reopen()
    assert rescue(books.path, books.home).base == books.path
    with Database(f"sqlite:///{books.path}").read() as connection:
        assert progress_of(connection) == Home(books.home).mark
    assert new.id in {document.id for document in books.reopen().documents()}


def test_a_document_repaired_after_the_backup_keeps_its_new_files(books):
    document = books.add(1)
    keep_backup(books.catalogue.database)
    old = books.catalogue.shards(document.id)[0]
    new = write_shard(books.store, 3, 100, group=document.id)
    books.catalogue.replace_shard(old.name, new)
    books.store.delete([old.name])
    write_sidecar(books.catalogue.database, books.blobs, document.id)
    books.catalogue.rename_document(document.id, "Renamed before the backup")
    books.lose()
    assert rescue(books.path, books.home).missing_shards == 0
    assert new.name in {shard.name for shard in books.reopen().shards(document.id)}


@pytest.mark.parametrize("kept_bytes", [0, 4, 40, 200])
def test_an_original_without_anything_else_is_queued_to_be_read_again(books, kept_bytes):
    document = books.add(1)
    sidecar = books.home / FOLDER / sidecar_name(document.id)
    whole = sidecar.read_bytes()
    sidecar.write_bytes(whole[:kept_bytes] + bytes(len(whole) - kept_bytes))  # torn: the rest never came to the disk
    books.lose(backups=True)
    assert rescue(books.path, books.home).reread == (f"{document.id}.pdf",)
    catalogue = books.reopen()
    (found,) = catalogue.documents()
    assert (found.state, found.stored_file, found.owner_id) == ("ingesting", f"{document.id}.pdf", None)
    assert [job.document_id for job in catalogue.jobs(active_only=True)] == [document.id]


def test_an_original_that_nobody_knows_can_be_found_a_second_time(books):
    for name in ("a", "b"):
        books.lose(backups=True)
        (books.home / "files" / f"{32 * name}.pdf").write_bytes(b"a report")
        assert rescue(books.path, books.home).reread == (f"{32 * name}.pdf",)
        books.reopen().delete_documents([32 * name])
        (books.home / "files" / f"{32 * name}.pdf").unlink()
        keep_backup(books.catalogue.database)
        books.catalogue.close()
    (books.home / "files" / f"{32 * 'c'}.pdf").write_bytes(b"a report")
    assert rescue(books.path, books.home).base == books.path


def test_a_document_that_was_unlocked_and_read_after_the_backup_keeps_its_new_original_and_title(books):
    document = books.add(1)
    books.catalogue.put_title_keys(document.id, document.title, b"keys")
    keep_backup(books.catalogue.database)
    old = books.catalogue.shards(document.id)[0]
    books.catalogue.replace_shard(old.name, write_shard(books.store, 3, 100, group=document.id))
    unlocked = books.home / "files" / f"{document.id}.unlocked.pdf"
    (books.home / "files" / f"{document.id}.pdf").rename(unlocked)
    books.catalogue.replace_original(document.id, unlocked.name)
    write_sidecar(books.catalogue.database, books.blobs, document.id)
    books.lose()
    assert rescue(books.path, books.home).restored == ("report-1.pdf",)
    assert books.reopen().document(document.id).stored_file == unlocked.name
    assert books.catalogue.title_keys([document.id]) == {document.id: b"keys"}


def test_with_accounts_nobody_else_sees_what_was_somebodys_or_nobody_knows_whose(books):
    ann = books.catalogue.add_user("ann", "hash")
    ben = books.catalogue.add_user("ben", "hash")
    keep_backup(books.catalogue.database)
    hers = books.add(1)
    books.catalogue.transfer_ownership(ann.id, None)
    write_sidecar(books.catalogue.database, books.blobs, hers.id)
    unknown = books.add(2)
    (books.home / FOLDER / sidecar_name(unknown.id)).unlink()
    books.lose()
    rescue(books.path, books.home)
    catalogue = books.reopen()
    assert catalogue.document(hers.id).owner_id == ann.id
    for name, user, seen in (("ann", ann, {hers.id}), ("ben", ben, set())):
        assert catalogue.acting_for(Principal(user.id, name)).document_ids() == seen, name
    assert len(catalogue.documents()) == 2


def test_block_numbers_go_on_after_the_highest_that_was_ever_given(books):
    keep_backup(books.catalogue.database)
    first = books.add(1)
    last = max(block.id for block in books.catalogue.blocks_of_document(first.id))
    books.lose()
    rescue(books.path, books.home)
    catalogue = books.reopen()
    catalogue.put_fingerprint(FINGERPRINT)
    second = books.add(2)
    assert min(block.id for block in catalogue.blocks_of_document(second.id)) > last


def test_blocks_whose_numbers_others_have_by_now_get_new_ones(books, tmp_path):
    backup = keep_backup(books.catalogue.database)
    lost = books.add(1)
    books.catalogue.close()
    for path in books.home.glob("cairn.sqlite3*"):
        path.unlink()
    shutil.copy(backup, books.path)  # somebody forced the older copy, and went on with it
    Home(books.home).set_mark(0)
    books.catalogue, books.store = open_home(books.home)
    books.add(2)
    Home(books.home).set_mark(10**6)
    books.catalogue.close()
    assert rescue(books.path, books.home).restored == ("report-1.pdf",)
    catalogue = books.reopen()
    assert len(catalogue.all_block_refs()) == 12 and len(set(catalogue.all_block_refs().block_ids.tolist())) == 12
    assert catalogue.document(lost.id).state == "ready"


def test_the_old_catalogue_is_kept_in_the_trash_and_nothing_else_is_left_over(books):
    books.add(1)
    books.lose(backups=True)
    rescue(books.path, books.home)
    (old,) = (books.home / "trash").glob("*/cairn.sqlite3")
    assert old.read_bytes().startswith(b"noise") and not (books.home / "rescue").exists()
    assert not [path for end in ("-wal", "-shm") for path in books.home.glob(f"cairn.sqlite3{end}")]


def test_a_home_in_use_is_not_rescued_and_one_being_rescued_is_not_used(books):
    with pytest.raises(CatalogueUnavailable, match="stop them first"):
        rescue(books.path, books.home)
    books.catalogue.close()
    with Home(books.home).alone(), pytest.raises(CatalogueUnavailable, match="rescue"):
        books.reopen()
    books.reopen()


def test_folders_that_are_not_mounted_are_not_taken_for_deleted_documents(books):
    books.add(1)
    keep_backup(books.catalogue.database)
    books.lose()
    for folder in ("kv", "files"):
        (books.home / folder).rename(books.home / f"{folder} elsewhere")
    with pytest.raises(NothingToRescueFrom, match="not mounted"):
        rescue(books.path, books.home)
    assert books.path.read_bytes().startswith(b"noise")


def test_a_sound_catalogue_needs_no_rescue(books):
    books.add(1)
    books.catalogue.close()
    assert not needs_rescue(books.path, books.home)


def test_a_document_that_is_deleted_while_its_rows_are_copied_leaves_no_copy(books, monkeypatch):
    document = books.add(1)
    (books.home / FOLDER / sidecar_name(document.id)).unlink()
    plain_rename = Path.rename

    def rename(self, target):
        books.catalogue.delete_documents([document.id])
        return plain_rename(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    write_sidecar(books.catalogue.database, books.blobs, document.id)
    assert not list((books.home / "sidecars").iterdir())
    write_sidecar(books.catalogue.database, books.blobs, new_document(3).id)
    assert not list((books.home / "sidecars").iterdir())
