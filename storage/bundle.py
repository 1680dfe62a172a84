"""The file of a bundle: a ZIP whose members are stored as they are, with a manifest of their sizes and hashes.

    manifest.json                 format, the model's fingerprint, collections, every member with size and sha256
    documents/0/rows.json         what the catalogue knows of the first document
    documents/0/text.txt          its text
    documents/0/original.pdf      the file it was read from
    documents/0/0.kv              its memory files, in order

Nothing is ever unpacked under a name from the file: names are looked up, never followed. Members are not compressed, so
that none is larger than the file, and the sizes in the manifest, in the directory and of the file must agree. What is
read as a whole before it can be checked, directory and manifest, may only be a small part of the file: a few bytes of
either become many in memory.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import math
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from storage.errors import StorageError
from storage.names import clean_name
from storage.properties import checked_property, checked_values
from storage.records import NewBlock, Page, Property

_MOST_TOKEN = 1 << 32


@dataclass(frozen=True)
class BundledRows:
    """`shard_blocks`: how many blocks each memory file holds, in order; `blocks`: start, end, tokens and boxes of each;
    `properties`: name, value, whether set by hand; `title_keys`: in base64; `original_sha256`: differs from
    `content_sha256` for an unlocked copy."""

    source: str
    title: str
    kind: str
    content_sha256: str
    original_sha256: str
    collection: str | None
    num_tokens: int
    notes: list[str]
    extras: dict[str, Any]
    pages: list[tuple[int, str, float, float, int, int, str]]
    blocks: list[tuple[int, int, list[int], list[tuple[int, float, float, float, float]]]]
    shard_blocks: list[int]
    title_keys: str = ""
    properties: list[tuple[str, str, bool]] = field(default_factory=list)

    def packed(self) -> bytes:
        return json.dumps(vars(self), separators=(",", ":")).encode()

    def page_rows(self) -> list[Page]:
        return [Page(*page) for page in self.pages]

    def new_blocks(self) -> list[NewBlock]:
        return [NewBlock(start, end, tuple(tokens), tuple(boxes)) for start, end, tokens, boxes in self.blocks]

    def property_rows(self) -> list[Property]:
        return [Property(name, clean_name(value), by_hand) for name, value, by_hand in self.properties]

    def title_bytes(self) -> bytes:
        return base64.b64decode(self.title_keys, validate=True)


def unpacked(packed: bytes, text: str, *, vocabulary: int, block_tokens: int) -> BundledRows:
    """The rows of a document, checked. Raises `ValueError` for anything that could not have come from a catalogue with
    this text and model."""
    from pydantic import TypeAdapter, ValidationError

    try:
        rows: BundledRows = TypeAdapter(BundledRows).validate_json(packed)
        _check(rows, text, vocabulary, block_tokens)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}") from None
    return rows


def _check(rows: BundledRows, text: str, vocabulary: int, block_tokens: int) -> None:
    for name in ("content_sha256", "original_sha256"):
        value = getattr(rows, name)
        if len(value) != 64 or set(value) - set("0123456789abcdef"):
            raise ValueError(f"{name} is no hash")
    for property_name, value, _ in rows.properties:
        if checked_property(property_name) != property_name:
            raise ValueError(f"{property_name[:50]!r} cannot be the name of a property")
        checked_values(property_name, [value])
    if not rows.blocks or sum(rows.shard_blocks) != len(rows.blocks) or min(rows.shard_blocks) < 1:
        raise ValueError("its blocks and memory files do not fit together")
    if [page[0] for page in rows.pages] != list(range(len(rows.pages))):
        raise ValueError("its pages are not numbered")
    for _, _, width, height, start, end, _ in rows.pages:
        if not (0 <= start <= end <= len(text) and math.isfinite(width) and math.isfinite(height)):
            raise ValueError("a page lies outside its text")
    for start, end, tokens, boxes in rows.blocks:
        if not 0 <= start <= end <= len(text):
            raise ValueError("a block lies outside its text")
        if not 1 <= len(tokens) <= block_tokens or min(tokens) < 0 or max(tokens) >= min(vocabulary, _MOST_TOKEN):
            raise ValueError("a block holds other tokens than the model has")
        _check_boxes(boxes, len(rows.pages))
    if sum(len(tokens) for _, _, tokens, _ in rows.blocks) != rows.num_tokens:
        raise ValueError("its tokens are not as many as it says")


def _check_boxes(boxes: Sequence[tuple[int, float, float, float, float]], num_pages: int) -> None:
    for page, *sides in boxes:
        if not 0 <= page < num_pages or not all(math.isfinite(side) and -1 <= side <= 2 for side in sides):
            raise ValueError("a box lies outside its page")


FORMAT, MANIFEST = "cairn-bundle/1", "manifest.json"
COPY_BYTES = 1 << 20
_SMALL_BYTES = 1 << 20  # always allowed to directory and manifest
_DIRECTORY_PART, _MANIFEST_PART = 10, 8  # of the file that each may be; documents of ten words need half of it
_END_BYTES, _END_64_BYTES, _LOCATOR_BYTES = 22, 56, 20
_NAME = re.compile(r"documents/\d{1,9}/(rows\.json|text\.txt|original\.[a-z0-9]{1,16}|\d{1,9}\.kv)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BROKEN = (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError, RecursionError)


class BadBundle(StorageError):
    """A file is no bundle, or a damaged one. Nothing of it was imported."""

    def __init__(self, name: str, reason: str):
        super().__init__(
            f"{name} cannot be imported: {reason}. Nothing was changed. Export it again and copy it whole."
        )


class BundleWriter:
    """Writes members as they come. `close` adds the manifest, without which the file is no bundle."""

    def __init__(self, file: IO[bytes]):
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
        self._members: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, *_error: object) -> None:
        with suppress(OSError):  # the error on its way says what happened; without a manifest the file is no bundle
            self._zip.close()

    def add(self, name: str, pieces: Iterable[bytes]) -> str:
        """Returns the sha256 of what was written."""
        assert _NAME.fullmatch(name) and name not in self._members, name
        hasher, size = hashlib.sha256(), 0
        with self._zip.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
            for piece in pieces:
                hasher.update(piece)
                size += len(piece)
                member.write(piece)
        self._members[name] = {"size": size, "sha256": hasher.hexdigest()}
        return hasher.hexdigest()

    def close(self, **facts: Any) -> None:
        manifest = {"format": FORMAT, **facts, "members": self._members}
        self._zip.writestr(MANIFEST, json.dumps(manifest))
        self._zip.close()


class BundleReader:
    """Reads members and checks every byte. Raises `BadBundle` for anything wrong."""

    def __init__(self, path: Path):
        self.name = path.name
        if path.exists() and not path.is_file():
            raise self.bad("it is a device or a folder, not a file")
        with ExitStack() as opened, self._explained():
            self._check_directory(path)
            self._zip = opened.enter_context(zipfile.ZipFile(path))
            self.manifest = self._read_manifest(path.stat().st_size)
            self._members: Mapping[str, Mapping[str, Any]] = self.manifest["members"]
            self._compare(path.stat().st_size)
            self._opened = opened.pop_all()

    def __enter__(self) -> BundleReader:
        return self

    def __exit__(self, *_error: object) -> None:
        self._opened.close()

    def bad(self, reason: str) -> BadBundle:
        return BadBundle(self.name, reason)

    def names(self) -> list[str]:
        return list(self._members)

    def size(self, name: str) -> int:
        """Raises `BadBundle` if there is no such member."""
        if name not in self._members:
            raise self.bad(f"{name} is missing")
        return int(self._members[name]["size"])

    def pieces(self, name: str) -> Iterator[bytes]:
        """The member piece by piece; raises `BadBundle` at its end if its hash is wrong."""
        self.size(name)
        hasher = hashlib.sha256()
        with self._explained(), self._zip.open(name) as member:
            while piece := member.read(COPY_BYTES):
                hasher.update(piece)
                yield piece
        if hasher.hexdigest() != self._members[name]["sha256"]:
            raise self.bad(f"{name} is not what was exported")

    def read(self, name: str, *, most_bytes: int) -> bytes:
        """A whole member."""
        if self.size(name) > most_bytes:
            raise self.bad(f"{name} has {self.size(name):,} bytes; at most {most_bytes:,} can be right")
        return b"".join(self.pieces(name))

    def _check_directory(self, path: Path) -> None:
        """Before each of its entries becomes an object of ten times its size."""
        whole = path.stat().st_size
        with open(path, "rb") as file:
            file.seek(-min(whole, _END_BYTES + _LOCATOR_BYTES + _END_64_BYTES), 2)
            tail = file.read().rjust(_END_BYTES + _LOCATOR_BYTES + _END_64_BYTES, b"\0")
        end, locator = tail[-_END_BYTES:], tail[_END_64_BYTES:-_END_BYTES]
        if not end.startswith(b"PK\5\6") or not end.endswith(b"\0\0"):  # a comment after it would be none of ours
            raise self.bad("it is not a bundle of Cairn, or cut short")
        (size,) = struct.unpack_from("<L", end, 12)
        if locator.startswith(b"PK\6\7"):
            size = max(size if size < 0xFFFFFFFF else 0, *struct.unpack_from("<Q", tail, 40))
        if size > _SMALL_BYTES + whole // _DIRECTORY_PART:
            raise self.bad("it names more members than it can have")

    def _read_manifest(self, file_bytes: int) -> dict[str, Any]:
        info = self._zip.getinfo(MANIFEST)
        if info.compress_type != zipfile.ZIP_STORED:
            raise self.bad("some of it is compressed")
        if info.file_size > _SMALL_BYTES + file_bytes // _MANIFEST_PART:
            raise self.bad("its manifest is too large")
        manifest = json.loads(self._zip.read(MANIFEST))
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            shown = manifest.get("format") if isinstance(manifest, dict) else None
            raise self.bad(f"it has format {shown!r}, and this release reads {FORMAT!r}")
        members = manifest.get("members")
        if not isinstance(members, dict) or not all(map(_is_member, members.items())):
            raise self.bad("its manifest is damaged")
        return manifest

    def _compare(self, file_bytes: int) -> None:
        """The directory, the manifest and the file must tell the same."""
        infos = self._zip.infolist()
        sizes = {info.filename: info.file_size for info in infos if info.filename != MANIFEST}
        if len({info.filename for info in infos}) != len(infos):
            raise self.bad("two of its members have the same name")
        if any(info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size for info in infos):
            raise self.bad("some of it is compressed")
        if sizes != {name: member["size"] for name, member in self._members.items()}:
            raise self.bad("its manifest names other members than it has")
        if sum(info.file_size for info in infos) > file_bytes:
            raise self.bad("its members are larger than the file")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            raise self.bad("it is not a bundle of Cairn, or cut short") from error
        except OSError as error:
            if error.errno != errno.EINVAL:  # a place in the file that is none
                raise
            raise self.bad("it is not a bundle of Cairn, or cut short") from error
        except _BROKEN as error:
            raise self.bad(f"it is not a bundle of Cairn, or damaged ({_line(error)})") from error


def _is_member(item: tuple[Any, Any]) -> bool:
    name, member = item
    return (
        bool(_NAME.fullmatch(name))
        and isinstance(member, dict)
        and type(member.get("size")) is int
        and member["size"] >= 0
        and isinstance(member.get("sha256"), str)
        and bool(_SHA256.fullmatch(member["sha256"]))
    )


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:200]
