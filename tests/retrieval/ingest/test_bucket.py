"""A library whose memory and originals lie in a bucket is the library that it would be on files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from retrieval.errors import DamagedMemory, NotFound
from retrieval.library import Library
from storage.blobs import s3
from storage.blobs.files import FileBlobs
from storage.blobs.s3 import ObjectBlobs, open_blobs
from storage.errors import StoreUnavailable
from storage.recovery import rescue
from tests import forked
from tests.object_server import failing_proxy, new_store
from tests.retrieval.conftest import SHARD_BYTES, TEXTS, add, ask, substance, without_ids
from tests.storage.blobs.test_contract import damaged

pytestmark = pytest.mark.files_only  # these have buckets of their own

QUESTIONS = ("What does the fox do?", "Where do whales sing?", "Where does the rain fall?")


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    return new_store(monkeypatch)


@pytest.fixture
def shared(tmp_path: Path) -> str:
    """One catalogue for libraries in several folders."""
    return f"sqlite:///{tmp_path}/shared.sqlite3"


@pytest.fixture
def in_bucket(open_library, url, shared, write) -> Library:
    library = open_library(store_url=url, database_url=shared)
    for name, text in TEXTS.items():
        add(library, write(f"{name}.txt", text))
    return library


@pytest.fixture
def on_files(open_library, tmp_path, filled_home) -> Library:
    shutil.copytree(filled_home, tmp_path / "files")
    return open_library(home=tmp_path / "files")


@pytest.fixture
def moved(open_library, url, shared, filled_home, tmp_path) -> Library:
    """The library of three documents, copied into a bucket file by file."""
    home = tmp_path / "home"
    home.mkdir()
    blobs = open_blobs(url, home)
    for fact in FileBlobs(filled_home).listing():
        if fact.name.startswith(("kv/", "files/", "sidecars/")) or fact.name == "home.json":
            blobs.replace(fact.name, (filled_home / fact.name).read_bytes())
    shutil.copy(filled_home / "cairn.sqlite3", shared.removeprefix("sqlite:///"))
    return open_library(store_url=url, database_url=shared)


@pytest.fixture(scope="module")
def expected(filled_home, model, tmp_path_factory) -> list[dict]:
    """What the library of three documents answers on files."""
    home = tmp_path_factory.mktemp("calm") / "home"
    shutil.copytree(filled_home, home)
    with Library.open(home, model, shard_bytes=SHARD_BYTES) as library:
        return answers(library)


def answers(library: Library) -> list[dict]:
    """Without the ids of documents, which are random."""
    ids = {document.id: document.source for document in library.documents.list()}
    found = json.dumps([substance(ask(library, question, k=6)) for question in QUESTIONS])
    for document_id, source in ids.items():
        found = found.replace(document_id, source)
    return json.loads(found)


def shards(library: Library) -> list[str]:
    return sorted(fact.name for fact in library.view.workspace.blobs.listing("kv"))


def test_it_answers_as_on_files_and_so_does_a_second_process_with_an_empty_cache(
    in_bucket, on_files, open_library, url, shared, tmp_path
):
    expected = answers(on_files)
    assert answers(in_bucket) == expected
    assert not list((tmp_path / "home" / "kv").rglob("*.kv")) and len(shards(in_bucket)) >= 3
    second = open_library(home=tmp_path / "second", store_url=url, database_url=shared)
    assert answers(second) == expected and list((tmp_path / "second" / "cache").rglob("*.kv"))
    program = (
        "import sys\nfrom pathlib import Path\nfrom retrieval.library import Library\n"
        "from tests.retrieval.conftest import BLOCK_SIZE, ask\nfrom tests.tiny_model import tiny_model\n"
        "model = tiny_model(block_size=BLOCK_SIZE, window_blocks=4, context_blocks=2)\n"
        "with Library.open(Path(sys.argv[1]), model, store_url=sys.argv[2], database_url=sys.argv[3]) as library:\n"
        "    print([ask(library, question, k=6).text for question in sys.argv[4:]])\n"
    )
    told = forked.run("-c", program, tmp_path / "third", url, shared, *QUESTIONS, timeout=300)
    assert told.returncode == 0, told.stderr[-2000:]
    assert told.stdout.strip() == str([answer["text"] for answer in expected])


def test_originals_and_deletions_are_the_same_for_all(moved, open_library, url, shared, tmp_path):
    second = open_library(home=tmp_path / "second", store_url=url, database_url=shared)
    fox = next(document for document in second.documents.list() if document.source == "fox.txt")
    assert second.documents.original(fox.id).read_text() == TEXTS["fox"]
    deleted = second.documents.delete([fox.id])
    assert deleted.freed_bytes > 0
    left = [fact.name for fact in moved.view.workspace.blobs.listing() if fox.id in fact.name]
    assert left == [] and moved.maintenance.verify().ok
    with pytest.raises(NotFound):
        moved.documents.original(fox.id)


@pytest.mark.parametrize("damages", [2, pytest.param(200, marks=pytest.mark.slow)])
def test_damage_in_the_bucket_is_named_before_a_word_and_repaired(
    moved, expected, open_library, url, shared, tmp_path, damages
):
    rng, blobs = Random(3), moved.view.workspace.blobs
    calm = substance(ask(moved, QUESTIONS[0], k=20))
    for number in range(damages):
        name = rng.choice(shards(moved))
        blobs.replace(name, damaged(blobs.read(name), rng))
        reader = open_library(home=tmp_path / f"machine {number}", store_url=url, database_url=shared)
        shown: list[Any] = []
        try:
            for item in reader.ask(QUESTIONS[0], k=20, max_tokens=6):
                shown.append(item)
        except DamagedMemory as error:
            assert "cairn repair" in str(error) and ".txt" in str(error)
            told = [without_ids(token.to_dict()) for token in shown]
            right = [without_ids(token) for token in calm["tokens"][: len(shown)]]
            assert told == right, "tokens shown before are the right ones"
        else:
            assert substance(shown[-1]) == calm
        assert {f"kv/{found.shard}" for found in reader.maintenance.verify().damage} == {name}
        report = reader.maintenance.repair()
        assert not report.failed and reader.maintenance.verify().ok
        reader.close()
    assert answers(moved) == expected, "repaired bit for bit, and known to the others"


def test_a_damaged_or_lost_original_is_named(moved, open_library, url, shared, tmp_path):
    blobs = moved.view.workspace.blobs
    fox, rain = (next(d for d in moved.documents.list() if d.source == f"{name}.txt") for name in ("fox", "rain"))
    blobs.replace(f"files/{fox.id}.txt", b"something else")
    blobs.inside("files").delete([f"{rain.id}.txt"])
    found = {each.document_id: each.detail for each in moved.maintenance.verify().damage}
    assert "changed" in found[fox.id] and "missing" in found[rain.id]


def test_orphans_are_swept_into_the_trash_of_the_bucket(moved, monkeypatch):
    blobs = moved.view.workspace.blobs
    orphans = ["kv/gone/1.kv", "files/gone.pdf", "sidecars/gone.json.gz"]
    for name in orphans:
        blobs.replace(name, b"12345")
    assert set(moved.maintenance.verify().orphans) == {"sidecars/gone.json.gz"}, "their rows may come yet"
    monkeypatch.setattr(ObjectBlobs, "settle_seconds", 0.0)
    assert set(moved.maintenance.verify().orphans) == set(orphans)
    swept = moved.maintenance.gc()
    assert set(swept.files) == set(orphans) and swept.swept_bytes == 15
    assert sorted(fact.name.split("/", 2)[2] for fact in blobs.listing("trash")) == sorted(orphans)
    assert moved.maintenance.gc(grace_seconds=0).freed_bytes >= 15 and list(blobs.listing("trash")) == []
    assert moved.maintenance.verify().ok and ask(moved, "fox?").tokens


def test_a_bundle_leaves_a_bucket_and_arrives_in_one(moved, expected, open_library, monkeypatch, tmp_path):
    moved.bundles.export_to(tmp_path / "library.cairn")
    other = open_library(home=tmp_path / "other", store_url=new_store(monkeypatch))
    assert [one.status for one in other.bundles.import_from(tmp_path / "library.cairn")] == ["imported"] * 3
    assert answers(other) == expected and other.maintenance.verify().ok


def test_a_lost_catalogue_is_rescued_from_the_bucket(moved, expected, open_library, url, tmp_path):
    moved.close()
    (tmp_path / "shared.sqlite3").unlink()
    report = rescue(tmp_path / "shared.sqlite3", tmp_path / "home", open_blobs(url, tmp_path / "home"))
    assert sorted(report.restored) == ["fox.txt", "rain.txt", "whale.txt"] and report.missing_shards == 0
    rescued = open_library(store_url=url, database_url=f"sqlite:///{tmp_path}/shared.sqlite3")
    assert answers(rescued) == expected and rescued.maintenance.verify().ok


@pytest.fixture
def fragile(open_library, monkeypatch, write) -> Iterator[tuple[Library, object]]:
    monkeypatch.setattr(s3, "Bucket", partial(s3.Bucket, seconds=0.5, retries=0))
    with failing_proxy() as proxy:
        library = open_library(store_url=new_store(monkeypatch, through=proxy.url))
        add(library, write("fox.txt", TEXTS["fox"]))
        yield library, proxy


def test_a_failing_bucket_fails_a_job_in_words_and_the_next_try_succeeds(fragile, write):
    library, proxy = fragile
    before = substance(ask(library, QUESTIONS[0]))
    job = library.documents.submit(write("rain.txt", TEXTS["rain"]))
    proxy.fault = lambda method, path: 500 if method == "PUT" else None
    failed = library.jobs.run(job.id)
    assert failed.state == "failed" and "its server fails" in failed.error
    with pytest.raises(StoreUnavailable):
        library.documents.submit(write("whale.txt", TEXTS["whale"]))
    assert substance(ask(library, QUESTIONS[0])) == before, "what is stored still answers"
    proxy.fault = lambda method, path: 403
    with pytest.raises(StoreUnavailable, match="denied"):
        library.maintenance.verify()
    proxy.fault = lambda method, path: None
    assert library.jobs.run(library.jobs.retry(job.id).id).state == "done"
    assert library.maintenance.verify().ok and len(library.documents.list()) == 2
