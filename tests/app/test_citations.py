"""Citations to take away: as text, BibTeX and CSL-JSON, of documents and of answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.exports import citations
from retrieval.library import Library
from retrieval.types.records import Document
from tests.app.cli_client import Commands, cairn
from tests.app.small_library import QUESTION, RESERVOIR, WALKS
from tests.retrieval.conftest import ask

SAID = {"author": ("Ann Lee", "Çelik, Ayşe"), "date": ("2024-01-31",), "language": ("en",), "keyword": ("dam", "lake")}


def document(**changes: object) -> Document:
    plain = {
        "id": "ab" * 16, "source": "dam.pdf", "title": "The 100% safe dam", "collection_id": None, "pages": 3,
        "tokens": 9, "blocks": 1, "size_bytes": 1, "state": "ready", "added_at": "", "content_hash": "", "kind": "pdf",
    }  # fmt: skip
    return Document.from_dict(plain | {"properties": SAID} | changes)


def test_each_format_says_what_is_known() -> None:
    assert citations.as_text([(document(), "xii")]) == (
        "Ann Lee, Çelik, Ayşe: The 100% safe dam. 2024-01-31. dam.pdf, page xii."
    )
    assert citations.as_bibtex([(document(), "3")]).splitlines() == [
        "@misc{lee2024safe,",
        "  title = {{The 100\\% safe dam}},",
        "  author = {{Ann Lee} and {Çelik, Ayşe}},",
        "  year = {2024},",
        "  date = {2024-01-31},",
        "  language = {en},",
        "  keywords = {dam, lake},",
        "  howpublished = {dam.pdf},",
        "  pages = {3},",
        "}",
    ]
    (item,) = json.loads(citations.as_csl([(document(), "3")]))
    assert item["issued"] == {"date-parts": [[2024, 1, 31]]} and item["author"][1] == {"literal": "Çelik, Ayşe"}
    assert (item["id"], item["page"], item["keyword"]) == ("lee2024safe", "3", "dam, lake")


def test_several_pages_are_pages() -> None:
    assert citations.as_text([(document(properties={}), "1, 2")]) == "The 100% safe dam. dam.pdf, pages 1, 2."


def test_what_is_not_known_is_left_out() -> None:
    bare = document(properties={})
    assert citations.as_text([(bare, "")]) == "The 100% safe dam. dam.pdf."
    assert citations.as_bibtex([(bare, "")]).splitlines()[1:] == [
        "  title = {{The 100\\% safe dam}},",
        "  howpublished = {dam.pdf},",
        "}",
    ]
    assert set(json.loads(citations.as_csl([(bare, "")]))[0]) == {"id", "type", "title", "source"}
    assert citations.key_of(document(properties={}, title="水")) == "documentabababab"
    assert citations.key_of(document(properties={"author": (",",)})) == "safe"


@pytest.mark.parametrize("hostile", ["}, evil = {", "a\\b", "{{{", "%\n@book{x,"])
def test_no_title_breaks_out_of_its_entry(hostile: str) -> None:
    """BibTeX counts every brace, also one behind a backslash."""
    text = citations.as_bibtex([(document(title=hostile.replace("\n", " "), properties={}), "")])
    assert text.count("{") == text.count("}") and "evil = {" not in text.replace("\\textbraceleft{", "(")


def test_documents_that_would_have_the_same_key_have_different_ones() -> None:
    years = [(document(title=f"Annual report {year}", properties={}), "") for year in (2023, 2024)]
    assert [item["id"] for item in json.loads(citations.as_csl(years))] == ["annual", "annual-2"]
    assert [line for line in citations.as_bibtex(years).splitlines() if "@" in line] == [
        "@misc{annual,",
        "@misc{annual-2,",
    ]


def test_an_answer_names_the_document_and_page_that_it_is_taken_from(client: TestClient, library: Library) -> None:
    (reservoir,) = (one.id for one in library.documents.list() if one.source == RESERVOIR)
    library.documents.set_properties(reservoir, {"author": ["Martha Lindqvist"], "date": ["1982"]})
    answer = ask(library, QUESTION, max_tokens=None)
    assert answer.passages[0].document_id == reservoir
    text = client.get(f"/api/v1/answers/{answer.id}/citations")
    assert text.text == "Martha Lindqvist: Handbook of the reservoir. 1982. reservoir.pdf, page 1."
    assert text.headers["content-type"].startswith("text/plain")
    assert client.get(f"/api/v1/answers/{answer.id}/citations?format=bibtex").text.startswith(
        "@misc{lindqvist1982handbook,"
    )
    csl = client.get(f"/api/v1/documents/{reservoir}/citation?format=csl-json&page=iv").json()
    assert csl[0]["page"] == "iv"
    assert client.get(f"/api/v1/documents/{reservoir}/citation?format=ris").status_code == 422


def test_properties_are_set_and_filtered_over_http(client: TestClient, library: Library) -> None:
    ids = {one.source: one.id for one in library.documents.list()}
    changed = client.patch(f"/api/v1/documents/{ids[WALKS]}", json={"properties": {"tag": ["walks"], "date": ["1999"]}})
    assert changed.json()["properties"] == {"tag": ["walks"], "date": ["1999"]}
    found = client.get("/api/v1/documents", params={"where": ["date<2000", "tag=walks"]}).json()
    assert [one["id"] for one in found["documents"]] == [ids[WALKS]]
    body = {"query": "dam", "k": 3, "within": {"where": ["tag=walks"]}}
    passages = client.post("/api/v1/search", json=body).json()["passages"]
    assert {one["document_id"] for one in passages} == {ids[WALKS]}
    body["within"] = {"where": ["nonsense"]}
    refused = client.post("/api/v1/search", json=body)
    assert refused.status_code == 422 and "is not a condition" in refused.json()["error"]["message"]


def test_the_command_line_sets_tags_filters_and_cites(commands: Commands, tmp_path: Path) -> None:
    table = tmp_path / "said.csv"
    table.write_text("document,author,date\nreservoir.pdf,Ann Lee; Ben Ray,1982\nnothing.pdf,X,2000\nwalks.pdf,,1999\n")
    ended = cairn("set", "--csv", table)
    assert ended.exit_code == 1 and "nothing.pdf" in ended.stderr
    assert cairn("tag", WALKS, "lake", "Lake", "walks").exit_code == 0
    assert cairn("tag", WALKS, "LAKE", "--remove").stdout.count("walks") == 2
    listed = cairn("list", "--where", "date>=1980", "--where", "author~lee").stdout
    assert RESERVOIR in listed and WALKS not in listed
    assert cairn("set", RESERVOIR, "date=").exit_code == 0
    assert cairn("cite", RESERVOIR, "--page", "3").stdout == (
        "Ann Lee, Ben Ray: Handbook of the reservoir. reservoir.pdf, page 3.\n"
    )
    assert "@misc{" in cairn("cite", WALKS, "--format", "bibtex").stdout
    assert "no document or answer 'other.pdf'" in cairn("cite", "other.pdf").stderr
    assert cairn("list", "--where", "tag=none").stderr == "There are no documents matching that.\n"
    assert cairn("list", "--where", "nonsense").exit_code == 1 and cairn("set").exit_code == 2


def test_a_library_travels_over_the_command_line(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "all.cairn"
    assert json.loads(cairn("export-library", file, "--json").stdout)["documents"] == 2
    ended = cairn("import-library", file)
    assert ended.exit_code == 0 and ended.stdout.count("already stored") == 2 and "2 of 2" in ended.stderr
    file.write_bytes(file.read_bytes()[:1000])
    ended = cairn("import-library", file)
    assert ended.exit_code == 1 and "Nothing was changed" in ended.stderr
