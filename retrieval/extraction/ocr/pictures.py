"""Pictures of text as files (PNG, JPEG, TIFF): each frame a page. Runs inside the worker process only."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from PIL import Image, ImageOps, UnidentifiedImageError

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument, ExtractedPage
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.ocr.recognised import kept
from retrieval.extraction.pdf.assemble import NO_TEXT, Page, assemble, read_blocks

_KINDS = ("PNG", "JPEG", "TIFF")
_DPI = 150.0  # where the file states none that can be true
_LEAST_DPI, _MOST_DPI = 50.0, 1200.0
_WHITE = 255


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
            read = read_blocks(number, found or [], None)
            pages.append(Page(facts, read.lines, found is None, found is not None, read.tables))
    return assemble(path, pages, {}, (), [])


@contextmanager
def opened_picture(path: Path, limits: ExtractLimits) -> Iterator[Image.Image]:
    """Raises ExtractError, also for what the body of the `with` finds damaged in the picture."""
    usual, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, limits.pixels
    try:
        with Image.open(path, formats=_KINDS) as picture:
            yield picture
    except UnidentifiedImageError as error:
        raise ExtractError("The file is named like a picture but is none (PNG, JPEG or TIFF).") from error
    except Image.DecompressionBombError as error:
        raise _too_large(limits) from error
    except (OSError, SyntaxError, ValueError, EOFError, KeyError, TypeError, IndexError) as error:
        # what PIL raises on damaged files
        raise ExtractError(f"The picture is damaged or cut off ({str(error)[:150]}). Export it again.") from error
    finally:
        Image.MAX_IMAGE_PIXELS = usual


def size_of_picture(data: bytes) -> tuple[int, int]:
    """Width and height in pixels as the file states them; 0 for what is no picture."""
    try:
        with Image.open(io.BytesIO(data), formats=_KINDS) as picture:
            return picture.size
    except (OSError, SyntaxError, ValueError, EOFError, KeyError, TypeError, IndexError, Image.DecompressionBombError):
        return 0, 0  # whoever reads it says what is wrong with it


def page_picture(path: Path, page: int, limits: ExtractLimits) -> tuple[Image.Image, float, float]:
    """One frame, upright, in colour or grey, and its size in points. Raises ExtractError."""
    with opened_picture(path, limits) as picture:
        if not 0 <= page < _frames(picture, limits):
            raise ExtractError(f"There is no page {page + 1}.")
        frame = _frame(picture, page, limits)
        width, height = _points(frame)
        return _on_white(ImageOps.exif_transpose(frame)), width, height


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


def _on_white(picture: Image.Image) -> Image.Image:
    """Without transparency, and with eight bits a colour."""
    if picture.mode.startswith(("I", "F")):
        low, high = cast("tuple[float, float]", picture.getextrema())  # these modes have one channel
        span = max(1.0, high - low)
        return picture.convert("F").point(lambda value: (value - low) * (_WHITE / span)).convert("L")
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        seen = picture.convert("RGBA")
        ground = Image.new("RGBA", seen.size, (_WHITE, _WHITE, _WHITE, _WHITE))
        return Image.alpha_composite(ground, seen).convert("RGB")
    return picture.convert("L" if picture.mode in ("1", "L") else "RGB")
