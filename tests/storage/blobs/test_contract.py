"""What every store does, whether its blobs are files or objects in a bucket."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from storage.blobs.files import FileBlobs
from storage.blobs.protocol import Blobs
from storage.blobs.s3 import open_blobs
from storage.catalogue import Catalogue
from storage.errors import DamagedMemory, DamagedOriginal, ForeignCatalogue, NameInUse
from storage.kv.store import KVBlockStore
from storage.kv.whole_shards import verify_shard
from storage.maintenance import orphans, verify
from tests.object_server import new_store
from tests.storage.stored import (
    FINGERPRINT,
    LAYOUT,
    add_ready,
    database_url,
    new_document,
    random_blocks,
    write_shard,
)

ROOMS = ("files", "objects")


@pytest.fixture(params=ROOMS)
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    return None if request.param == "files" else new_store(monkeypatch)


@pytest.fixture
def blobs(url: str | None, tmp_path: Path) -> Blobs:
    (tmp_path / "home").mkdir()
    return open_blobs(url, tmp_path / "home")


def elsewhere(url: str | None, tmp_path: Path) -> Blobs:
    """The same store, as another machine sees it: with an empty cache."""
    return open_blobs(url, tmp_path / ("home" if url is None else "another"))


def kv_store(blobs: Blobs, tmp_path: Path) -> KVBlockStore:
    return KVBlockStore(tmp_path / "locks" / "kv", LAYOUT, FINGERPRINT.digest, blobs=blobs.inside("kv"))


def names(blobs: Blobs, folder: str = "") -> list[str]:
    return sorted(fact.name for fact in blobs.listing(folder))


def test_what_was_created_is_there_for_all_and_whole(blobs, url, tmp_path):
    contents = bytes(range(256)) * 40_000  # several parts
    blobs.inside("kv").create("a/b.kv", memoryview(contents))
    there = elsewhere(url, tmp_path)
    assert there.inside("kv").read("a/b.kv") == contents
    with there.copy("kv/a/b.kv") as file:
        assert file.read() == contents
    assert [(fact.name, fact.size_bytes) for fact in there.listing()] == [("kv/a/b.kv", len(contents))]
    assert there.size(["kv/a/b.kv", "kv/none.kv"]) == len(contents)


def test_a_name_is_given_once(blobs):
    blobs.create("a/b", memoryview(b"one"))
    blobs.create("a/b", memoryview(b"one"))
    with pytest.raises(NameInUse, match="a/b"):
        blobs.create("a/b", memoryview(b"two"))
    assert blobs.read("a/b") == b"one"


def test_what_is_missing_is_missing_to_all_who_ask(blobs):
    for ask in (blobs.read, blobs.open, blobs.copy, lambda name: blobs.local(name, "")):
        with pytest.raises(FileNotFoundError):
            ask("kv/none.kv")
    assert names(blobs) == [] and blobs.delete(["kv/none.kv"]) == 0 and blobs.size(["kv/none.kv"]) == 0
    blobs.sweep(["kv/none.kv"])
    blobs.prefetch(["kv/none.kv"])


def test_an_empty_blob_is_one(blobs):
    blobs.create("empty", memoryview(b""))
    assert blobs.read("empty") == b"" and names(blobs) == ["empty"]


def test_a_copy_of_rows_may_be_written_again(blobs):
    blobs.replace("sidecars/a", b"one")
    blobs.replace("sidecars/a", b"two")
    assert blobs.read("sidecars/a") == b"two" and names(blobs, "sidecars") == ["sidecars/a"]


def test_a_listing_of_a_folder_is_of_that_folder(blobs):
    for name in ("kv/a/1.kv", "kv/ab/1.kv", "files/a.pdf"):
        blobs.create(name, memoryview(b"x"))
    assert names(blobs, "kv/a") == ["kv/a/1.kv"] and names(blobs.inside("kv")) == ["a/1.kv", "ab/1.kv"]


def test_a_staged_original_is_kept_under_its_name_and_compared_when_it_comes(blobs, url, tmp_path):
    originals = blobs.inside("files")
    staged = tmp_path / "home" / "files" / ".incoming"
    staged.parent.mkdir()
    staged.write_bytes(b"a report")
    originals.bring(staged, "a.pdf")
    originals.settle(staged, "a.pdf")
    originals.settle(staged, "a.pdf")  # another process has named it
    digest = hashlib.sha256(b"a report").hexdigest()
    assert originals.local("a.pdf", digest).read_bytes() == b"a report" and not staged.exists()
    there = elsewhere(url, tmp_path).inside("files")
    assert there.local("a.pdf", digest).read_bytes() == b"a report"
    if url is not None:
        with pytest.raises(DamagedOriginal, match=r"a\.pdf"):
            open_blobs(url, tmp_path / "third").inside("files").local("a.pdf", "0" * 64)
        assert not [path for path in (tmp_path / "third").rglob("*") if path.is_file()]


def test_what_is_swept_waits_in_the_trash(blobs):
    for name in ("kv/a/1.kv", "kv/a/2.kv", "files/a.pdf"):
        blobs.create(name, memoryview(b"12345"))
    blobs.sweep(["kv/a/1.kv", "files/a.pdf"])
    assert names(blobs, "kv") == ["kv/a/2.kv"] and names(blobs, "files") == []
    assert sorted(name.split("/", 2)[2] for name in names(blobs, "trash")) == ["files/a.pdf", "kv/a/1.kv"]
    assert blobs.empty_trash(3600) == 0 and len(names(blobs, "trash")) == 2
    assert blobs.empty_trash(0) == 10 and names(blobs, "trash") == []


def test_two_may_delete_what_is_in_a_folder_at_once(blobs, tmp_path):
    for name in ("kv/a/1.kv", "kv/b/1.kv"):
        blobs.create(name, memoryview(b"12345"))

    def deleted() -> Iterator[str]:
        yield "kv/a/1.kv"
        with contextlib.suppress(OSError):  # in a bucket there is none
            (tmp_path / "home" / "kv" / "a").rmdir()
        yield "kv/b/1.kv"

    blobs.delete(deleted())
    assert names(blobs) == []


def test_stored_memory_is_read_back_bit_for_bit_by_another_machine(blobs, url, tmp_path):
    keys_NYGLD, values_NYGLD, lengths_N = random_blocks(LAYOUT, 7)
    shard = kv_store(blobs, tmp_path).write(keys_NYGLD, values_NYGLD, lengths_N, group="document")
    reader = kv_store(elsewhere(url, tmp_path), tmp_path)
    reader.blobs.prefetch([shard.name])
    for y, layer in enumerate(LAYOUT.layers):
        refs = [(shard.name, block) for block in (6, 0, 3)]
        for _ in range(2):  # from behind the cache, then from it
            keys_NGLD, values_NGLD = reader.read_many(refs, layer)
            assert torch.equal(keys_NGLD, keys_NYGLD[[6, 0, 3], y].bfloat16())
            assert torch.equal(values_NGLD, values_NYGLD[[6, 0, 3], y].bfloat16())
    assert torch.equal(reader.lengths(shard.name), lengths_N)
    assert torch.equal(reader.landmarks(shard.name), keys_NYGLD[..., -1, :].bfloat16())


def test_deleted_shards_are_gone_and_named_as_missing(blobs, url, tmp_path):
    store = kv_store(blobs, tmp_path)
    shards = [write_shard(store, seed=seed, group="document") for seed in (1, 2)]
    store.lengths(shards[0].name)
    store.delete([shards[0].name])
    assert store.files() == store.files("document") == {shards[1].name}
    with pytest.raises(DamagedMemory, match="missing"):
        store.lengths(shards[0].name)
    assert [d.reason for d in verify_shard(store.blobs, shards[0].name)] == ["the file is missing"]


def damaged(contents: bytes, rng: Random) -> bytes:
    """Anything else than it was."""
    kind = rng.randrange(4)
    if kind == 0:
        return contents[: rng.randrange(len(contents))]
    if kind == 1:
        return contents + b"more"
    changed = bytearray(contents)
    start = rng.randrange(len(changed))
    for place in range(start, min(len(changed), start + (1 if kind == 2 else 300))):
        changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("damages", [25, pytest.param(2000, marks=pytest.mark.slow)])
def test_no_damage_in_the_store_is_read(blobs, url, tmp_path, damages):
    """Everything is read from damaged shards: what comes is right, or named as damaged; `verify` names all."""
    rng = Random(5)
    keys_NYGLD, values_NYGLD, lengths_N = random_blocks(LAYOUT, 5)
    shard = kv_store(blobs, tmp_path).write(keys_NYGLD, values_NYGLD, lengths_N, group="document")
    whole = blobs.read(f"kv/{shard.name}")
    refused = 0
    for number in range(damages):
        blobs.replace(f"kv/{shard.name}", damaged(whole, rng))
        there = elsewhere(url, tmp_path) if url is None else open_blobs(url, tmp_path / f"machine {number}")
        reader = kv_store(there, tmp_path)
        try:
            for y, layer in enumerate(LAYOUT.layers):
                keys_NGLD, values_NGLD = reader.read_many([(shard.name, block) for block in range(5)], layer)
                assert torch.equal(keys_NGLD, keys_NYGLD[:, y].bfloat16())
                assert torch.equal(values_NGLD, values_NYGLD[:, y].bfloat16())
            assert torch.equal(reader.lengths(shard.name), lengths_N)
            assert torch.equal(reader.landmarks(shard.name), keys_NYGLD[..., -1, :].bfloat16())
        except DamagedMemory as error:
            assert error.shard == shard.name
            refused += 1
        assert verify_shard(reader.blobs, shard.name, checksum=shard.checksum)
    assert refused > damages / 2
    blobs.replace(f"kv/{shard.name}", whole)
    assert verify_shard(blobs.inside("kv"), shard.name, checksum=shard.checksum) == []


@pytest.fixture
def books(blobs, tmp_path) -> tuple[Catalogue, KVBlockStore]:
    catalogue = Catalogue.open(database_url(tmp_path / "home"), tmp_path / "home", blobs=blobs)
    catalogue.put_fingerprint(FINGERPRINT)
    yield catalogue, kv_store(blobs, tmp_path)
    catalogue.close()


def test_verify_finds_damage_and_orphans_in_the_store(books, blobs, monkeypatch):
    monkeypatch.setattr(type(blobs), "settle_seconds", 0.0)
    catalogue, store = books
    for seed in (1, 2, 3):
        add_ready(catalogue, store, seed)
    orphan = write_shard(store, group="nobody")
    assert verify(catalogue, store.blobs) == []
    assert orphans(catalogue, store.folder, store.blobs) == [orphan.name]
    first, second, *_ = catalogue.shards()
    whole = bytearray(store.blobs.read(first.name))
    whole[-1] ^= 1
    store.blobs.replace(first.name, bytes(whole))
    store.blobs.delete([second.name])
    found = {damage.shard: damage.section for _, damage in verify(catalogue, store.blobs)}
    assert found == {first.name: "piece", second.name: "file"}


def test_what_was_just_written_is_no_orphan(books, blobs):
    catalogue, store = books
    shard = write_shard(store, group=catalogue.add_document(new_document(1)).document.id)
    found = orphans(catalogue, store.folder, store.blobs)
    assert found == ([shard.name] if blobs.settle_seconds == 0 else []), "there is no lock between machines"


def test_a_store_knows_its_catalogue(books, blobs, url, tmp_path):
    """Another catalogue, with a home folder of its own, would sweep all that it does not know."""
    catalogue, store = books
    add_ready(catalogue, store, 1)
    (tmp_path / "another").mkdir()
    with pytest.raises(ForeignCatalogue, match="empty"):
        Catalogue.open(
            f"sqlite:///{tmp_path}/another/cairn.sqlite3", tmp_path / "another", blobs=elsewhere(url, tmp_path)
        )


def test_reading_many_blocks_at_once_fills_each_row(blobs, url, tmp_path):
    store = kv_store(blobs, tmp_path)
    shards = [write_shard(store, 9, seed, group=f"document {seed}") for seed in range(5)]
    rng = np.random.default_rng(3)
    refs = [(shards[rng.integers(5)].name, int(rng.integers(9))) for _ in range(60)]
    reader = kv_store(elsewhere(url, tmp_path), tmp_path)
    for layer in LAYOUT.layers:
        keys_NGLD, values_NGLD = reader.read_many(refs, layer)
        for row, (name, block) in enumerate(refs):
            seed = next(seed for seed, shard in enumerate(shards) if shard.name == name)
            keys_NYGLD, values_NYGLD, _ = random_blocks(LAYOUT, 9, seed)
            y = LAYOUT.layers.index(layer)
            assert torch.equal(keys_NGLD[row], keys_NYGLD[block, y].bfloat16())
            assert torch.equal(values_NGLD[row], values_NYGLD[block, y].bfloat16())


def test_files_of_the_home_are_private(blobs, tmp_path):
    blobs.create("kv/a/b.kv", memoryview(b"x"))
    found = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert found and not [path for path in found if path.stat().st_mode & 0o077]


def test_only_buckets_and_the_home_folder_are_stores(tmp_path):
    assert isinstance(open_blobs("file:", tmp_path), FileBlobs)
    for url in ("http://x/y", "s3://", "s3://key@bucket/a", "s3://bucket?secret=1", "file:///elsewhere"):
        with pytest.raises(ValueError, match="CAIRN_STORE_URL"):
            open_blobs(url, tmp_path)


def test_a_link_or_a_way_out_is_no_name(blobs):
    with pytest.raises(AssertionError):
        blobs.read("../secret")
    assert os.sep == "/" or "\\" not in blobs.place
