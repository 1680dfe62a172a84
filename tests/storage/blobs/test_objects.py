"""What only a bucket has: a network that fails, and a cache on this machine's disk."""

from __future__ import annotations

import os
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from storage.blobs.cache import BlobCache, OpenCached
from storage.blobs.files import create_file
from storage.blobs.s3 import Address, Bucket, ObjectBlobs
from storage.errors import DamagedBlock, NameInUse, StoreUnavailable
from storage.kv.store import KVBlockStore
from tests.object_server import LOSE, STALL, Proxy, endpoint, failing_proxy, new_store
from tests.storage.stored import LAYOUT, header_of_bytes, random_blocks, write_shard

MB = 1 << 20


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with failing_proxy() as running:
        yield running


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch, proxy: Proxy) -> Address:
    return Address.parse(new_store(monkeypatch, through=proxy.url))


def machine(address: Address, folder: Path, *, limit_bytes: int = 100 * MB, retries: int = 1) -> ObjectBlobs:
    return ObjectBlobs(Bucket(address, seconds=0.5, retries=retries), BlobCache(folder / "cache", limit_bytes))


def kv_store(blobs: ObjectBlobs, folder: Path) -> KVBlockStore:
    return KVBlockStore(folder / "kv", LAYOUT, "fingerprint", blobs=blobs.inside("kv"))


def reads(proxy: Proxy) -> list[str]:
    return [path for method, path in proxy.requests if method == "GET" and ".kv" in path]


def test_a_large_file_is_sent_without_being_held_in_memory(address, tmp_path, monkeypatch):
    sent: list[tuple[int, bytes]] = []
    monkeypatch.setattr(Bucket, "create", lambda self, key, contents: sent.append((len(contents), bytes(contents[:1]))))
    (staged := tmp_path / "staged").write_bytes(b"x" * (8 * MB))
    (empty := tmp_path / "empty").touch()
    tracemalloc.start()
    try:
        for path in (staged, empty):
            machine(address, tmp_path).bring(path, "files/a.pdf")
        assert tracemalloc.get_traced_memory()[1] < MB
    finally:
        tracemalloc.stop()
    assert sent == [(8 * MB, b"x"), (0, b"")]


# The network


@pytest.mark.parametrize(
    ("fault", "said"),
    [(STALL, "did not answer"), (500, "its server fails"), (503, "its server fails"), (403, "denied")],
)
def test_a_failing_store_is_named_and_loses_nothing(address, proxy, tmp_path, fault, said):
    blobs = machine(address, tmp_path)
    store = kv_store(blobs, tmp_path)
    shard = write_shard(store, group="document")
    proxy.fault = lambda method, path: fault
    reader = kv_store(machine(address, tmp_path / "another"), tmp_path)
    attempts = [
        lambda: reader.lengths(shard.name),
        lambda: write_shard(store, group="document"),
        lambda: blobs.read("home.json"),
        lambda: list(blobs.listing()),
        lambda: blobs.size(["kv/a.kv"]),
    ]
    for attempt in attempts[:2] if fault == STALL else attempts:
        with pytest.raises(StoreUnavailable, match=said) as caught:
            attempt()
        assert address.bucket in str(caught.value) and "Nothing was lost" in str(caught.value)
    proxy.fault = lambda method, path: None
    assert torch.equal(reader.lengths(shard.name), random_blocks(LAYOUT, 3)[2])


def test_a_server_that_fails_once_is_asked_again(address, proxy, tmp_path):
    failed = threading.Event()

    def once(method: str, path: str) -> int | None:
        return None if failed.is_set() else (failed.set(), 500)[1]

    proxy.fault = once
    machine(address, tmp_path).create("a", memoryview(b"contents"))
    assert machine(address, tmp_path).read("a") == b"contents" and failed.is_set()


def test_a_creation_whose_answer_is_lost_is_found_to_have_happened(address, proxy, tmp_path):
    lost = []
    proxy.fault = lambda method, path: LOSE if method == "PUT" and not lost and not lost.append(path) else None
    blobs = machine(address, tmp_path, retries=3)
    try:
        blobs.create("a", memoryview(b"contents"))
    except StoreUnavailable:  # it is not known whether it happened
        blobs.create("a", memoryview(b"contents"))
    assert lost and blobs.read("a") == b"contents"
    with pytest.raises(NameInUse):
        blobs.create("a", memoryview(b"other"))


def test_a_missing_bucket_is_not_a_missing_blob(monkeypatch, tmp_path):
    new_store(monkeypatch)
    blobs = machine(Address.parse(f"s3://no-such-bucket?endpoint={endpoint()}"), tmp_path)
    store = kv_store(blobs, tmp_path)
    attempts = [
        lambda: blobs.read("a"),
        lambda: blobs.create("a", memoryview(b"")),
        lambda: list(blobs.listing()),
        lambda: blobs.size(["a"]),
        lambda: blobs.delete(["a"]),
        lambda: blobs.open("a"),
        lambda: blobs.copy("a"),
        lambda: store.lengths("a/b.kv"),
        lambda: blobs.sweep(["a"]),
    ]
    for attempt in attempts:
        with pytest.raises(StoreUnavailable, match="there is no bucket no-such-bucket"):
            attempt()


def test_an_unreachable_server_is_named(monkeypatch, tmp_path):
    new_store(monkeypatch)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        machine(Address.parse("s3://bucket?endpoint=http://127.0.0.1:9"), tmp_path, retries=0).read("a")


def test_unaccepted_credentials_are_named(address, proxy, tmp_path):
    proxy.fault = lambda method, path: 401
    with pytest.raises(StoreUnavailable, match="AWS_ACCESS_KEY_ID"):
        machine(address, tmp_path).read("a")


# The cache


def test_what_was_read_once_is_read_from_the_cache_also_by_the_next_process(address, proxy, tmp_path):
    shard = write_shard(kv_store(machine(address, tmp_path / "writer"), tmp_path), 5, group="document")
    refs = [(shard.name, block) for block in range(5)]
    first = kv_store(machine(address, tmp_path), tmp_path).read_many(refs, 1)
    asked = len(reads(proxy))
    again = kv_store(machine(address, tmp_path), tmp_path).read_many(refs, 1)
    assert len(reads(proxy)) == asked > 0 and all(map(torch.equal, first, again))


def test_pieces_far_apart_come_in_one_batch_and_near_ones_with_one_request(address, proxy, tmp_path, monkeypatch):
    monkeypatch.setattr("storage.blobs.s3.FIRST_BYTES", 2048)  # the pieces of so small a shard come later
    shard = write_shard(kv_store(machine(address, tmp_path / "writer"), tmp_path), 40, group="document")
    reader = kv_store(machine(address, tmp_path), tmp_path)
    reader.lengths(shard.name)
    asked = len(reads(proxy))
    reader.read_many([(shard.name, block) for block in range(0, 40, 3)], 2)
    assert len(reads(proxy)) == asked + 1, "28 pieces within 128 KiB"


def test_a_damaged_cache_is_fetched_anew_and_a_damaged_bucket_is_named(address, proxy, tmp_path, monkeypatch):
    monkeypatch.setattr("storage.blobs.s3.FIRST_BYTES", 2048)
    blobs = machine(address, tmp_path)
    shard = write_shard(kv_store(blobs, tmp_path), 30, group="document")
    refs = [(shard.name, block) for block in range(30)]
    expected = [kv_store(blobs, tmp_path).read_many(refs, layer) for layer in LAYOUT.layers]
    path = tmp_path / "cache" / "kv" / shard.name
    whole = path.read_bytes()
    for contents in (b"", whole[:500], whole[:-10], bytes(len(whole)), whole[:3000] + bytes(len(whole) - 3000)):
        path.write_bytes(contents)
        reader = kv_store(machine(address, tmp_path), tmp_path)
        for layer, (keys, values) in zip(LAYOUT.layers, expected, strict=True):
            assert all(map(torch.equal, reader.read_many(refs, layer), (keys, values)))
        reader.landmarks(shard.name), reader.lengths(shard.name)
        assert path.read_bytes() == whole, "and is whole again"
    spoiled = bytearray(whole)
    spoiled[header_of_bytes(whole).pieces_offset + 5] ^= 1
    blobs.replace(f"kv/{shard.name}", bytes(spoiled))
    path.unlink()
    with pytest.raises(DamagedBlock) as caught:
        kv_store(machine(address, tmp_path), tmp_path).read_many(refs, 1)
    assert (caught.value.damage.block, caught.value.damage.head) == (0, 0)
    with open(path, "rb") as file:
        file.seek(header_of_bytes(whole).pieces_offset)
        assert file.read(LAYOUT.piece_bytes) == bytes(LAYOUT.piece_bytes), "what is damaged is not kept"


def test_an_open_shard_whose_cached_file_changes_is_checked_anew(address, proxy, tmp_path):
    blobs = machine(address, tmp_path)
    store = kv_store(blobs, tmp_path)
    shard = write_shard(store, 5, group="document")
    refs = [(shard.name, block) for block in range(5)]
    expected = store.read_many(refs, 1)
    path = tmp_path / "cache" / "kv" / shard.name
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size - 5 * 6 * LAYOUT.piece_bytes)
        file.write(b"\xff" * LAYOUT.piece_bytes)
    for _ in range(2):
        assert all(map(torch.equal, store.read_many(refs, 1), expected))


def test_the_cache_keeps_its_limit_and_what_was_used_last_stays(address, tmp_path):
    writer = kv_store(machine(address, tmp_path / "writer"), tmp_path)
    shards = [write_shard(writer, 60, seed, group=f"document{seed}") for seed in range(12)]
    limit = 5 * shards[0].size_bytes
    blobs = machine(address, tmp_path, limit_bytes=limit)
    reader = kv_store(blobs, tmp_path)
    expected = {}
    for number, shard in enumerate(shards):
        for wanted in (shard, shards[0]):  # the first is used all the time
            expected[wanted.name] = reader.read_many([(wanted.name, 3)], 2)
            path = blobs._cache.path(f"kv/{wanted.name}")
            os.utime(path, ns=(10**18 + 10**9 * number, path.stat().st_mtime_ns))
        used = sum(each.stat().st_blocks * 512 for each in (tmp_path / "cache").rglob("*") if each.is_file())
        assert used <= limit + 2 * shards[0].size_bytes
    kept = {path.name for path in (tmp_path / "cache").rglob("*.kv")}
    assert len(kept) < 7 and shards[0].name.split("/")[1] in kept and shards[1].name.split("/")[1] not in kept
    for shard in shards:  # those that left come again, also where they are still open
        assert all(map(torch.equal, reader.read_many([(shard.name, 3)], 2), expected[shard.name]))


def test_a_file_that_takes_long_to_come_does_not_leave_the_cache_meanwhile(tmp_path):
    cache = BlobCache(tmp_path, limit_bytes=1)
    staged = cache.staging("files/a.pdf")
    with open(create_file(staged), "wb") as file:
        os.utime(staged, (time.time() - 3600,) * 2)
        file.write(bytes(MB))
        file.flush()
        cache.grown(MB)
    assert cache.put(staged, "files/a.pdf").stat().st_size == MB


def test_a_folder_that_empties_while_a_file_is_put_into_it_is_made_again(tmp_path, monkeypatch):
    cache, plain_open = BlobCache(tmp_path, 100 * MB), os.open
    removed = []

    def opened(path, *settings):
        if not removed:
            removed.append(path)
            Path(path).parent.rmdir()  # by another process, whose last file in it left
        return plain_open(path, *settings)

    monkeypatch.setattr(os, "open", opened)
    os.close(cache.begin("kv/a/1.kv", b"first", 9))
    assert removed and (tmp_path / "kv/a/1.kv").read_bytes() == b"first" + bytes(4)


def test_a_shard_that_left_the_cache_while_it_was_opened_is_noticed(address, tmp_path, monkeypatch):
    blobs = machine(address, tmp_path)
    store = kv_store(blobs, tmp_path)
    shard = write_shard(store, group="document")
    path, plain_state = tmp_path / "cache" / "kv" / shard.name, OpenCached.state
    with monkeypatch.context() as opening:
        opening.setattr(OpenCached, "state", lambda self: (path.unlink(missing_ok=True), plain_state(self))[1])
        store.lengths(shard.name)
    assert not path.exists() and len(store.lengths(shard.name)) == 3 and path.exists()


def test_a_full_disk_is_no_reason_not_to_read(address, tmp_path, monkeypatch):
    shard = write_shard(kv_store(machine(address, tmp_path / "writer"), tmp_path), 5, group="document")
    monkeypatch.setattr("storage.blobs.s3.FIRST_BYTES", 2048)
    reader = kv_store(machine(address, tmp_path), tmp_path)
    reader.lengths(shard.name)

    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    keys_NGLD, _ = reader.read_many([(shard.name, 2)], 1)
    assert torch.equal(keys_NGLD[0], random_blocks(LAYOUT, 5)[0][2, 0].bfloat16())


def test_what_another_machine_deleted_leaves_the_cache_with_the_next_listing(address, tmp_path):
    store = kv_store(machine(address, tmp_path / "one"), tmp_path)
    shard = write_shard(store, group="document")
    other = machine(address, tmp_path / "two")
    kv_store(other, tmp_path).lengths(shard.name)
    store.delete([shard.name])
    assert list((tmp_path / "two").rglob("*.kv"))
    assert list(other.listing("kv")) == [] and not list((tmp_path / "two").rglob("*.kv"))


def test_the_package_that_is_missing_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(StoreUnavailable, match=r"pip install cairn\[s3\]"):
        Bucket(Address.parse("s3://bucket"))
