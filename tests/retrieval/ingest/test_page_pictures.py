"""Pictures of pages: kept once drawn, also where several draw the same one, and only while the disk has room."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from retrieval import documents
from retrieval.ingest import file_store
from retrieval.library import Library

PICTURE = b"\x89PNG and so on"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pages that were drawn; how, does not matter here."""
    drawn: list[int] = []

    def render(_path: Path, page: int, **_how: object) -> bytes:
        drawn.append(page)
        return PICTURE

    monkeypatch.setattr(documents, "render_page", render)
    return drawn


def test_the_same_page_can_be_drawn_for_several_people_at_once(
    library: Library, three: dict[str, str], drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    both_written, write = threading.Barrier(2), Path.write_bytes

    def written(path: Path, content: bytes) -> int:
        length = write(path, content)
        both_written.wait(30)
        return length

    monkeypatch.setattr(Path, "write_bytes", written)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: library.documents.page_image(three["fox"], 1), range(2)))
    assert found == [PICTURE] * 2 and library.documents.page_image(three["fox"], 1) == PICTURE
    assert drawn == [0, 0]


def test_pictures_are_not_kept_where_they_would_fill_the_disk(
    library: Library, three: dict[str, str], drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_store, "free_bytes", lambda _workspace: 500_000_000)
    assert library.documents.page_image(three["fox"], 1) == library.documents.page_image(three["fox"], 1) == PICTURE
    assert drawn == [0, 0]
    monkeypatch.setattr(file_store, "free_bytes", lambda _workspace: 5_000_000_000)
    assert library.documents.page_image(three["fox"], 1) == library.documents.page_image(three["fox"], 1) == PICTURE
    assert drawn == [0, 0, 0]
