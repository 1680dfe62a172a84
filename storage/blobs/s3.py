"""Blobs in a bucket, through obstore, with a cache on this machine's disk.

- Creating is conditional (`If-None-Match: *`). If the response was lost, the object is compared with what was sent.
- A read takes at most `SECONDS` for each part of `PART_BYTES`, and is tried again when the server fails. Then it is
  `StoreUnavailable`: a bucket that is missing or silent is never taken for a missing object.
- Keys, region, endpoint and credentials come from the URL and from the environment (`AWS_ACCESS_KEY_ID`, ...), as with
  other programs; see docs/object-store.md.
- The cache may be emptied at any time: the bucket alone is authoritative.
- Machines share no lock. So a blob without a row is left alone for `settle_seconds`, by the bucket's clock.

Below the prefix: kv/<document>/<name>.kv, files/<document>.<kind>, sidecars/<document>.json.gz, home.json,
uploads/<file>.<kind> (waiting to be started), preferences.json and preferences/<user>.json, trash/<batch>/..., clock.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from storage.blobs.cache import BlobCache, OpenCached
from storage.blobs.files import FileBlobs, create_file
from storage.blobs.protocol import BlobFacts, Blobs, Range, all_at_once
from storage.errors import DamagedOriginal, NameInUse, StoreUnavailable
from storage.trash import FOLDER as TRASH
from storage.trash import new_batch

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Store


PART_BYTES = 8 << 20
SECONDS, RETRIES = 20.0, 4
_SLOWEST_UPLOAD = 1 << 20  # bytes a second
_COALESCE_BYTES = 128 << 10
_DELETED_AT_ONCE = 500
_OPTIONS = ("endpoint", "region")
_CLOCK = "clock"
_FAILING, _SILENT = ("status code: 5", "status code: 429"), ("TimedOut", "timed out")


@dataclass(frozen=True)
class Address:
    """What `s3://bucket/prefix?endpoint=https://...&region=...` names."""

    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Raises `ValueError`."""
        parts = urlsplit(url)
        options = parse_qs(parts.query)
        if parts.scheme != "s3" or not parts.netloc or "@" in parts.netloc or options.keys() - set(_OPTIONS):
            raise ValueError(
                "The store is `file:` (the home folder) or `s3://bucket/prefix`, with `?endpoint=https://host` and "
                "`&region=name` where they are needed; credentials come from AWS_ACCESS_KEY_ID and the like, never "
                "from the address. Check CAIRN_STORE_URL."
            )
        given = {name: values[-1] for name, values in options.items()}
        return cls(parts.netloc, parts.path.strip("/"), given.get("endpoint"), given.get("region"))

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


class Bucket:
    """Objects below a prefix. Thread-safe. `seconds` and `retries`: how long a request may take, and how often it is
    tried again."""

    def __init__(self, address: Address, *, seconds: float = SECONDS, retries: int = RETRIES):
        try:
            import obstore
        except ImportError as error:
            raise StoreUnavailable(
                f"The store {address} needs a package that is not installed: `pip install cairn[s3]`."
            ) from error
        self._obstore: Any = obstore
        self.place = str(address)
        self._address, self._seconds, self._retries = address, seconds, retries
        self._client = functools.cache(self._new_client)

    def _new_client(self, seconds: float) -> S3Store:
        from obstore.store import S3Store

        endpoint = self._address.endpoint
        options: ClientConfig = {"timeout": timedelta(seconds=seconds), "connect_timeout": timedelta(seconds=5)}
        if endpoint is not None and endpoint.startswith("http:"):
            options["allow_http"] = True
        retry: RetryConfig = {
            "max_retries": self._retries,
            "retry_timeout": timedelta(seconds=seconds * (self._retries + 1)),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3), "base": 2},
        }
        given = {"endpoint": endpoint, "region": self._address.region, "prefix": self._address.prefix}
        known: Any = {name: value for name, value in given.items() if value}
        with self._explained():
            return S3Store(self._address.bucket, client_options=options, retry_config=retry, **known)

    @property
    def _store(self) -> S3Store:
        return self._client(self._seconds)

    def create(self, key: str, contents: bytes | memoryview) -> None:
        """Raises `NameInUse` if other contents have the name."""
        size = len(contents)
        # Powers of two, so that a few clients do for all sizes.
        client = self._client(self._seconds + 2 ** math.ceil(math.log2(1 + size / _SLOWEST_UPLOAD)))
        with self._explained():
            try:
                self._obstore.put(client, key, contents, mode="create", use_multipart=False)
            except self._obstore.exceptions.AlreadyExistsError:
                if self.download(key) != hashlib.sha256(contents).digest():
                    raise NameInUse(key, self.place) from None

    def replace(self, key: str, contents: bytes) -> None:
        with self._explained():
            self._obstore.put(self._store, key, contents, use_multipart=False)

    def first(self, key: str, most_bytes: int) -> tuple[bytes, int]:
        """At most so many of the object's first bytes, and its size. Raises `FileNotFoundError`."""
        with self._explained():
            try:
                found = self._obstore.get(self._store, key, options={"range": (0, most_bytes)})
                return bytes(found.bytes()), int(found.meta["size"])
            except self._obstore.exceptions.GenericError as error:
                if "code: 416" in str(error) and self._size(key) == 0:  # then no range can be had
                    return b"", 0
                raise

    def ranges(self, key: str, ranges: Sequence[Range]) -> list[bytes]:
        """Ranges of an object's bytes, in one batch; near ones with one request. Shorter where the object ends. Raises
        `FileNotFoundError`."""
        starts, lengths = [offset for offset, _ in ranges], [length for _, length in ranges]
        with self._explained():
            try:
                found = self._obstore.get_ranges(
                    self._store, key, starts=starts, lengths=lengths, coalesce=_COALESCE_BYTES
                )
                return [bytes(each) for each in found]
            except self._obstore.exceptions.BaseError as error:
                if _names(str(error), *_FAILING, *_SILENT):
                    raise
                size = self._size(key)
                if all(offset + length <= size for offset, length in ranges):
                    raise
        clipped = [(offset, max(0, min(length, size - offset))) for offset, length in ranges]
        inside = iter(self.ranges(key, [each for each in clipped if each[1]]) if any(n for _, n in clipped) else [])
        return [next(inside) if length else b"" for _, length in clipped]

    def download(self, key: str, file: BufferedIOBase | None = None) -> bytes:
        """The whole object, into `file` if one is given. Returns its sha256. Raises `FileNotFoundError`."""
        hasher = hashlib.sha256()
        for piece in self._parts(key):
            hasher.update(piece)
            if file is not None:
                file.write(piece)
        return hasher.digest()

    def _parts(self, key: str) -> Iterator[bytes]:
        """Part by part, so that a large object does not have to come in the time that one request may take."""
        piece, size = self.first(key, PART_BYTES)
        yield piece
        for offset in range(len(piece), size, PART_BYTES):
            piece = self.ranges(key, [(offset, min(PART_BYTES, size - offset))])[0]
            if len(piece) != min(PART_BYTES, size - offset):
                raise StoreUnavailable(f"{key} in {self.place} changed while it was read. Try again.")
            yield piece

    def read(self, key: str) -> bytes:
        return b"".join(self._parts(key))

    def listing(self, prefix: str) -> Iterator[BlobFacts]:
        """All below a prefix, in order."""
        with self._explained():
            for batch in self._obstore.list(self._store, prefix or None, chunk_size=1000):
                for found in batch:
                    yield BlobFacts(found["path"], found["size"], found["last_modified"].timestamp())

    def delete(self, keys: Sequence[str]) -> None:
        """Missing ones are ignored."""
        with self._explained():
            for first in range(0, len(keys), _DELETED_AT_ONCE):
                self._obstore.delete(self._store, list(keys[first : first + _DELETED_AT_ONCE]))

    def move(self, key: str, to: str) -> None:
        """Raises `FileNotFoundError`."""
        with self._explained():
            self._obstore.copy(self._store, key, to)
        self.delete([key])

    def size(self, key: str) -> int:
        """0 if it is missing."""
        with self._explained():
            try:
                return self._size(key)
            except FileNotFoundError:
                next(self.listing(key), None)  # an answer without words may also mean a missing bucket
                return 0

    def _size(self, key: str) -> int:
        return int(self._obstore.head(self._store, key)["size"])

    def now(self) -> float:
        """By the server's clock, which also dates the objects."""
        self.replace(_CLOCK, b"")
        with self._explained():
            return float(self._obstore.head(self._store, _CLOCK)["last_modified"].timestamp())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors as `StoreUnavailable`, except that of a missing object, which stays `FileNotFoundError`."""
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise self._unavailable(error) from error
            raise
        except (self._obstore.exceptions.BaseError, ValueError, OSError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        said, exceptions = str(error), self._obstore.exceptions
        if "NoSuchBucket" in said:
            reason = f"there is no bucket {self._address.bucket}. Check CAIRN_STORE_URL, or make the bucket"
        elif isinstance(error, exceptions.UnauthenticatedError) or _names(
            said, "InvalidAccessKeyId", "SignatureDoes", "code: 401"
        ):
            reason = "it does not accept the credentials. Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        elif isinstance(error, exceptions.PermissionDeniedError) or "code: 403" in said:
            reason = "access is denied. Its owner can allow reading, writing, listing and deleting objects"
        elif "169.254.169.254" in said or "credential" in said.lower():
            reason = "no credentials were found. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        elif _names(said, *_FAILING):
            reason = f"its server fails, {self._retries + 1} times. Try again later"
        elif _names(said, *_SILENT):
            reason = f"it did not answer within {self._seconds:g} seconds, {self._retries + 1} times. Try again later"
        else:
            reason = f"it cannot be reached ({_line(said)}). Check the network and CAIRN_STORE_URL"
        return StoreUnavailable(f"The store {self.place} cannot be used: {reason}. Nothing was lost.")


def _names(said: str, *words: str) -> bool:
    return any(word in said for word in words)


def _line(said: str) -> str:
    """The innermost reason of a chain of errors."""
    return (said.strip().splitlines() or ["no reason given"])[0].rpartition(" - ")[2].rstrip(".")[:160]


FIRST_BYTES = 512 << 10  # of a shard: its header, checksums and landmarks, or most of them
_COPIED_AT_ONCE = 8


class ObjectBlobs:
    """Objects below `folder`, a part of the bucket's prefix; "" is all of it."""

    settle_seconds = 3600.0
    on_this_disk = False
    at_once = 16

    def __init__(self, bucket: Bucket, cache: BlobCache, folder: str = ""):
        self._bucket, self._cache, self._folder = bucket, cache, folder
        self.place = f"{bucket.place}/{folder}".rstrip("/")

    def inside(self, folder: str) -> ObjectBlobs:
        return ObjectBlobs(self._bucket, self._cache, f"{self._folder}{folder}/")

    def create(self, name: str, contents: memoryview) -> None:
        """What was just written is read soon, so it is kept here, too."""
        self._bucket.create(self._key(name), contents)
        if name.endswith(".kv"):
            with contextlib.suppress(OSError):  # the disk is full: it will be fetched
                os.close(self._cache.begin(self._key(name), bytes(contents), len(contents)))

    def bring(self, staged: Path, name: str) -> None:
        """Mapped, so that a large file is not held in memory: obstore would read one that it is given."""
        with staged.open("rb") as file:
            empty = not os.fstat(file.fileno()).st_size  # which cannot be mapped
            contents = b"" if empty else memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._bucket.create(self._key(name), contents)

    def settle(self, staged: Path, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # the bucket has it
            self._cache.put(staged, self._key(name))

    def replace(self, name: str, contents: bytes) -> None:
        self._bucket.replace(self._key(name), contents)

    def open(self, name: str) -> OpenCached:
        key = self._key(name)
        front = partial(self._bucket.first, key, FIRST_BYTES)
        descriptor = self._cache.open(key)
        if descriptor is None:
            descriptor = self._cache.begin(key, *front())
        return OpenCached(self._cache, descriptor, partial(self._bucket.ranges, key), front)

    def prefetch(self, names: Sequence[str]) -> None:
        missing = [key for key in map(self._key, names) if not self._cache.path(key).exists()]

        def begin(key: str) -> None:
            with contextlib.suppress(FileNotFoundError):  # named by whoever opens it
                os.close(self._cache.begin(key, *self._bucket.first(key, FIRST_BYTES)))

        all_at_once(begin, missing, self.at_once)

    def copy(self, name: str) -> BufferedIOBase:
        self._cache.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, path = tempfile.mkstemp(dir=self._cache.folder)
        os.unlink(path)
        file = os.fdopen(descriptor, "w+b")
        try:
            self._bucket.download(self._key(name), file)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    def read(self, name: str) -> bytes:
        return self._bucket.read(self._key(name))

    def local(self, name: str, sha256: str) -> Path:
        key = self._key(name)
        if (path := self._cache.whole(key)) is not None:
            return path
        staging = self._cache.staging(key)
        try:
            with open(create_file(staging), "wb") as file:
                digest = self._bucket.download(key, file)
            if digest.hex() != sha256:
                raise DamagedOriginal(name, self.place)
            return self._cache.put(staging, key)
        finally:
            staging.unlink(missing_ok=True)

    def listing(self, folder: str = "") -> Iterator[BlobFacts]:
        """What is not in the list any more leaves the cache: another machine deleted it."""
        prefix = self._key(folder).rstrip("/")
        cached, found = set(self._cache.names(prefix)), set()
        for fact in self._bucket.listing(prefix):
            found.add(fact.name)
            yield BlobFacts(fact.name.removeprefix(self._folder), fact.size_bytes, fact.changed_at)
        for key in cached - found:
            self._cache.drop(key)

    def size(self, names: Iterable[str]) -> int:
        return sum(all_at_once(self._bucket.size, [self._key(name) for name in names], self.at_once))

    def delete(self, names: Iterable[str]) -> int:
        """Nothing is said of the bytes freed: that would be a question for each."""
        keys = [self._key(name) for name in names]
        self._bucket.delete(keys)
        for key in keys:
            self._cache.drop(key)
        return 0

    def sweep(self, names: Sequence[str]) -> None:
        batch = f"{TRASH}/{new_batch()}"

        def take(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):  # another process took or deleted it
                self._bucket.move(self._key(name), f"{batch}/{self._key(name)}")
            self._cache.drop(self._key(name))

        all_at_once(take, list(names), _COPIED_AT_ONCE)

    def empty_trash(self, older_than_seconds: float) -> int:
        newest = self.now() - older_than_seconds
        due = [found for found in self._bucket.listing(TRASH) if found.changed_at <= newest]
        self._bucket.delete([found.name for found in due])
        return sum(found.size_bytes for found in due)

    def now(self) -> float:
        return self._bucket.now()

    def _key(self, name: str) -> str:
        assert ".." not in name and not name.startswith("/"), name
        return self._folder + name


CACHE_FOLDER = "cache"
CACHE_BYTES = 20_000_000_000


def open_blobs(url: str | None, home: Path, *, cache_bytes: int = CACHE_BYTES) -> Blobs:
    """The store at `url`; None or `file:` is the home folder, which else holds a cache of at most `cache_bytes`. Asks
    nobody yet. Raises `ValueError` for a URL that cannot be used, `StoreUnavailable` if a package is missing."""
    if url is None or url == "file:":
        return FileBlobs(home)
    return ObjectBlobs(Bucket(Address.parse(url)), BlobCache(home / CACHE_FOLDER, cache_bytes))
