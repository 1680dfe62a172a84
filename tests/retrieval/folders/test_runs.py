"""Runs over a followed folder: what is read, what is not, and what becomes of documents."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retrieval.documents import Documents
from retrieval.errors import InvalidRequest, NotFound
from retrieval.folders import sync as folder_run
from retrieval.library import Library
from retrieval.types.records import FileChange, FolderReport, FollowOptions
from tests.retrieval.conftest import SHARD_BYTES, prose
from tests.tiny_model import tiny_model

LONG_AGO = time.time() - 1000


def write(folder: Path, name: str, text: str, at: float = LONG_AGO) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (at, at))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.txt", "b.txt", "deep/c.md"):
        write(tmp_path / "docs", name, prose(len(name) + ord(name[-5]), 200))
    return tmp_path / "docs"


class Follower:
    """Runs over one folder, as `cairn sync` does; `queued` as a server does."""

    def __init__(self, library: Library, folder: Path, removed: str = "delete"):
        self.library, self.jobs_read = library, 0
        self.id = library.folders.follow(folder, removed=removed).id
        self.report: FolderReport | None = None

    def __call__(self, *, queued: bool = False, **options: object) -> dict[str, FileChange]:
        found: dict[str, FileChange] = {}
        chosen = FollowOptions(settle_seconds=0.05, **options)  # type: ignore[arg-type]
        for one in self.library.folders.run(self.id, read=None if queued else self._read, options=chosen):
            if isinstance(one, FolderReport):
                self.report = one
            else:
                found[one.source] = one
        return found

    def _read(self, job):
        self.jobs_read += 1
        return self.library.jobs.run(job.id)

    def changes(self, **options: object) -> dict[str, str]:
        return {source: one.change for source, one in self(**options).items()}  # type: ignore[arg-type]

    @property
    def sources(self) -> list[str]:
        return sorted(one.source for one in self.library.documents.list())


@pytest.fixture
def follow(library: Library, folder: Path) -> Follower:
    follower = Follower(library, folder)
    assert set(follower.changes().values()) == {"added"}
    return follower


def test_what_did_not_change_is_not_opened_again(follow, monkeypatch):
    monkeypatch.setattr(folder_run, "sha256_of", lambda path: pytest.fail(f"{path} was opened"))
    assert follow.changes() == {"a.txt": "same", "b.txt": "same", "deep/c.md": "same"}
    assert follow.jobs_read == 3
    assert follow.report.counts == {"same": 3}


def test_new_changed_moved_touched_and_removed_files_are_told_apart(follow, folder):
    before = {one.source: one.id for one in follow.library.documents.list()}
    (folder / "a.txt").rename(folder / "deep" / "moved.txt")
    (folder / "b.txt").unlink()
    write(folder, "deep/c.md", prose(77, 200), at=LONG_AGO + 1)
    write(folder, "d.txt", prose(78, 200))
    found = follow()
    assert {source: one.change for source, one in found.items()} == {
        "b.txt": "removed",
        "d.txt": "added",
        "deep/c.md": "changed",
        "deep/moved.txt": "moved",
    }
    moved = found["deep/moved.txt"]
    assert (moved.document_id, moved.previous) == (before["a.txt"], "a.txt")
    assert follow.sources == ["d.txt", "deep/c.md", "deep/moved.txt"]
    assert found["deep/c.md"].document_id not in before.values()
    assert follow.jobs_read == 5
    os.utime(folder / "d.txt")
    assert follow.changes()["d.txt"] == "same"
    assert follow.jobs_read == 5


def test_content_decides_where_size_and_time_were_kept(follow, folder):
    size = (folder / "a.txt").stat().st_size
    write(folder, "a.txt", "x" * size)
    assert follow.changes()["a.txt"] == "changed"


def test_a_removed_file_may_leave_its_document_behind(library, folder):
    follow = Follower(library, folder, removed="keep")
    follow()
    (folder / "a.txt").unlink()
    assert follow.changes() == {"a.txt": "removed", "b.txt": "same", "deep/c.md": "same"}
    assert "a.txt" in follow.sources
    assert "a.txt" not in follow.changes()


def test_files_that_trade_names_are_not_read_again(follow, folder):
    before = {one.source: one.id for one in follow.library.documents.list()}
    (folder / "a.txt").rename(folder / "t")
    (folder / "b.txt").rename(folder / "a.txt")
    (folder / "t").rename(folder / "b.txt")
    found = follow()
    assert found["a.txt"].document_id == before["b.txt"] and found["b.txt"].document_id == before["a.txt"]
    assert follow.jobs_read == 3
    assert {one.id: one.source for one in follow.library.documents.list()}[before["a.txt"]] == "b.txt"


def test_a_copy_shares_its_document_which_goes_with_the_last_of_them(follow, folder):
    write(folder, "copy.txt", (folder / "a.txt").read_text())
    found = follow()
    assert found["copy.txt"].document_id == found["a.txt"].document_id
    (folder / "a.txt").unlink()
    follow()
    assert len(follow.sources) == 3
    (folder / "copy.txt").unlink()
    follow()
    assert follow.sources == ["b.txt", "deep/c.md"]


def test_the_old_document_answers_until_the_new_one_is_complete(follow, folder):
    (old,) = (one.id for one in follow.library.documents.list() if one.source == "a.txt")
    write(folder, "a.txt", prose(91, 400), at=LONG_AGO + 1)
    assert follow(queued=True)["a.txt"].change == "reading"
    assert follow.library.documents.get(old).state == "ready"
    assert follow(queued=True)["a.txt"].change == "reading"
    assert follow.library.jobs.run_next().state == "done"
    found = follow(queued=True)["a.txt"]
    assert found.change == "changed" and found.document_id != old
    assert follow.sources == ["a.txt", "b.txt", "deep/c.md"]


def test_a_file_that_changes_while_it_waits_in_the_queue_is_read_once_more(follow, folder):
    write(folder, "a.txt", prose(91, 400), at=LONG_AGO + 1)
    first = follow(queued=True)["a.txt"].document_id
    write(folder, "a.txt", prose(92, 400), at=LONG_AGO + 2)
    second = follow(queued=True)["a.txt"].document_id
    assert first != second
    follow.library.jobs.run_next()
    assert follow(queued=True)["a.txt"].document_id == second
    assert follow.library.jobs.num_active() == 0 and len(follow.sources) == 3


def test_a_file_that_is_being_written_is_left_for_the_next_run(follow, folder, monkeypatch):
    path = write(folder, "growing.txt", prose(5, 100), at=time.time())
    sleep = time.sleep

    def meanwhile(seconds: float) -> None:
        path.write_text(prose(5, 200))
        sleep(seconds)

    monkeypatch.setattr(folder_run.time, "sleep", meanwhile)
    assert follow.changes()["growing.txt"] == "later"
    monkeypatch.setattr(folder_run.time, "sleep", sleep)
    assert follow.changes()["growing.txt"] == "added"


def test_a_file_that_changes_between_looking_and_reading_is_left_for_the_next_run(follow, folder, monkeypatch):
    path, hash_of = write(folder, "torn.txt", prose(5, 100)), folder_run.sha256_of

    def then_written(path: Path) -> str:
        found = hash_of(path)
        stamp = path.stat()
        path.write_text(prose(6, 100))
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(folder_run, "sha256_of", then_written)
        patch.setattr(folder_run, "stamp_of", lambda path: f"{path.stat().st_size}")
        patch.setattr(folder_run.FolderRun, "_content", lambda run, one: then_written(path))
        assert follow.changes()["torn.txt"] == "later"
    assert "torn.txt" not in follow.sources and not list((follow.library.folders._home / "files").glob(".*"))
    assert follow.changes()["torn.txt"] == "added"


def test_what_is_not_followed_is_said_with_its_reason(follow, folder):
    write(folder, ".hidden.txt", "x")
    write(folder, ".git/inside.txt", "x")
    write(folder, "program.exe", "x")
    (folder / "loop").symlink_to(folder)
    (folder / "link.txt").symlink_to(folder / "a.txt")
    os.mkfifo(folder / "pipe.txt")
    found = {source: one.reason for source, one in follow().items() if one.change == "skipped"}
    assert found == {
        ".hidden.txt": "hidden",
        ".git": "hidden",
        "program.exe": ".exe cannot be read",
        "loop": "a symbolic link, which is not followed",
        "link.txt": "a symbolic link, which is not followed",
        "pipe.txt": "not an ordinary file",
    }


def test_a_file_that_cannot_be_read_leaves_the_document_as_it_was(follow, folder):
    text = (folder / "a.txt").read_text()
    write(folder, "a.txt", "\0\1\2" * 50, at=LONG_AGO + 1)
    found = follow()["a.txt"]
    assert found.change == "failed" and found.reason and "a.txt" in follow.sources
    assert follow(queued=True)["a.txt"].change == "failed"
    assert follow.report.problems[0][0] == "a.txt"
    write(folder, "a.txt", text, at=LONG_AGO + 2)
    assert follow.changes()["a.txt"] == "same"
    assert len(follow.library.documents.list()) == 3 and follow.library.jobs.list(active_only=True) == []


def test_what_was_deleted_in_the_library_comes_back_only_when_asked_for(follow, folder):
    (gone,) = (one.id for one in follow.library.documents.list() if one.source == "a.txt")
    follow.library.documents.delete([gone])
    assert follow.changes()["a.txt"] == "skipped"
    assert follow.changes(again=True)["a.txt"] == "added"


def test_a_disk_that_is_not_mounted_deletes_nothing(follow, folder):
    empty = folder.with_name("elsewhere")
    folder.rename(empty)
    with pytest.raises(InvalidRequest, match="There is no folder"):
        follow()
    folder.mkdir()
    with pytest.raises(InvalidRequest, match="mounted"):
        follow()
    assert len(follow.sources) == 3 and "mounted" in follow.library.folders.list()[0].problem
    assert set(follow.changes(emptied=True).values()) == {"removed"}
    assert follow.sources == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_subfolder_that_cannot_be_listed_deletes_nothing(follow, folder):
    (folder / "deep").chmod(0)
    follow()
    (folder / "deep").chmod(0o700)
    assert len(follow.sources) == 3


def test_a_file_that_cannot_be_looked_at_keeps_its_document(follow, folder, monkeypatch):
    def refused(path: Path) -> os.stat_result:
        if path == folder / "b.txt":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return lstat(path)

    lstat = Path.lstat
    monkeypatch.setattr(Path, "lstat", refused)
    found = follow()
    assert found["b.txt"].change == "skipped" and "Input/output error" in found["b.txt"].reason
    assert len(follow.sources) == 3


def test_a_file_from_before_1970_is_read(follow, folder):
    write(folder, "old.txt", prose(7, 50), at=-86_400)
    assert follow()["old.txt"].change == "added"


def test_a_folder_that_is_not_followed_is_not_found(library):
    with pytest.raises(NotFound, match="folder"):
        list(library.folders.run("nowhere"))


def test_a_new_reading_stays_in_the_collection_of_the_old_one(follow, folder):
    (document,) = (one for one in follow.library.documents.list() if one.source == "a.txt")
    shelf = follow.library.collections.create("Shelf")
    follow.library.documents.move(document.id, shelf.id)
    write(folder, "a.txt", prose(91, 200), at=LONG_AGO + 1)
    new = follow()["a.txt"].document_id
    assert follow.library.documents.get(new).collection_id == shelf.id


def test_the_librarys_own_folder_is_not_followed(library, tmp_path):
    for path in (tmp_path, tmp_path / "home", tmp_path / "home" / "files"):
        with pytest.raises(InvalidRequest, match="library itself"):
            library.folders.follow(path)


@pytest.mark.parametrize("path", ["x" * 4000, "a\0b", "~nobody-here/reports"])
def test_what_can_be_no_path_is_no_folder(library, path):
    with pytest.raises(InvalidRequest, match="There is no folder"):
        library.folders.follow(Path(path))


def test_two_runs_over_one_folder_do_not_meet(follow):
    first = follow.library.folders.run(follow.id)
    next(first)
    with pytest.raises(InvalidRequest, match="Another run"):
        follow()
    first.close()  # type: ignore[attr-defined]
    follow()


@pytest.mark.parametrize("read_to_its_end", [False, True])
def test_a_file_that_moves_while_it_is_read_gives_its_document_its_new_name(library, folder, read_to_its_end):
    """As after a kill: the file is known with what is being made of it, under the old name."""
    follow = Follower(library, folder)
    for change in library.folders.run(follow.id):
        if isinstance(change, FileChange) and read_to_its_end:
            (job,) = (one for one in library.jobs.list() if one.document_id == change.document_id)
            library.jobs.run(job.id)
    (folder / "a.txt").rename(folder / "deep" / "moved.txt")
    follow()
    assert follow.sources == ["b.txt", "deep/c.md", "deep/moved.txt"]
    assert {one.title for one in library.documents.list()} == {"b", "c", "moved"}
    assert set(follow.changes().values()) == {"same"}


def test_a_file_that_changed_twice_since_a_kill_keeps_one_document(follow, folder):
    """The second content was read when the third was written: nobody had noted yet that it was complete."""
    write(folder, "a.txt", prose(61, 200), at=LONG_AGO + 1)
    assert follow.changes(queued=True)["a.txt"] == "reading"
    (job,) = follow.library.jobs.list(active_only=True)
    follow.library.jobs.run(job.id)
    write(folder, "a.txt", prose(62, 200), at=LONG_AGO + 2)
    assert follow.changes()["a.txt"] == "changed"
    assert follow.sources == ["a.txt", "b.txt", "deep/c.md"]
    assert follow.changes()["a.txt"] == "same"


def test_a_kill_right_after_a_file_was_handed_in_leaves_nothing_behind(library, folder, monkeypatch):
    follow = Follower(library, folder)
    submit = Documents.submit

    def killed(self: Documents, *args: Any, **kwargs: Any) -> None:
        submit(self, *args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Documents, "submit", killed)
        follow()
    write(folder, "a.txt", prose(63, 200), at=LONG_AGO + 1)
    follow()
    assert follow.sources == ["a.txt", "b.txt", "deep/c.md"]
    assert not library.jobs.list(active_only=True)


def _sync(home: Path, folder: Path) -> None:
    model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
    with Library.open(home, model, shard_bytes=SHARD_BYTES) as library:
        Follower(library, folder)()


@pytest.mark.files_only  # processes of its own, which know of no bucket
def test_no_kill_loses_or_doubles_a_document(folder: Path, tmp_path: Path, open_library: Callable[..., Library]):
    kills = random.Random(7)
    for number in range(8):
        write(folder, f"more/{number}.txt", prose(50 + number, 600))
    fork = multiprocessing.get_context("fork")
    for number in range(4):
        worker = fork.Process(target=_sync, args=(tmp_path / "home", folder))
        worker.start()
        time.sleep(kills.uniform(0.3, 1.2))
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        write(folder, f"more/{number}.txt", prose(150 + number, 600), at=LONG_AGO + number)
        (folder / f"more/{number + 4}.txt").rename(folder / f"more/moved-{number}.txt")
    follow = Follower(open_library(), folder)
    follow()
    wanted = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert follow.sources == wanted
    assert set(follow.changes().values()) == {"same"}
    assert all(one.state == "ready" for one in follow.library.documents.list())
    assert follow.library.maintenance.verify().ok
