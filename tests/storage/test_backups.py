"""The catalogue is copied when something that writes starts; the copies are sound, few, and of different days."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from storage.backups import keep_backup, keep_backup_meanwhile, kept_backups
from storage.catalogue.database import Database
from storage.errors import CatalogueDamaged
from tests.storage.stored import add_ready, open_home, sqlite_only

pytestmark = sqlite_only
DAY = 24 * 3600


def dated(path: Path, days_ago: int) -> Path:
    """As if it had been made then."""
    when = time.time() - days_ago * DAY
    stamp = time.strftime("%Y%m%dT%H%M%S000000", time.gmtime(when))
    named = path.rename(path.with_name(f"cairn-{stamp}.sqlite3"))
    os.utime(named, (when, when))
    return named


def test_a_copy_is_made_while_others_write_and_holds_everything(home):
    catalogue, store = home
    document = add_ready(catalogue, store)
    with closing(sqlite3.connect(catalogue.database.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE documents SET title = 'not committed'")
        made = keep_backup(catalogue.database)
    assert made is not None and made.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(made)) as copy:
        assert copy.execute("SELECT id, title FROM documents").fetchall() == [(document.id, document.title)]
    assert [path.name for path in made.parent.iterdir()] == [made.name]


def test_an_unchanged_catalogue_is_not_copied_again_and_a_changed_one_is(home):
    catalogue, _ = home
    first = keep_backup(catalogue.database)
    assert first is not None and keep_backup(catalogue.database) is None
    time.sleep(0.02)
    catalogue.create_collection("Reports")
    second = keep_backup(catalogue.database)
    assert second is not None and kept_backups(catalogue.database.path) == [second], "one for each day"


def test_one_copy_of_each_of_the_last_days_is_kept(home):
    catalogue, _ = home
    older = [dated(keep_backup(catalogue.database), days) for days in (40, 9, 2, 1)]
    made = keep_backup(catalogue.database)
    assert kept_backups(catalogue.database.path) == [*older[-2:], made]


def test_copies_of_a_catalogue_with_a_like_name_are_not_taken_for_its_own(home):
    catalogue, _ = home
    made = dated(keep_backup(catalogue.database), 9)
    others = made.rename(made.with_name(made.name.replace("cairn-", "cairn-2-")))
    for days in (3, 2, 1, 0):
        dated(keep_backup(catalogue.database), days)
    assert others.exists() and others not in kept_backups(catalogue.database.path)


def test_a_clock_that_was_ahead_does_not_make_the_newest_copy_go(home):
    catalogue, _ = home
    for days in (-300, -200, -100):
        dated(keep_backup(catalogue.database), days)
    made = keep_backup(catalogue.database)
    assert made in kept_backups(catalogue.database.path)


def test_a_damaged_catalogue_replaces_no_copy(tmp_path):
    catalogue, store = open_home(tmp_path)
    for seed in range(20):
        add_ready(catalogue, store, seed)
    good = keep_backup(catalogue.database)
    catalogue.close()
    path = tmp_path / "cairn.sqlite3"
    content = bytearray(path.read_bytes())
    content[20 * 4096 : 40 * 4096] = b"\xa5" * (20 * 4096)
    path.write_bytes(content)
    database = Database(f"sqlite:///{path}")
    with pytest.raises(CatalogueDamaged):
        keep_backup(database)
    assert kept_backups(path) == [good] and [each.name for each in good.parent.iterdir()] == [good.name]
    database.close()


def test_a_copy_that_cannot_be_made_is_a_line_in_the_log(home, monkeypatch, caplog):
    catalogue, _ = home
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    keep_backup_meanwhile(catalogue.database).join()
    assert "not backed up" in caplog.text and not kept_backups(catalogue.database.path)
    assert not list((catalogue.database.path.parent / "backups").iterdir())
