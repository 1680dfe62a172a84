"""Notifications: other processes learn of what one writes; it gets none of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from storage.catalogue import Catalogue, database
from storage.catalogue.database import Notifications
from storage.catalogue.shared_values import CatalogueValues
from tests.storage.stored import FINGERPRINT, open_home

HEARD_SECONDS = 20.0  # far more than it takes


@contextmanager
def opened(tmp_path: Path) -> Iterator[tuple[Catalogue, Notifications]]:
    """As another process has it: with a connection and a name of its own."""
    catalogue, _ = open_home(tmp_path)
    notifications = Notifications(catalogue.database)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "LOOK_SECONDS", 0.01)
        notifications.wait()  # whatever was before
        notifications.wait()
    yield catalogue, notifications
    notifications.close()
    notifications.wait()
    catalogue.close()


@pytest.fixture
def two(
    home: object, tmp_path: Path
) -> Iterator[tuple[tuple[Catalogue, Notifications], tuple[Catalogue, Notifications]]]:
    with ExitStack() as stack:
        yield stack.enter_context(opened(tmp_path)), stack.enter_context(opened(tmp_path))


def received_by(notifications: Notifications) -> list[str]:
    until = time.monotonic() + HEARD_SECONDS
    while time.monotonic() < until:
        if received := notifications.wait():
            return received
    return []


def test_a_write_notifies_others_and_not_oneself(two):
    (one, for_one), (_, for_two) = two
    one.create_collection("Water")
    assert received_by(for_two) == [""]
    assert for_one.wait() == [] and for_two.wait() == []


def test_what_nobody_sees_notifies_nobody(two):
    (one, _), (_, notifications) = two
    one.put_fingerprint(FINGERPRINT)
    CatalogueValues(one).put("session", "a", "1", seconds=60)
    one.ensure_conversation("c" * 32, "A title")
    assert notifications.wait() == []


def test_a_write_that_fails_notifies_nobody(two):
    (one, _), (_, notifications) = two
    with pytest.raises(RuntimeError), one.database.write():
        raise RuntimeError("half way")
    assert notifications.wait() == []


def test_servers_of_postgresql_send_each_other_messages(two):
    (one, own), (_, notifications) = two
    if one.database.is_sqlite:
        pytest.skip("processes look into SQLite's file; nobody sends anything")
    with one.database.write(in_turn=False) as connection:
        one.database.announce(connection, "stop this")
    assert received_by(notifications) == ["stop this"] and own.wait() == []


def test_after_a_lost_connection_there_may_have_been_changes(two):
    (one, _), (_, notifications) = two
    if one.database.is_sqlite:
        pytest.skip("processes look into SQLite's file; nobody sends anything")
    with one.database.write() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
        )
    assert received_by(notifications) == [""], "whatever came meanwhile"
    assert received_by(notifications) == [""], "it listens again"
    one.create_collection("Water")
    assert received_by(notifications) == [""]
