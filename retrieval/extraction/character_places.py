"""Where every character of a PDF stands, kept beside its page images, so that any words of it can be marked on a page.

Derived from the file like the images: it may be deleted at any time, and is made again when it is needed.

Axes: N characters of the text.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from retrieval.extraction import exhibits
from retrieval.extraction.document import Exhibits, ExtractedBox, ExtractedDocument, line_boxes

FILE = "characters.npz"
_STEPS = 65_535  # boxes are kept in this many steps of a page's width and height: a hundredth of a point


def keep(folder: Path, extracted: ExtractedDocument) -> None:
    """Write the places into `folder` (a document's page images), in place of older ones."""
    folder.mkdir(exist_ok=True, mode=0o700)
    unfinished = folder / f".{FILE}"
    with unfinished.open("wb") as file:
        np.savez_compressed(
            file,
            text=np.frombuffer(_digest(extracted.text), np.uint8),
            page_N=extracted.page_N,
            line_N=extracted.line_N,
            box_N4=np.rint(extracted.box_N4.clip(0, 1) * _STEPS).astype(np.uint16),
        )
    unfinished.replace(folder / FILE)
    exhibits.keep(folder, _digest(extracted.text).hex(), extracted.exhibits, extracted.pictures)


def boxes(folder: Path, text: str, start: int, end: int) -> list[ExtractedBox] | None:
    """Exact line boxes of `text[start:end]`; None if no places of this text are kept."""
    path = folder / FILE
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as kept:
        if kept["text"].tobytes() != _digest(text):
            return None
        span = slice(max(0, start), max(0, end))
        return line_boxes(kept["page_N"][span], kept["line_N"][span], kept["box_N4"][span] / np.float32(_STEPS))


def kept_exhibits(folder: Path, text: str) -> Exhibits | None:
    """Figures and tables of the document with this text; None if they are not kept."""
    return exhibits.kept(folder, _digest(text).hex())


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
