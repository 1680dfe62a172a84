"""Pictures of text as files (PNG, JPEG, TIFF), each frame a page, and what was recognised in the pictures of any
document, kept by page in a folder: derived from the file, it may be deleted at any time. Runs inside the worker process
only."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument, ExtractedPage
from retrieval.extraction.figures import PICTURE_ERRORS, on_white, upright
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.pdf.assemble import NO_TEXT, Page, assemble, read_blocks
from retrieval.extraction.pdf.characters import PageCharacters
from retrieval.extraction.pdf.tables.rules import Rules

_ARRAYS = tuple(each.name for each in fields(PageCharacters) if each.name.endswith(("_N", "_N2", "_N4")))
_KINDS = ("PNG", "JPEG", "TIFF")
_DPI = 150.0  # where the file states none that can be true
_LEAST_DPI, _MOST_DPI = 50.0, 1200.0


def extract_picture(
    path: Path, limits: ExtractLimits, password: str | None = None, recognised: Path | None = None
) -> ExtractedDocument:
    """The text that was recognised in a picture. Raises ExtractError."""
    pages: list[Page] = []
    with opened_picture(path, limits) as picture:
        for number in range(_frames(picture, limits)):
            width, height = _points(_frame(picture, number, limits))
            found = kept(recognised, number)
            facts = ExtractedPage(number, str(number + 1), width, height, 0, 0, "" if found else NO_TEXT)
            read = read_blocks(number, found or [], Rules())
            pages.append(Page(facts, read.lines, found is None, found is not None, read.tables))
    return assemble(path, pages, {}, (), [])


@contextmanager
def opened_picture(path: Path, limits: ExtractLimits) -> Iterator[Image.Image]:
    """Raises ExtractError, also for what the body of the `with` finds damaged in the picture."""
    try:
        with Image.open(path, formats=_KINDS) as picture:
            yield picture
    except UnidentifiedImageError as error:
        raise ExtractError("The file is named like a picture but is none (PNG, JPEG or TIFF).") from error
    except Image.DecompressionBombError as error:
        raise _too_large(limits) from error
    except PICTURE_ERRORS as error:
        raise ExtractError(f"The picture is damaged or cut off ({str(error)[:150]}). Export it again.") from error


def size_of_picture(data: bytes) -> tuple[int, int]:
    """Width and height in pixels as the file states them; 0 for what is no picture."""
    try:
        with Image.open(io.BytesIO(data), formats=_KINDS) as picture:
            return picture.size
    except PICTURE_ERRORS:
        return 0, 0  # whoever reads it says what is wrong with it


def page_picture(path: Path, page: int, limits: ExtractLimits) -> tuple[Image.Image, float, float]:
    """One frame, upright, in colour or grey, and its size in points. Raises ExtractError."""
    with opened_picture(path, limits) as picture:
        if not 0 <= page < _frames(picture, limits):
            raise ExtractError(f"There is no page {page + 1}.")
        frame = _frame(picture, page, limits)
        width, height = _points(frame)
        return on_white(upright(frame)), width, height


def draw_picture(path: Path, page: int, width_px: int, limits: ExtractLimits) -> bytes:
    """One frame as PNG, `width_px` wide. Raises ExtractError."""
    picture, _, _ = page_picture(path, page, limits)
    scale = min(width_px / picture.width, (limits.pixels / (picture.width * picture.height)) ** 0.5)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    buffer = io.BytesIO()
    picture.resize(size, Image.Resampling.LANCZOS).convert("RGB").save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


def _frames(picture: Image.Image, limits: ExtractLimits) -> int:
    count = getattr(picture, "n_frames", 1) if picture.format == "TIFF" else 1
    if count > limits.pages:
        raise ExtractError(f"This picture has {count:,} pages; at most {limits.pages:,} are read.")
    return count


def _frame(picture: Image.Image, number: int, limits: ExtractLimits) -> Image.Image:
    picture.seek(number)
    if picture.width * picture.height > limits.pixels:
        raise _too_large(limits)
    return picture


def _too_large(limits: ExtractLimits) -> ExtractError:
    return ExtractError(f"The picture has more than {limits.pixels / 1e6:,.0f} million pixels. Make it smaller.")


def _points(picture: Image.Image) -> tuple[float, float]:
    """Width and height as displayed, in points."""
    stated = picture.info.get("dpi", (_DPI, _DPI))
    across = float(stated[0]) if isinstance(stated, tuple) and stated else _DPI
    dpi = across if _LEAST_DPI <= across <= _MOST_DPI else _DPI
    width, height = 72 * picture.width / dpi, 72 * picture.height / dpi
    return (height, width) if picture.getexif().get(0x0112) in (5, 6, 7, 8) else (width, height)


def keep(folder: Path, page: int, blocks: Sequence[PageCharacters]) -> None:
    """The characters of a page by blocks of print, in the order of reading; none for a page without words."""
    arrays = {f"{name} {n}": getattr(block, name) for n, block in enumerate(blocks) for name in _ARRAYS}
    sizes = np.array([[block.width, block.height] for block in blocks]).reshape(-1, 2)
    unfinished = folder / f".{page}.npz"
    with unfinished.open("wb") as file:
        np.savez_compressed(file, sizes=sizes, **arrays)
    unfinished.replace(folder / f"{page}.npz")


def kept(folder: Path | None, page: int) -> list[PageCharacters] | None:
    """None if the page was not recognised, or what was kept of it is damaged."""
    path = folder / f"{page}.npz" if folder is not None else None
    if path is None or not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [
                PageCharacters(width, height, **{name: arrays[f"{name} {n}"] for name in _ARRAYS}, unreadable=0)
                for n, (width, height) in enumerate(arrays["sizes"].tolist())
            ]
    except Exception:  # numpy, zipfile, zlib and tokenize each raise their own on a damaged file
        return None
