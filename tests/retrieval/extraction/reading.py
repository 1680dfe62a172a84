"""What the tests of several formats share: reading in this process, and generic odd files."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.extract import ExtractLimits
from retrieval.extraction.formats import format_of, function_named
from tests.retrieval.packed import repacked

SMALL = ExtractLimits(characters=20_000)
ENTITIES = b'<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;"><!ENTITY c SYSTEM "file:///etc/hostname">]>'
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2000)


def read(path: Path, limits: ExtractLimits | None = None) -> ExtractedDocument:
    return function_named(format_of(path).extractor)(path, limits or ExtractLimits(), None)


def written(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def odd_archive(path: Path, kind: str, part: str) -> Path:
    """A packed file spoiled in one way; `part` is the XML that holds its text."""
    if kind == "cut":
        return written(path.parent, path.name, path.read_bytes()[:700])
    if kind == "words":
        return written(path.parent, path.name, b"only words")
    if kind == "encrypted":
        return written(path.parent, path.name, OLE)
    if kind == "foreign":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("hello.txt", "hello")
        return path
    changes: dict[str, Callable[[bytes], bytes]] = {
        "entities": lambda xml: re.sub(rb"(<\?xml[^>]*\?>)?", lambda found: found[0] + ENTITIES, xml, count=1),
        "broken xml": lambda xml: xml[: len(xml) // 2],
        "emptied": lambda xml: b"",
        "deep": lambda xml: b"<a>" * 9000,
        "bomb": lambda xml: xml + b" " * 60_000_000,
    }
    return repacked(path, {part: changes[kind]})
