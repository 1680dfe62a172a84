"""Sources of files to read: this machine, or a bucket."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from retrieval.errors import ExtractError, InvalidRequest
from storage.blobs.s3 import Address, Bucket

SCHEME = "s3://"


@dataclass(frozen=True)
class FileSource:
    """`name`: as it is shown."""

    path: Path
    name: str

    @contextmanager
    def fetched(self) -> Iterator[Path]:
        yield self.path


@dataclass(frozen=True)
class BucketSource:
    """One object. `name`: as it is shown, below the prefix that was asked for."""

    bucket: Bucket
    key: str
    name: str

    @contextmanager
    def fetched(self) -> Iterator[Path]:
        """The file on this machine, until the end of the block. Raises `ExtractError`, `StoreUnavailable`."""
        with tempfile.TemporaryDirectory(prefix="cairn-source-") as folder:
            path = Path(folder) / PurePosixPath(self.key or self.name).name
            try:
                with path.open("wb") as file:
                    self.bucket.download(self.key, file)
            except FileNotFoundError:
                raise ExtractError(f"{self.name} is no longer in {self.bucket.place}.") from None
            yield path


def bucket_sources(url: str, suffixes: Collection[str]) -> Iterator[BucketSource]:
    """Objects below `s3://bucket/prefix` whose names end so, in order; also the one object that has that very name.

    Options and credentials as with CAIRN_STORE_URL. Raises `InvalidRequest`, `StoreUnavailable`.
    """
    try:
        address = Address.parse(url)
    except ValueError as error:
        raise InvalidRequest(f"{url} cannot be read: use s3://bucket/prefix, as for CAIRN_STORE_URL.") from error
    one = PurePosixPath(address.prefix)
    if one.suffix.lower() in suffixes:
        parent = "" if str(one.parent) == "." else str(one.parent)
        bucket = Bucket(Address(address.bucket, parent, address.endpoint, address.region))
        yield BucketSource(bucket, one.name, one.name)
        return
    bucket = Bucket(address)
    for name in sorted(fact.name for fact in bucket.listing("")):
        hidden = any(part.startswith(".") for part in PurePosixPath(name).parts)
        if not hidden and PurePosixPath(name).suffix.lower() in suffixes:
            yield BucketSource(bucket, name, name)
