"""Connections to the catalogue."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from storage.catalogue import Catalogue
from storage.catalogue.database import Database
from storage.properties import condition
from tests.storage.stored import FINGERPRINT, new_document, sqlite_only

READERS = 40


def test_readers_do_not_wait_for_each_other_however_many_there_are(catalogue: Catalogue) -> None:
    all_read = threading.Barrier(READERS)

    def read(_number: int) -> int:
        with catalogue._database.read() as connection:
            all_read.wait(20)
            return connection.exec_driver_sql("SELECT COUNT(*) FROM documents").scalar_one()

    with ThreadPoolExecutor(READERS) as threads:
        assert list(threads.map(read, range(READERS))) == [0] * READERS


@pytest.mark.parametrize("url", ["/home/me/cairn.sqlite3", "", "postgresql://me:secret@host:port/cairn"])
def test_what_is_no_url_is_refused_without_being_told(url: str) -> None:
    with pytest.raises(ValueError, match="CAIRN_DATABASE_URL") as refused:
        Database(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["postgresql://me:secret@host/cairn", "postgresql://me@host/cairn?password=secret"])
def test_a_password_is_not_told_wherever_it_stands_in_the_url(url: str) -> None:
    database = Database(url)
    assert "secret" not in database.place and "secret" in str(
        database.engine.dialect.create_connect_args(database.engine.url)
    )


@sqlite_only
@pytest.mark.parametrize("folder", ["what?", "100 %41#"])
def test_a_catalogue_lies_in_its_folder_whatever_that_is_called(tmp_path: Path, folder: str) -> None:
    home = tmp_path / folder
    home.mkdir()
    Catalogue.open(home / "cairn.sqlite3", home).close()
    assert (home / "cairn.sqlite3").is_file() and list(tmp_path.iterdir()) == [home]


@pytest.mark.parametrize("where", ["title~über", "title=ÜBER ÄNDERUNGEN", "title~Straße", "source~ЕЖЕГОДНЫЙ"])
def test_titles_and_sources_are_compared_without_regard_to_case_in_any_language(
    catalogue: Catalogue, where: str
) -> None:
    catalogue.put_fingerprint(FINGERPRINT)
    for seed, title in enumerate(("Über Änderungen", "Eine lange Straße")):
        catalogue.add_document(replace(new_document(seed), title=title, source="Ежегодный отчёт.pdf"))
    found = catalogue.documents_where([condition(where)])
    assert len(found) == (2 if where.startswith("source") else 1)
