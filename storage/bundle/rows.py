"""What a bundle says of one document, checked before any of it is believed."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.properties import checked_property
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
        return [Property(*one) for one in self.properties]

    def title_bytes(self) -> bytes:
        return base64.b64decode(self.title_keys, validate=True)


def unpacked(packed: bytes, text: str, *, vocabulary: int, block_tokens: int) -> BundledRows:
    """Raises `ValueError` for anything that could not have come from a catalogue with this text and model."""
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
    for property_name, _, _ in rows.properties:
        if checked_property(property_name) != property_name:
            raise ValueError(f"{property_name[:50]!r} cannot be the name of a property")
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
