"""Pages of a file as grey pictures, and the text in them. Runs inside the worker process only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path

import pypdfium2 as pdfium
from PIL import Image

from retrieval.errors import ExtractError
from retrieval.extraction.formats import PDF, format_of, function_named
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.mail.attachments import FRAMES, Attachment, shown_name, unpacked
from retrieval.extraction.ocr.pictures import keep, page_picture
from retrieval.extraction.ocr.recognise import Recogniser
from retrieval.extraction.pdf.opening import opened

_DPI = 200.0
_MOST_PIXELS = 12_000_000  # of one picture: A3 at this resolution has 8 million
_LEAST_LONG_SIDE = 1800  # pixels; smaller pictures are enlarged
_MOST_ENLARGED = 2.5


def read_pictures(
    path: Path,
    pages: Sequence[int],
    folder: Path,
    recogniser: Recogniser,
    limits: ExtractLimits,
    password: str | None,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Keep in `folder` what is recognised on these pages (from 0; of attachments as they are numbered). Raises
    ExtractError. `tell` is called before each with the number of those done, and of all."""
    format_ = format_of(path)
    if format_.attached:
        _read_attached(path, format_.attached, pages, folder, recogniser, limits, tell)
        return
    with opened(path, password) if format_ is PDF else nullcontext() as document:
        for done, number in enumerate(pages):
            tell(done, len(pages))
            if document is not None:
                picture, width, height = _drawn(document, number)
            else:
                picture, width, height = page_picture(path, number, limits)
                picture = _fitting(picture.convert("L"))
            keep(folder, number, recogniser.read(picture, width, height))


def _read_attached(
    path: Path,
    attached: str,
    pages: Sequence[int],
    folder: Path,
    recogniser: Recogniser,
    limits: ExtractLimits,
    tell: Callable[[int, int], None],
) -> None:
    """Each attachment with a folder of its own."""
    attachments: Sequence[Attachment] = function_named(attached)(path, limits).attachments
    done = 0
    for number, group in groupby(sorted(pages), key=lambda page: page // FRAMES):
        tell(done, len(pages))
        into = folder / f"attached-{number}"
        into.mkdir(exist_ok=True)
        with unpacked(attachments[number], shown_name(attachments[number].name), path) as file:
            frames = [page % FRAMES for page in group]
            read_pictures(file, frames, into, recogniser, limits, None)
        done += len(frames)


def _drawn(document: pdfium.PdfDocument, number: int) -> tuple[Image.Image, float, float]:
    try:
        page = document[number]
    except (pdfium.PdfiumError, IndexError) as error:
        raise ExtractError(f"Page {number + 1} is damaged and cannot be drawn.") from error
    width, height = page.get_size()
    if width <= 0 or height <= 0:
        raise ExtractError(f"Page {number + 1} has no size and cannot be drawn.")
    scale = min(_DPI / 72, (_MOST_PIXELS / (width * height)) ** 0.5)
    picture = page.render(scale=scale, may_draw_forms=True, grayscale=True).to_pil().convert("L")
    page.close()
    return picture, width, height


def _fitting(picture: Image.Image) -> Image.Image:
    """Neither larger than is useful nor so small that letters are a few pixels high."""
    pixels, longest = picture.width * picture.height, max(picture.size)
    scale = min(1.0, (_MOST_PIXELS / pixels) ** 0.5)
    if longest < _LEAST_LONG_SIDE:
        scale = min(_MOST_ENLARGED, _LEAST_LONG_SIDE / longest)
    if scale == 1.0:
        return picture
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    return picture.resize(size, Image.Resampling.LANCZOS)
