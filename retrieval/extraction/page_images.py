"""Pictures of pages, each drawn once and kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from retrieval.extraction.extract import render_page
from storage.kv.shard import sync_folder


def page_image(folder: Path, original: Callable[[], Path], number: int, width_px: int) -> bytes:
    """PNG of page `number` (from 0) of the PDF at `original()`, from `folder` if it was drawn before. Raises
    ExtractError."""
    kept = folder / f"{number}-{width_px}.png"
    if kept.is_file():
        return kept.read_bytes()
    image = render_page(original(), number, width_px=width_px)
    folder.mkdir(exist_ok=True, mode=0o700)
    unfinished = kept.with_name(f".{kept.name}")
    unfinished.write_bytes(image)
    unfinished.replace(kept)
    sync_folder(folder)
    return image
