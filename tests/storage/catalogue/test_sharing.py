"""Several threads and processes at one catalogue; size does not make opening or deleting slow."""

import os
import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import insert

from storage.catalogue import Catalogue
from storage.catalogue.schema import blocks, documents, shards
from storage.records import JobProgress, ShardFile
from tests import forked
from tests.storage.stored import add_ready, commit, database_url, new_blocks, new_document, open_home, sqlite_only

WRITER = """
import sys, time
from pathlib import Path
from storage.records import JobProgress
from tests.storage.stored import add_ready, open_home
catalogue, store = open_home(Path(sys.argv[1]))
print("ready", flush=True)
seed, until = int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
while time.monotonic() < until:
    seed += 1
    document = add_ready(catalogue, store, seed)
    catalogue.report_progress(catalogue.jobs(limit=1)[0], JobProgress("reading"))
    if seed % 3 == 0:
        store.delete(catalogue.delete_documents([document.id]).shards)
catalogue.close()
"""


@pytest.mark.parametrize("seconds", [0.5, pytest.param(20, marks=pytest.mark.slow)])
def test_readers_and_writers_of_several_processes_never_meet_a_locked_database(tmp_path, seconds):
    catalogue, _ = open_home(tmp_path)
    writers = [forked.started("-c", WRITER, tmp_path, 1000 * n, seconds) for n in range(2)]
    failures: list[BaseException] = []
    stop = threading.Event()

    def repeat(action: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                action()
        except BaseException as error:
            failures.append(error)

    def read_all() -> None:
        for document in catalogue.documents():
            assert document.state != "ready" or len(catalogue.blocks_of_document(document.id)) in (
                0,
                document.num_blocks,
            )
        catalogue.all_block_refs()

    def write_a_little() -> None:
        answer = catalogue.save_answer(question="q", text="a", body="{}", document_ids=[])
        catalogue.delete_answer(answer.id)

    threads = [threading.Thread(target=repeat, args=(action,)) for action in (read_all, read_all, write_a_little)]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    for thread in threads:
        thread.start()
    outputs = [writer.communicate(timeout=120) for writer in writers]
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [writer.returncode for writer in writers] == [0, 0], outputs
    assert len(catalogue.documents()) > 0
    assert catalogue.counting_problems() == []
    catalogue.close()


def test_a_reader_sees_one_moment_and_does_not_wait_for_a_writer(home):
    catalogue, store = home
    add_ready(catalogue, store, 1)
    with catalogue.database.write() as connection:
        connection.execute(documents.delete())
        started = time.monotonic()
        assert len(catalogue.documents()) == 1
        assert time.monotonic() - started < 5
    assert len(catalogue.documents()) == 0


def test_a_failed_transaction_leaves_nothing(home):
    catalogue, store = home
    document_id = catalogue.add_document(new_document()).document.id
    shard = commit(catalogue, store, document_id)
    again = ShardFile(shard.name, shard.size_bytes, shard.checksum, shard.num_blocks)  # a name is taken once
    with pytest.raises(Exception, match="(?i)unique"):
        catalogue.commit_shard(document_id, again, new_blocks(3, 3), progress=JobProgress("reading"))
    assert catalogue.document(document_id).num_blocks == 3
    assert catalogue.counting_problems() == []


def fill(catalogue: Catalogue, num_documents: int, blocks_each: int) -> list[str]:
    """Rows as a large library has them, written past the API, which would take minutes."""
    ids = []
    with catalogue.database.write() as connection:
        first = 1
        for seed in range(num_documents):
            new = new_document(seed)
            ids.append(new.id)
            counts = dict.fromkeys(("num_pages", "num_characters", "num_tokens", "size_bytes"), 1)
            state = {"state": "ready", "notes": "[]", "search_text": new.title.casefold(), "added_at": "2026"}
            row = vars(new) | counts | state | {"num_blocks": blocks_each}
            connection.execute(insert(documents).values(row))
            shard = {"id": seed + 1, "document_id": new.id, "name": new.id, "size_bytes": 1, "checksum": "c"}
            shard |= {"num_blocks": blocks_each, "first_ordinal": 0, "first_block_id": first}
            connection.execute(insert(shards).values(shard))
            block = {"document_id": new.id, "start": 0, "end": 9, "num_tokens": 63, "tokens": bytes(126)}
            block |= {"boxes": "[[0,0.10000,0.20000,0.30000,0.40000]]" * 5, "shard_id": seed + 1}
            numbers = range(blocks_each)
            rows = [block | {"id": first + i, "ordinal": i, "index_in_shard": i} for i in numbers]
            connection.execute(insert(blocks), rows)
            first += blocks_each
    return ids


def fastest(action: Callable[[], object], times: int = 5) -> float:
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


@sqlite_only
def test_opening_a_thousand_documents_takes_about_as_long_as_opening_none(tmp_path):
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
        open_home(tmp_path / name)[0].close()
    catalogue = Catalogue.open(database_url(tmp_path / "full"))
    fill(catalogue, 1000, 20)
    catalogue.close()

    def open_and_look(name: str) -> None:
        catalogue = Catalogue.open(database_url(tmp_path / name))
        assert len(catalogue.all_block_refs()) == (20_000 if name == "full" else 0)
        catalogue.documents()
        catalogue.close()

    empty, full = fastest(lambda: open_and_look("empty")), fastest(lambda: open_and_look("full"))
    assert full < empty + 0.5, f"{full:.3f} s against {empty:.3f} s"


@sqlite_only
@pytest.mark.parametrize("num_blocks", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_document_of_very_many_blocks_is_deleted_in_seconds(home, num_blocks):
    catalogue, _ = home
    large, small = fill(catalogue, 1, num_blocks)[0], ""
    started = time.monotonic()
    deleted = catalogue.delete_documents([large, small])
    seconds = time.monotonic() - started
    assert deleted.num_blocks == num_blocks and deleted.shards == (large,)
    assert catalogue.counting_problems() == []
    assert seconds < num_blocks / 10_000, f"{seconds:.1f} s"
    assert os.path.getsize(catalogue.database.path) > 0
