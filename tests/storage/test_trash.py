"""What was swept can be taken back until its time of grace is over, whatever the clock does."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from storage.trash import Trash

DAY = 24 * 3600.0


@pytest.fixture
def orphan(tmp_path: Path) -> Path:
    path = tmp_path / "kv" / "gone" / "a.kv"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"memory")
    return path


def test_what_is_swept_lies_in_the_trash_under_its_own_path(tmp_path, orphan):
    trash = Trash(tmp_path)
    assert trash.take([orphan, tmp_path / "files" / "not there"]) == [orphan]
    assert not orphan.parent.exists() and (tmp_path / "kv").is_dir()
    (batch,) = trash.folder.iterdir()
    assert (batch / "kv" / "gone" / "a.kv").read_bytes() == b"memory"
    assert trash.folder.stat().st_mode & 0o077 == 0


def test_nothing_to_sweep_leaves_no_trace(tmp_path):
    assert Trash(tmp_path).take([]) == [] and not (tmp_path / "trash").exists()


def test_the_trash_is_emptied_when_the_time_of_grace_is_over(tmp_path, orphan):
    trash = Trash(tmp_path)
    trash.take([orphan])
    assert trash.empty(7 * DAY) == 0 and list(trash.folder.iterdir())
    (batch,) = trash.folder.iterdir()
    os.utime(batch, (time.time() - 8 * DAY,) * 2)
    assert trash.empty(7 * DAY) == 6 and not list(trash.folder.iterdir())


def test_without_grace_the_trash_is_emptied_at_once(tmp_path, orphan):
    trash = Trash(tmp_path)
    trash.take([orphan])
    assert trash.empty(0) == 6 and not list(trash.folder.iterdir())


def test_a_clock_that_was_ahead_while_sweeping_does_not_keep_the_trash_for_ever(tmp_path, orphan):
    trash = Trash(tmp_path)
    trash.take([orphan])
    (batch,) = trash.folder.iterdir()
    os.utime(batch, (time.time() + 3650 * DAY,) * 2)
    assert trash.empty(7 * DAY) == 0
    assert abs(batch.stat().st_mtime - time.time()) < 60, "its time of grace begins now"


def test_a_trash_on_another_disk_is_filled_by_copying(tmp_path, orphan, monkeypatch):
    def other_disk(source, target, **_settings):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "rename", other_disk)
    Trash(tmp_path).take([orphan])
    assert [path.read_bytes() for path in tmp_path.rglob("a.kv")] == [b"memory"] and not orphan.exists()


def test_two_processes_may_empty_the_trash_at_once(tmp_path, orphan, monkeypatch):
    trash = Trash(tmp_path)
    trash.take([orphan])
    (first,) = trash.folder.iterdir()
    plain_stat = Path.stat

    def stat(self, **settings):
        if self == first:
            shutil.rmtree(first, ignore_errors=True)
        return plain_stat(self, **settings)

    monkeypatch.setattr(Path, "stat", stat)
    assert trash.empty(0) == 0 and not list(trash.folder.iterdir())
