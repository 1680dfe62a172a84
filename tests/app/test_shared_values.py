"""Values of one process and those that servers share behave alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from retrieval.replicas import CatalogueValues
from storage.catalogue import Catalogue
from storage.catalogue.database import Database
from tests.app.own_values import OwnValues


@pytest.fixture(params=["own", "sqlite", "postgresql"])
def values(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CatalogueValues]:
    if request.param == "own":
        yield OwnValues()
        return
    databases = request.getfixturevalue("postgresql") if request.param == "postgresql" else None
    catalogue = Catalogue.open(databases.take() if databases else f"sqlite:///{tmp_path / 'catalogue.sqlite3'}")
    yield CatalogueValues(catalogue)
    catalogue.close()
    if databases:
        databases.give_back()


def test_a_value_is_kept_for_its_time_and_taken_once(values: CatalogueValues) -> None:
    values.put("session", "a", "1", seconds=60)
    values.put("session", "b", "2", seconds=0)
    values.put("upload", "a", "3", seconds=60)
    assert values.read("session", ["a", "b", "c"])[0] == {"a": "1"} and values.count("session") == 1
    values.put("session", "a", "4", seconds=60)
    with ThreadPoolExecutor(4) as threads:
        taken = list(threads.map(lambda _: values.take("session", "a"), range(4)))
    assert sorted(taken, key=str) == ["4", None, None, None]
    assert values.read("upload", ["a"])[0] == {"a": "3"}


def test_of_one_owner_the_newest_are_kept_and_others_are_left_alone(values: CatalogueValues) -> None:
    values.put("session", "ben", "x", seconds=60, owner="ben", most=2)
    for number in range(4):
        values.put("session", str(number), "x", seconds=60 + number, owner="ann", most=2)
    assert set(values.read("session", ["ben", "0", "1", "2", "3"])[0]) == {"ben", "2", "3"}


def test_changes_of_one_value_come_one_after_the_other(values: CatalogueValues) -> None:
    def more(kept: dict[str, str], _now: float) -> dict[str, tuple[str, float]]:
        return {"a": (json.dumps(json.loads(kept.get("a", "0")) + 1), 60)}

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: values.change("attempt", ["a"], more), range(12)))  # type: ignore[arg-type]
    assert values.read("attempt", ["a"])[0] == {"a": "12"}


def test_a_change_that_is_refused_changes_nothing(values: CatalogueValues) -> None:
    def refuse(_kept: object, _now: float) -> dict[str, tuple[str, float]]:
        raise ValueError("no")

    values.put("attempt", "a", "1", seconds=60)
    with pytest.raises(ValueError, match="no"):
        values.change("attempt", ["a"], refuse)
    assert values.read("attempt", ["a"])[0] == {"a": "1"}


def test_what_has_ended_leaves_the_catalogue(tmp_path: Path) -> None:
    catalogue = Catalogue.open(f"sqlite:///{tmp_path / 'catalogue.sqlite3'}")
    values = CatalogueValues(catalogue)
    for number in range(3):
        values.put("session", str(number), "secret", seconds=0)
    values.put("session", "last", "x", seconds=60)
    catalogue.close()
    database = Database(f"sqlite:///{tmp_path / 'catalogue.sqlite3'}")
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT key FROM shared_values").scalars().all() == ["last"]
    database.close()
