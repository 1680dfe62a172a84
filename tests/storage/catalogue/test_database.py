"""Connections to the catalogue."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from storage.catalogue import Catalogue

READERS = 40


def test_readers_do_not_wait_for_each_other_however_many_there_are(catalogue: Catalogue) -> None:
    all_read = threading.Barrier(READERS)

    def read(_number: int) -> int:
        with catalogue._database.read() as connection:
            all_read.wait(20)
            return connection.exec_driver_sql("SELECT COUNT(*) FROM documents").scalar_one()

    with ThreadPoolExecutor(READERS) as threads:
        assert list(threads.map(read, range(READERS))) == [0] * READERS
