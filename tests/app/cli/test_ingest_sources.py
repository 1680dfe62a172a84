"""`cairn ingest` of buckets, and by workers of a Ray cluster."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from retrieval.errors import InvalidRequest
from retrieval.ingest.intake import bucket_sources
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


def test_without_ray_or_a_shared_catalogue_the_reason_is_told(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text(TEXTS["a.txt"])
    monkeypatch.setitem(sys.modules, "ray", None)
    ended = cairn("ingest", str(tmp_path / "a.txt"), "--ray", "local")
    assert ended.exit_code != 0 and "pip install cairn[ray]" in ended.stderr
    monkeypatch.setitem(sys.modules, "ray", object())
    ended = cairn("ingest", str(tmp_path / "a.txt"), "--ray", "ray://10.0.0.1:10001")
    assert ended.exit_code != 0 and "CAIRN_DATABASE_URL" in ended.stderr


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install cairn[ray]")
def test_actors_of_a_local_cluster_read_and_one_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """Twelve documents, two actors, one of them killed (SIGKILL) once something was read."""
    import psutil

    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number}.txt").write_text(f"In the year {1900 + number} bridge {number} was built of oak. " * 40)
    command = [sys.executable, "-m", "app", "--home", str(tmp_path / "home"), "ingest", str(folder)]
    process = subprocess.Popen(
        [*command, "--ray", "local", "--actors", "2", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    rows = [json.loads(process.stdout.readline())]
    actors = [each for each in psutil.Process(process.pid).children(recursive=True) if "Reader" in each.name()]
    assert len(actors) == 2
    actors[0].kill()
    rows += [json.loads(line) for line in process.stdout]
    assert process.wait(300) == 0, rows
    assert sorted(row["source"] for row in rows) == sorted(f"{number}.txt" for number in range(12))
    assert {row["status"] for row in rows} == {"done"} and len({row["document_id"] for row in rows}) == 12
