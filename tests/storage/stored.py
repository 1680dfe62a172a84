"""Tiny stored documents for the storage tests. Axes as in storage/kv/store.py."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from storage.blobs.files import FileBlobs
from storage.catalogue import Catalogue
from storage.catalogue.home import Home
from storage.errors import Damage
from storage.fingerprint import MemoryFingerprint
from storage.kv.format import PREFIX, Header, KVLayout, decode_header, decode_prefix
from storage.kv.shard import OpenShard
from storage.kv.store import KVBlockStore
from storage.kv.whole_shards import verify_shard
from storage.maintenance import orphans, reclaim, require_trustworthy
from storage.records import Document, NewBlock, NewDocument, Page, Shard, ShardFile
from storage.trash import Trash, size_of

LAYOUT = KVLayout(layers=(1, 2, 5), kv_heads=2, block_size=6, head_dim=4, dtype="bf16")
GIVEN = ".database-url"
FINGERPRINT = MemoryFingerprint({"weights": "w", "block_size": "6"})


sqlite_only = pytest.mark.sqlite_only  # about SQLite's file


def database_url(home: Path) -> str:
    """Of the home's catalogue, also for other processes: a file, or what the test's `catalogue_kind` gave it."""
    given = home.with_name(home.name + GIVEN)
    return given.read_text() if given.exists() else f"sqlite:///{home}/cairn.sqlite3"


def give_database(home: Path, url: str) -> None:
    home.with_name(home.name + GIVEN).write_text(url)


def open_home(home: Path, layout: KVLayout = LAYOUT) -> tuple[Catalogue, KVBlockStore]:
    catalogue = Catalogue.open(database_url(home), home)
    digest = catalogue.put_fingerprint(FINGERPRINT)
    return catalogue, KVBlockStore(home / "kv", layout, digest)


def random_blocks(layout: KVLayout, num_blocks: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """keys_NYGLD, values_NYGLD in float32 and lengths_N; the last block is short."""
    random = torch.Generator().manual_seed(seed)
    shape = (num_blocks, len(layout.layers), layout.kv_heads, layout.block_size, layout.head_dim)
    lengths_N = torch.full((num_blocks,), layout.block_size - 1)
    lengths_N[-1] = max(1, layout.block_size // 2)
    return torch.randn(shape, generator=random), torch.randn(shape, generator=random), lengths_N


def write_shard(store: KVBlockStore, num_blocks: int = 3, seed: int = 0, group: str = "") -> ShardFile:
    return store.write(*random_blocks(store.layout, num_blocks, seed), group=group)


def read_blocks(store: KVBlockStore, shard: str, layer: int, blocks: Iterable[int]) -> tuple[Tensor, Tensor]:
    """keys_NGLD, values_NGLD of blocks of one shard."""
    return store.read_many([(shard, block) for block in blocks], layer)


def read_block(store: KVBlockStore, shard: str, layer: int, head: int, block: int) -> tuple[Tensor, Tensor]:
    """keys_LD, values_LD of one block of one head."""
    keys_1GLD, values_1GLD = read_blocks(store, shard, layer, [block])
    return keys_1GLD[0, head], values_1GLD[0, head]


def header_of(store: KVBlockStore, shard: str) -> Header:
    return OpenShard(store.blobs.open(shard), shard).header


def header_of_bytes(contents: bytes) -> Header:
    header_bytes, _ = decode_prefix(contents[: PREFIX.size])
    return decode_header(contents[: PREFIX.size], contents[PREFIX.size : PREFIX.size + header_bytes])


def verify(store: KVBlockStore, shard: str, checksum: str | None = None) -> list[Damage]:
    return verify_shard(FileBlobs(store.folder), shard, checksum=checksum, fingerprint=store.fingerprint)


def new_document(seed: int = 0, *, title: str = "") -> NewDocument:
    return NewDocument(
        id=uuid.uuid4().hex,
        source=f"report-{seed}.pdf",
        title=title or f"Report {seed}",
        kind="pdf",
        content_sha256=f"{seed:064x}",
        fingerprint=FINGERPRINT.digest,
        stored_file=f"{seed}.pdf",
    )


def new_blocks(num_blocks: int, first: int = 0) -> list[NewBlock]:
    ordinals = range(first, first + num_blocks)
    return [NewBlock(10 * i, 10 * i + 10, (i, i + 1, i + 2), ((0, 0.1, 0.2, 0.3, 0.4),)) for i in ordinals]


def commit(
    catalogue: Catalogue, store: KVBlockStore, document_id: str, *, num_blocks: int = 3, seed: int = 0, first: int = 0
) -> Shard:
    shard = write_shard(store, num_blocks, seed, group=document_id)
    return catalogue.commit_shard(document_id, shard, new_blocks(num_blocks, first))


def add_ready(
    catalogue: Catalogue, store: KVBlockStore, seed: int = 0, *, num_shards: int = 2, collection: str | None = None
) -> Document:
    """A whole document of `num_shards` shards of three blocks."""
    submitted = catalogue.add_document(new_document(seed), collection=collection)
    assert submitted.job is not None and not submitted.already_stored
    document_id = submitted.document.id
    job = catalogue.claim_job(submitted.job.id, "test")
    assert job is not None
    pages = [Page(0, "i", 595.0, 842.0, 0, 30), Page(1, "1", 595.0, 842.0, 30, 60, "no text")]
    catalogue.save_extracted(document_id, text="x" * 60, pages_read=pages, num_tokens=9 * num_shards)
    for number in range(num_shards):
        commit(catalogue, store, document_id, seed=100 * seed + number, first=3 * number)
    return catalogue.finish_document(document_id, job=job)


@dataclass(frozen=True)
class Garbage:
    """`files`: what is in the trash now, `swept_bytes` of it; `freed_bytes`: what the disk got back."""

    files: tuple[Path, ...]
    swept_bytes: int
    freed_bytes: int


def collect_garbage(catalogue: Catalogue, home: Path) -> Garbage:
    """Sweep orphans into the trash, then `reclaim`, as the library does with all its files."""
    require_trustworthy(catalogue.database, Home(home))
    kv_folder = home / "kv"
    garbage = [kv_folder / name for name in orphans(catalogue, kv_folder, FileBlobs(kv_folder))]
    swept_bytes = sum(map(size_of, garbage))
    return Garbage(tuple(Trash(home).take(garbage)), swept_bytes, reclaim(catalogue.database, home, FileBlobs(home)))
