"""Pictures in documents without printed pages: found where they stand, made small, and written anew as plain PNG or
JPEG, so that nothing of a stranger's file reaches a browser as it came.

Runs inside the worker process only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast
from urllib.parse import unquote_to_bytes

from PIL import Image, ImageOps

from retrieval.extraction.document import ExtractedFigure
from retrieval.extraction.exhibits import MOST_PICTURE_BYTES, caption_of, is_figure_caption
from retrieval.extraction.limits import ExtractLimits

MOST_FIGURES = 300
_KINDS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
_PHOTOGRAPHS = ("JPEG", "WEBP")
_LONGEST_SIDE = 1400  # pixels
_LEAST_SIDE = 48  # smaller ones are icons and lines
_MOST_REPEATED = 4  # what a document shows more often adorns it
_LARGE_BYTES = 1 << 20  # of a drawing; a larger one is kept as a photograph
PICTURE_ERRORS = (
    OSError, SyntaxError, ValueError, EOFError, KeyError, TypeError, IndexError, Image.DecompressionBombError,
)  # fmt: skip
"""What PIL raises on damaged files."""
_DATA_ADDRESS = re.compile(r"data:image/[\w.+-]+((?:;[\w=.+-]+)*),(.*)", re.S)


@dataclass(frozen=True)
class Picture:
    """A picture as a file holds it. `before`: how many blocks of its part stand before it; `caption`: "" if unknown."""

    data: bytes
    caption: str = ""
    before: int = 0


class Figures:
    """The figures of a document while it is put together, and their pictures by name."""

    def __init__(self, limits: ExtractLimits):
        self._limits = limits
        self._found: list[ExtractedFigure] = []
        self._made: dict[bytes, tuple[ExtractedFigure, bytes] | None] = {}  # by digest of the file's picture
        self._shown = Counter[str]()
        self._left = MOST_PICTURE_BYTES

    def add(self, picture: Picture, page: int, start: int) -> None:
        """`start`: of the text behind it. What is no picture that can be shown is left out."""
        digest = hashlib.sha256(picture.data).digest()
        if digest not in self._made:
            if len(self._shown) >= MOST_FIGURES:
                return
            made = _made_small(picture.data, self._limits) if self._left > 0 else None
            self._made[digest] = made
            self._left -= len(made[1]) if made is not None else 0
        kept = self._made[digest]
        if kept is not None and self._shown[kept[0].picture] <= _MOST_REPEATED:
            self._shown[kept[0].picture] += 1
            self._found.append(replace(kept[0], page=page, caption=caption_of(picture.caption), start=start))

    def all(self) -> tuple[ExtractedFigure, ...]:
        """The figures, without those that only adorn the document."""
        return tuple(one for one in self._found if self._shown[one.picture] <= _MOST_REPEATED)

    def pictures(self) -> dict[str, bytes]:
        wanted = {one.picture for one in self.all()}
        made = filter(None, self._made.values())
        return {figure.picture: data for figure, data in made if figure.picture in wanted}


def split_pictures(items: Iterable[tuple[int, str] | Picture]) -> tuple[list[tuple[int, str]], list[Picture]]:
    """Blocks, and the pictures that stood among them, with their places."""
    blocks: list[tuple[int, str]] = []
    pictures: list[Picture] = []
    for item in items:
        if isinstance(item, Picture):
            pictures.append(replace(item, before=len(blocks)))
        elif item[1].strip():
            blocks.append(item)
    return blocks, pictures


def captioned(pictures: Sequence[Picture], blocks: Sequence[tuple[int, str]]) -> Iterator[Picture]:
    """With the line below or above that says "Figure 3: ..." in place of other captions."""
    for picture in pictures:
        near = (picture.before, picture.before - 1, picture.before + 1)
        lines = (blocks[at][1] for at in near if 0 <= at < len(blocks))
        caption = next((line for line in lines if is_figure_caption(line)), picture.caption)
        yield replace(picture, caption=caption)


def data_of_address(address: str) -> bytes | None:
    """What an address like `data:image/png;base64,...` holds; None for every other one: nothing is fetched."""
    found = _DATA_ADDRESS.fullmatch(address.strip())
    if found is None:
        return None
    held = unquote_to_bytes(found[2])
    if not found[1].endswith(";base64"):
        return held
    try:
        return base64.b64decode(re.sub(rb"\s", b"", held), validate=True)
    except (binascii.Error, ValueError):
        return None


def _made_small(data: bytes, limits: ExtractLimits) -> tuple[ExtractedFigure, bytes] | None:
    """A figure, as yet without its place, and its picture; None for what is too small to tell anything, damaged, or no
    picture that can be drawn."""
    try:
        with Image.open(io.BytesIO(data), formats=_KINDS) as picture:
            if min(picture.size) < _LEAST_SIDE or picture.width * picture.height > limits.pixels:
                return None
            is_photograph = picture.format in _PHOTOGRAPHS
            picture.draft("RGB", (_LONGEST_SIDE, _LONGEST_SIDE))  # of a JPEG, no more is decoded than is needed
            small = on_white(upright(picture))
    except PICTURE_ERRORS:
        return None  # the text is what counts
    small.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    written = b"" if is_photograph else _written(small, "PNG")
    ending = "png"
    if not written or len(written) > _LARGE_BYTES:
        written, ending = _written(small, "JPEG"), "jpg"
    name = f"{hashlib.sha256(written).hexdigest()[:32]}.{ending}"
    return ExtractedFigure(0, "", None, name, None, small.width, small.height), written


def upright(picture: Image.Image) -> Image.Image:
    """Turned as its EXIF data says."""
    picture.getexif()
    picture.info.pop("exif", None)  # it would be written anew for the turned picture, which fails where it is damaged
    return ImageOps.exif_transpose(picture)


def on_white(picture: Image.Image) -> Image.Image:
    """Without transparency, and with eight bits a colour."""
    if picture.mode.startswith(("I", "F")):
        low, high = cast("tuple[float, float]", picture.getextrema())  # these modes have one channel
        span = max(1.0, high - low)
        return picture.convert("F").point(lambda value: (value - low) * (255 / span)).convert("L")
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        seen = picture.convert("RGBA")
        ground = Image.new("RGBA", seen.size, "white")
        return Image.alpha_composite(ground, seen).convert("RGB")
    return picture.convert("L" if picture.mode in ("1", "L") else "RGB")


def _written(picture: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **({"quality": 85} if kind == "JPEG" else {"optimize": True}))
    return buffer.getvalue()
