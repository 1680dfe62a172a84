"""Pages count from 1 for people and programs, and from 0 only in LangChain's metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from app import assembly
from app.cli import cli
from retrieval.langchain import LandmarkRetriever
from retrieval.library import Library
from tests.app.api_client import opened
from tests.app.serving import settings_for
from tests.retrieval.pdf_maker import Sheet, make_pdf
from tests.tiny_model import tiny_model

SAID = ("The fox sleeps in the den.", "The wolf hunts at night.", "The bear eats fish at noon.")
QUERY = "What does the wolf do?"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """Three pages with a sentence each."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "animals.pdf").write_bytes(make_pdf([Sheet([(72, 700, 12, text)]) for text in SAID]))
    with Library.open(folder / "home", tiny_model(block_size=16)) as library:
        library.jobs.run(library.documents.submit(folder / "animals.pdf").id)
        yield library


@pytest.fixture
def client(library: Library, tmp_path: Path) -> Iterator[TestClient]:
    yield from opened(library, settings_for(tmp_path))


def cairn(monkeypatch: pytest.MonkeyPatch, library: Library, *words: object) -> Any:
    monkeypatch.setattr(assembly, "open_library", lambda _settings: nullcontext(library))
    result = CliRunner().invoke(cli, [*map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def mcp_search(client: TestClient, k: int) -> list[dict[str, Any]]:
    response = client.post(
        "/mcp/",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call",
              "params": {"name": "search", "arguments": {"query": QUERY, "k": k}}},
        headers={"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"},
    )  # fmt: skip
    return [json.loads(part["text"]) for part in response.json()["result"]["content"]]


def test_every_way_in_names_the_same_pages(
    library: Library, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    passages = library.search(QUERY, 4)
    pages = [list(passage.pages) for passage in passages]
    boxed = [sorted({box.page for box in passage.boxes}) for passage in passages]
    assert {page for found in pages for page in found} == {1, 2, 3} and boxed == pages
    assert [list(map(str, found)) for found in pages] == [list(passage.page_labels) for passage in passages]

    over_http = client.post("/api/v1/search", json={"query": QUERY, "k": 4}).json()["passages"]
    assert [one["pages"] for one in over_http] == pages
    assert [sorted({box["page"] for block in one["blocks"] for box in block["boxes"]}) for one in over_http] == pages
    assert [one["pages"] for one in cairn(monkeypatch, library, "search", QUERY, "-k", 4)["passages"]] == pages
    assert [one["pages"] for one in mcp_search(client, 4)] == pages

    for found, document in zip(pages, LandmarkRetriever(library=library, k=4).invoke(QUERY), strict=True):
        said = document.metadata
        assert said["pages"] == [page - 1 for page in found] and said["page"] == found[0] - 1
        assert sorted({box["page"] for box in said["bboxes"]}) == said["pages"] and said["page_label"] == str(found[0])


def test_every_way_in_shows_the_same_page(
    library: Library, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (document,) = library.documents.list()
    for page, text in enumerate(SAID, 1):
        shown = library.documents.page_text(document.id, page)
        assert (shown.page, shown.label, shown.text.strip()) == (page, str(page), text)
        assert page in {box.page for block in shown.blocks for box in block.boxes}
        assert client.get(f"/api/v1/documents/{document.id}/pages/{page}").json() == shown.to_dict()
        assert cairn(monkeypatch, library, "show", document.id, "--page", page)["page"] == shown.to_dict()
        image = library.documents.page_image(document.id, page, width_px=600)
        assert client.get(f"/api/v1/documents/{document.id}/pages/{page}.png?width_px=600").content == image
    assert len({library.documents.page_image(document.id, page, width_px=600) for page in (1, 2, 3)}) == 3
