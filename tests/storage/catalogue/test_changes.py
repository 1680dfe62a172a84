"""News: what one process writes, others learn of; nobody is told of what they did themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from storage.catalogue import Catalogue, database
from storage.catalogue.database import News
from tests.storage.stored import FINGERPRINT, open_home

HEARD_SECONDS = 20.0  # far more than it takes


@contextmanager
def opened(tmp_path: Path) -> Iterator[tuple[Catalogue, News]]:
    """As another process has it: with a connection and a name of its own."""
    catalogue, _ = open_home(tmp_path)
    news = News(catalogue.database)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "LOOK_SECONDS", 0.01)
        news.wait()  # whatever was before
        news.wait()
    yield catalogue, news
    news.close()
    news.wait()
    catalogue.close()


@pytest.fixture
def two(home: object, tmp_path: Path) -> Iterator[tuple[tuple[Catalogue, News], tuple[Catalogue, News]]]:
    with ExitStack() as stack:
        yield stack.enter_context(opened(tmp_path)), stack.enter_context(opened(tmp_path))


def heard(news: News) -> list[str]:
    until = time.monotonic() + HEARD_SECONDS
    while time.monotonic() < until:
        if came := news.wait():
            return came
    return []


def test_a_write_is_news_to_others_and_not_to_oneself(two):
    (one, ones_news), (_, twos_news) = two
    one.create_collection("Water")
    assert heard(twos_news) == [""]
    assert ones_news.wait() == [] and twos_news.wait() == []


def test_what_nobody_sees_is_no_news(two):
    (one, _), (_, news) = two
    one.put_fingerprint(FINGERPRINT)
    one.put_value("session", "a", "1", seconds=60)
    one.ensure_conversation("c" * 32, "A title")
    assert news.wait() == []


def test_a_write_that_fails_is_no_news(two):
    (one, _), (_, news) = two
    with pytest.raises(RuntimeError), one.database.write():
        raise RuntimeError("half way")
    assert news.wait() == []


def test_servers_of_postgresql_send_each_other_messages(two):
    (one, own), (_, news) = two
    if one.database.is_sqlite:
        pytest.skip("processes look into SQLite's file; nobody sends anything")
    with one.database.write(in_turn=False) as connection:
        one.database.announce(connection, "stop this")
    assert heard(news) == ["stop this"] and own.wait() == []


def test_after_a_lost_connection_there_may_have_been_news(two):
    (one, _), (_, news) = two
    if one.database.is_sqlite:
        pytest.skip("processes look into SQLite's file; nobody sends anything")
    with one.database.write() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
        )
    assert heard(news) == [""], "whatever came meanwhile"
    assert heard(news) == [""], "it listens again"
    one.create_collection("Water")
    assert heard(news) == [""]
