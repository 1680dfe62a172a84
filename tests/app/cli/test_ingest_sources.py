"""`cairn ingest` of buckets, and by other processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.work import JobRunner
from retrieval.documents import Documents
from retrieval.errors import InvalidRequest
from retrieval.ingest.intake import bucket_sources
from retrieval.library import Library
from retrieval.types.records import Job
from storage.blobs.s3 import Address, Bucket
from storage.errors import StoreUnavailable
from tests.app.cli_client import Commands, cairn
from tests.object_server import new_store

TEXTS = {"a.txt": "The mill on the river grinds corn.", "deep/b.md": "# Notes\n\nThe bridge was built of oak."}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> str:
    url = new_store(monkeypatch)
    filled = Bucket(Address.parse(url))
    for name, text in {**TEXTS, "picture.xyz": "not a document", ".hidden/c.txt": "not shown"}.items():
        filled.create(name, text.encode())
    return url


def test_documents_below_a_prefix_are_found_by_name_and_fetched(bucket: str) -> None:
    found = list(bucket_sources(bucket, {".txt", ".md"}))
    assert [source.name for source in found] == ["a.txt", "deep/b.md"]
    for source in found:
        with source.fetched() as path:
            assert path.read_text() == TEXTS[source.name] and path.suffix == Path(source.name).suffix
        assert not path.exists()
    place, _, options = bucket.partition("?")
    (one,) = bucket_sources(f"{place}/deep/b.md?{options}", {".txt", ".md"})
    with one.fetched() as path:
        assert one.name == "b.md" and path.read_text() == TEXTS["deep/b.md"]
    with pytest.raises(InvalidRequest, match="s3://bucket/prefix"):
        list(bucket_sources("s3://", {".txt"}))
    with pytest.raises(StoreUnavailable, match="there is no bucket"):
        list(bucket_sources(f"s3://missing-{place.split('/')[2]}/x?{options}", {".txt"}))


def test_a_bucket_is_ingested_like_a_folder(commands: Commands, bucket: str) -> None:
    ended = cairn("ingest", bucket, "--json")
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(row["source"], row["status"]) for row in rows] == [("a.txt", "done"), ("deep/b.md", "done")]
    again = cairn("ingest", bucket, "--json")
    assert [json.loads(line)["status"] for line in again.stdout.splitlines()] == ["already stored"] * 2


def test_what_is_handed_in_for_workers_is_read_by_them(commands: Commands, library: Library, bucket: str) -> None:
    with JobRunner(library):
        ended = cairn("ingest", bucket, "--workers", "--json")
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert sorted((row["source"], row["status"]) for row in rows) == [("a.txt", "done"), ("deep/b.md", "done")]


def test_what_is_deleted_while_it_waits_for_workers_is_a_row_too(
    commands: Commands, library: Library, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Documents.submit

    def deleted(self: Documents, path: Path, **given: Any) -> Job:
        job = submit(self, path, **given)
        if given["source"] == "a.txt":
            library.documents.delete([job.document_id])
        return job

    monkeypatch.setattr(Documents, "submit", deleted)
    with JobRunner(library):
        ended = cairn("ingest", bucket, "--workers", "--json")
    rows = {row["source"]: row for row in map(json.loads, ended.stdout.splitlines())}
    assert rows["deep/b.md"]["status"] == "done" and "deleted while it waited" in rows["a.txt"]["error"]
