"""verify names what is wrong and nothing else; garbage is what no row names and nobody is about to commit."""

import os
import sqlite3
import time

from sqlalchemy import update

from storage.blobs.files import TEMPORARY
from storage.catalogue.schema import documents, shards
from storage.maintenance import catalogue_problems, compact, database_problems, orphans, verify
from storage.migrations.upgrade import backup
from tests.storage.stored import add_ready, collect_garbage, new_document, sqlite_only, write_shard

HOUR = 3600


def age(path, seconds):
    os.utime(path, (time.time() - seconds,) * 2)


def test_a_sound_library_is_found_sound(home):
    catalogue, store = home
    add_ready(catalogue, store, 1)
    catalogue.add_document(new_document(2))
    assert verify(catalogue, store.blobs) == catalogue_problems(catalogue) == []


def test_damage_is_reported_with_its_document_shard_and_place(home):
    catalogue, store = home
    _sound, damaged = add_ready(catalogue, store, 1), add_ready(catalogue, store, 2)
    flipped, missing = catalogue.shards(damaged.id)
    path = store.folder / flipped.name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.unlink(store.folder / missing.name)
    (first, piece), (second, file) = verify(catalogue, store.blobs)
    assert (first.id, second.id) == (damaged.id, damaged.id)
    assert (piece.shard, piece.section, piece.layer, piece.head, piece.block) == (flipped.name, "piece", 5, 1, 2)
    assert (file.shard, file.reason) == (missing.name, "the file is missing")


def test_a_file_put_in_the_place_of_another_is_reported_although_it_is_whole(home):
    """Right name, right model, sound checksums: only the catalogue knows that these are other bytes."""
    catalogue, store = home
    document = add_ready(catalogue, store)
    shard = catalogue.shards(document.id)[0]
    catalogue.replace_shard(shard.name, write_shard(store, 3, 9))
    with catalogue.database.write() as connection:
        connection.execute(update(shards).values(checksum="sha256:0").where(shards.c.id == shard.id))
    ((_, damage),) = verify(catalogue, store.blobs)
    assert damage.section == "file"


def test_rows_that_disagree_are_reported(home):
    catalogue, store = home
    document = add_ready(catalogue, store)
    with catalogue.database.write() as connection:
        connection.execute(update(documents).values(num_blocks=7))
    assert catalogue_problems(catalogue) == [
        f"document {document.id} (report-0.pdf) should have 7 blocks; its shards hold 6, 6 are listed",
    ]


@sqlite_only
def test_a_damaged_database_is_reported(home):
    catalogue, store = home
    add_ready(catalogue, store)
    assert database_problems(catalogue.database) == []
    careless = sqlite3.connect(catalogue.database.path)  # keeps no foreign keys unless asked to
    careless.execute("DELETE FROM shards")
    careless.commit()
    careless.close()
    problems = database_problems(catalogue.database)
    assert any("table blocks refers to a missing row of shards" in problem for problem in problems)


def test_orphans_are_listed_and_removed(home):
    catalogue, store = home
    document = add_ready(catalogue, store)
    lost = write_shard(store, group="gone")
    unfinished = store.folder / "gone" / f"{TEMPORARY}1"
    unfinished.write_bytes(b"half")
    assert set(orphans(catalogue, store.folder, store.blobs)) == {lost.name, f"gone/{TEMPORARY}1"}
    garbage = collect_garbage(catalogue, store.folder.parent)
    assert set(garbage.files) == {store.folder / lost.name, unfinished}
    assert (garbage.swept_bytes, garbage.freed_bytes) == (lost.size_bytes + 4, 0)
    assert store.files() == {shard.name for shard in catalogue.shards(document.id)}
    assert not (store.folder / "gone").exists()
    assert verify(catalogue, store.blobs) == []


@sqlite_only
def test_old_backups_go_because_they_hold_what_was_deleted_and_no_other_files_beside_them(home, tmp_path):
    catalogue, store = home
    days = ("20260101", "20260102", "schema-0010-20260101", "20260103")
    made = [backup(catalogue.database, tmp_path / "backups" / f"cairn-{day}T120000000000.sqlite3") for day in days]
    made.append(made[0].rename(f"{made[0]}.7.unfinished"))
    *old, young = made[1:3] + made[4:] + made[3:4]
    others = [tmp_path / "backups" / name for name in ("photos/2019.tar", "cairn-notes.txt", "books.sqlite3")]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    for path in (*old, *others):
        age(path, 31 * 24 * HOUR)
    size_bytes = sum(path.stat().st_size for path in old)
    assert collect_garbage(catalogue, store.folder.parent).freed_bytes == size_bytes
    assert young.exists() and not any(path.exists() for path in old)
    assert all(path.exists() for path in others), "a catalogue may lie where other programs keep their backups"


@sqlite_only
def test_the_catalogue_shrinks_after_a_large_deletion(home):
    catalogue, store = home
    document = add_ready(catalogue, store)
    kept = catalogue.save_answer(question="kept", text="kept", body="{}", document_ids=[])
    for _ in range(40):
        catalogue.save_answer(question="q", text="", body="words " * 2000, document_ids=[document.id])
    catalogue.delete_documents([document.id])
    assert compact(catalogue.database) > 100_000
    assert compact(catalogue.database) == 0
    assert [head.id for head in catalogue.answers()] == [kept.id]
