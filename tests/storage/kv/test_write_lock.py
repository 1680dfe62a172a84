"""A shard between its first byte and its commit is never garbage, however long its writer is stopped there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from storage.blobs.files import write_durably
from storage.kv import lock
from storage.kv.lock import nobody_writing, writing
from storage.maintenance import orphans
from tests.storage.stored import add_ready, collect_garbage, new_blocks, new_document, write_shard

ROOT = Path(__file__).resolve().parents[3]
WRITER = """
import sys, time
from pathlib import Path
from storage.kv.lock import writing
with writing(Path(sys.argv[1])):
    print("holds", flush=True)
    time.sleep(600)
"""


def test_writers_share_the_lock_and_the_collector_has_it_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 0.05)
    kv = tmp_path / "kv"
    with ExitStack() as both:
        both.enter_context(writing(kv))
        both.enter_context(writing(kv))
        with nobody_writing(kv) as alone:
            assert not alone
    with nobody_writing(kv) as alone:
        assert alone
        with nobody_writing(kv) as too:
            assert not too


def test_a_writer_waits_until_the_collector_has_listed_its_files(tmp_path):
    kv, order = tmp_path / "kv", []

    def write():
        with writing(kv):
            order.append("writer")

    with nobody_writing(kv):
        thread = threading.Thread(target=write)
        thread.start()
        thread.join(0.1)
        order.append("collector")
    thread.join(10)
    assert order == ["collector", "writer"]


def test_a_shard_whose_commit_is_to_come_is_no_orphan(home, monkeypatch):
    catalogue, store = home
    document = catalogue.add_document(new_document(1)).document
    lost = write_shard(store, group="gone")
    with writing(store.folder):
        shard = write_shard(store, group=document.id)
        with monkeypatch.context() as impatient:
            impatient.setattr(lock, "PATIENCE_SECONDS", 0.05)
            assert orphans(catalogue, store.folder, store.blobs) == []
        thread = threading.Thread(target=collect_garbage, args=(catalogue, store.folder.parent))
        thread.start()
        thread.join(0.2)
        assert (store.folder / shard.name).exists() and thread.is_alive(), "it waits for the commit"
        catalogue.commit_shard(document.id, shard, new_blocks(3))
    thread.join(10)
    assert store.files() == {shard.name} and lost.name not in store.files()


def test_a_stopped_writer_of_another_process_keeps_its_shards_and_a_killed_one_none(home, monkeypatch):
    catalogue, store = home
    kept = {shard.name for shard in catalogue.shards(add_ready(catalogue, store).id)}
    command = [sys.executable, "-c", WRITER, str(store.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as writer:
        try:
            assert writer.stdout is not None and writer.stdout.readline() == "holds\n"
            half = write_shard(store, group="its document").name  # what it wrote before it was stopped
            os.kill(writer.pid, signal.SIGSTOP)
            monkeypatch.setattr(lock, "PATIENCE_SECONDS", 0.1)
            assert orphans(catalogue, store.folder, store.blobs) == []
        finally:
            writer.kill()
    assert orphans(catalogue, store.folder, store.blobs) == [half]
    collect_garbage(catalogue, store.folder.parent)
    assert store.files() == kept


def test_a_folder_that_is_tidied_away_under_a_writer_is_made_again(tmp_path, monkeypatch):
    folder, plain, removed = tmp_path / "document", os.open, []

    def open_(path, *arguments, **settings):
        if Path(path).parent == folder and not removed:
            removed.append(folder.rmdir())
        return plain(path, *arguments, **settings)

    monkeypatch.setattr(os, "open", open_)
    write_durably(folder / "a.kv", memoryview(b"bytes"))
    assert removed and (folder / "a.kv").read_bytes() == b"bytes"
