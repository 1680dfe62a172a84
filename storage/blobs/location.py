"""From CAIRN_STORE_URL to a store."""

from __future__ import annotations

from pathlib import Path

from storage.blobs.bucket import Address, Bucket
from storage.blobs.cache import BlobCache
from storage.blobs.files import FileBlobs
from storage.blobs.objects import ObjectBlobs
from storage.blobs.protocol import Blobs

CACHE_FOLDER = "cache"
CACHE_BYTES = 20_000_000_000


def open_blobs(url: str | None, home: Path, *, cache_bytes: int = CACHE_BYTES) -> Blobs:
    """The store at `url`; None or `file:` is the home folder, which else holds a cache of at most `cache_bytes`. Asks
    nobody yet. Raises `ValueError` for a URL that cannot be used, `StoreUnavailable` if a package is missing."""
    if url is None or url == "file:":
        return FileBlobs(home)
    return ObjectBlobs(Bucket(Address.parse(url)), BlobCache(home / CACHE_FOLDER, cache_bytes))
