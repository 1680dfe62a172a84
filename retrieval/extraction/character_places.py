"""Where every character of a PDF stands, so that any words of it can be marked on a page, and the figures and tables of
a document, kept beside its page images.

Derived from the file like the images: it may be deleted at any time, and is made again when it is needed.

Axes: N characters of the text.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

import numpy as np

from retrieval.extraction.document import Exhibits, ExtractedBox, ExtractedDocument, line_boxes
from retrieval.extraction.exhibits import from_plain

FILE, EXHIBITS = "characters.npz", "exhibits.json"
_MADE = 3  # counts what is found: what was kept before is found anew
_STEPS = 65_535  # boxes are kept in this many steps of a page's width and height: a hundredth of a point


def keep(folder: Path, extracted: ExtractedDocument) -> None:
    """Write places and exhibits into `folder` (a document's page images), in place of older ones."""
    folder.mkdir(exist_ok=True, mode=0o700)
    digest = _digest(extracted.text)
    places = io.BytesIO()
    np.savez_compressed(
        places,
        text=np.frombuffer(digest, np.uint8),
        page_N=extracted.page_N,
        line_N=extracted.line_N,
        box_N4=np.rint(extracted.box_N4.clip(0, 1) * _STEPS).astype(np.uint16),
    )
    found = json.dumps({"made": _MADE, "text": digest.hex(), **asdict(extracted.exhibits)})
    new = {name: data for name, data in extracted.pictures.items() if not (folder / name).is_file()}
    for name, data in {**new, FILE: places.getvalue(), EXHIBITS: found.encode()}.items():
        unfinished = folder / f".{uuid4().hex}"
        unfinished.write_bytes(data)
        unfinished.replace(folder / name)


def boxes(folder: Path, text: str, start: int, end: int) -> list[ExtractedBox] | None:
    """Exact line boxes of `text[start:end]`; None if no places of this text are kept."""
    span = slice(max(0, start), max(0, end))
    try:
        with np.load(folder / FILE, allow_pickle=False) as kept:
            if kept["text"].tobytes() != _digest(text):
                return None
            return line_boxes(kept["page_N"][span], kept["line_N"][span], kept["box_N4"][span] / np.float32(_STEPS))
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error):  # gone or damaged
        return None


def kept_exhibits(folder: Path, text: str) -> Exhibits | None:
    """Figures and tables of the document with this text; None if they are not kept."""
    try:
        plain = json.loads((folder / EXHIBITS).read_text(encoding="utf-8"))
        is_current = plain["text"] == _digest(text).hex() and plain.get("made") == _MADE
        return from_plain(plain) if is_current else None
    except (OSError, ValueError, KeyError, TypeError):  # gone or damaged
        return None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
