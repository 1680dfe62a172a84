"""What the worker process and its caller exchange: JSON, UTF-8 text and plain arrays in files, no pickle.

The caller does not trust the worker (it read a possibly hostile file): sizes, shapes and ranges are checked.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np

from retrieval.errors import ExtractError, NothingToRead
from retrieval.extraction.document import (
    Aside,
    AsideKind,
    ExtractedDocument,
    ExtractedFigure,
    ExtractedPage,
    OutlineEntry,
)
from retrieval.extraction.exhibits import MOST_PICTURE_BYTES, PICTURE_NAME, SIGNATURES, from_plain
from retrieval.extraction.limits import ExtractLimits

AHEAD = "--ahead"
"""Argument of a worker that is started before there is a request for it."""
EXIT_IDLE = 75
"""Exit status of a worker that got no request."""
FORKS = sys.platform == "linux"
"""Whether a process that waits forks those that serve: elsewhere libraries may not survive it."""
IMAGE, COMPLAINT = "page.png", "complaint.txt"
_RESULT, _TEXT, _ARRAYS, _PROGRESS = "result.json", "text.txt", "places.npz", "progress.json"
_RESULT_BYTES, _PROGRESS_BYTES = 64 << 20, 200
_PICTURES, _LARGEST_PICTURE = "pictures", 8 << 20
PROGRESS_SECONDS = 0.25


def write_result(folder: Path, facts: dict[str, Any]) -> None:
    """Last of all files: its presence says that all is written."""
    (folder / _RESULT).write_text(json.dumps(facts), encoding="utf-8")


def teller(folder: Path) -> Callable[..., None]:
    """A function that the worker calls with what is done, of how much, and the characters found: now and then it writes
    them for the caller."""
    told = float("-inf")

    def tell(done: int, total: int, characters: int = 0) -> None:
        nonlocal told
        if time.monotonic() - told < PROGRESS_SECONDS:
            return
        told = time.monotonic()
        unfinished = folder / f".{_PROGRESS}"
        unfinished.write_text(json.dumps([done, total, characters]), encoding="utf-8")
        unfinished.replace(folder / _PROGRESS)

    return tell


def read_progress(folder: Path, limits: ExtractLimits) -> tuple[int, int, int] | None:
    """What the worker told last: done, of how much, and the characters so far; None before it did, or if it cannot
    be."""
    path = folder / _PROGRESS
    try:
        if not path.is_file() or path.stat().st_size > _PROGRESS_BYTES:
            return None
        done, total, characters = map(int, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    sound = 0 <= done <= total <= limits.pages and 0 <= characters <= limits.characters
    return (done, total, characters) if sound else None


def write_document(folder: Path, document: ExtractedDocument) -> dict[str, Any]:
    """Writes text and arrays; returns the rest, for `write_result`."""
    (folder / _TEXT).write_bytes(document.text.encode("utf-8"))
    (folder / _PICTURES).mkdir(exist_ok=True)
    for name, data in document.pictures.items():
        (folder / _PICTURES / name).write_bytes(data)
    np.savez(folder / _ARRAYS, page_N=document.page_N, line_N=document.line_N, box_N4=document.box_N4)
    return {
        "title": document.title,
        "pages": [asdict(page) for page in document.pages],
        "outline": [asdict(entry) for entry in document.outline],
        "metadata": document.metadata,
        "notes": document.notes,
        "scanned": document.scanned,
        "exhibits": asdict(document.exhibits),
        "asides": [asdict(one) for one in document.asides],
    }


def read_result(folder: Path) -> dict[str, Any] | None:
    """The facts that the worker wrote, or None if it ended before it could. Raises ExtractError with its reason."""
    path = folder / _RESULT
    if not path.is_file() or path.stat().st_size > _RESULT_BYTES:
        return None
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # killed while writing
        return None
    if "error" in facts:
        pages = [int(page) for page in facts.get("scanned", ())]
        raise NothingToRead(str(facts["error"]), pages) if pages else ExtractError(str(facts["error"]))
    return facts


def read_document(folder: Path, facts: dict[str, Any], limits: ExtractLimits) -> ExtractedDocument:
    """Raises ValueError, KeyError or TypeError where the files are not what a sound worker writes."""
    for name, most in ((_TEXT, 8 * limits.characters), (_ARRAYS, 64 * limits.characters + 65_536)):
        if (folder / name).stat().st_size > most:  # spelled-out ligatures may outnumber the printed characters
            raise ValueError("result too large")
    text = (folder / _TEXT).read_bytes().decode("utf-8")
    with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
        page_N, line_N, box_N4 = arrays["page_N"], arrays["line_N"], arrays["box_N4"]
    pages = tuple(ExtractedPage(**page) for page in facts["pages"])
    outline = tuple(OutlineEntry(**entry) for entry in facts["outline"])
    sound = (
        page_N.shape == line_N.shape == (len(text),)
        and box_N4.shape == (len(text), 4)
        and page_N.dtype == line_N.dtype == np.int32
        and box_N4.dtype == np.float32
        and bool(np.isfinite(box_N4).all())
        and (len(text) == 0 or (page_N.max() < len(pages) and page_N.min() >= -1))
        and all(0 <= page.start <= page.end <= len(text) for page in pages)
    )
    if not sound:
        raise ValueError("result inconsistent")
    exhibits = from_plain(facts["exhibits"])
    pictures = _read_pictures(folder, exhibits.figures)
    asides = tuple(Aside(**one) for one in facts["asides"])
    if any(one.kind not in get_args(AsideKind) or not 0 <= one.page < len(pages) for one in asides):
        raise ValueError("an aside of no known kind or page")
    if not all(figure.start is None or 0 <= figure.start <= len(text) for figure in exhibits.figures):
        raise ValueError("a figure beyond the text")
    return ExtractedDocument(
        str(facts["title"]), text, pages, outline, {str(k): str(v) for k, v in facts["metadata"].items()},
        page_N, line_N, box_N4.clip(0, 1), tuple(map(str, facts["notes"])), tuple(map(int, facts["scanned"])),
        exhibits, pictures, asides,
    )  # fmt: skip


def _read_pictures(folder: Path, figures: Sequence[ExtractedFigure]) -> dict[str, bytes]:
    """The pictures that figures name: files of the right kind, together not too large. Raises ValueError."""
    pictures: dict[str, bytes] = {}
    left = MOST_PICTURE_BYTES + _LARGEST_PICTURE
    for name in {figure.picture for figure in figures if figure.picture}:
        path = folder / _PICTURES / name
        if not PICTURE_NAME.fullmatch(name) or path.is_symlink() or not path.is_file():
            raise ValueError("a figure without its picture")
        left -= path.stat().st_size
        if left < 0 or path.stat().st_size > _LARGEST_PICTURE:
            raise ValueError("pictures too large")
        pictures[name] = path.read_bytes()
        if not pictures[name].startswith(SIGNATURES[name.rpartition(".")[2]]):
            raise ValueError("a picture that is none")
    return pictures
