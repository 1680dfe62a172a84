"""What was recognised in the pictures of a document, by page, kept in a folder so that no page is recognised twice.

Derived from the file like the images of its pages: it may be deleted at any time.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from retrieval.extraction.pdf.characters import PageCharacters

_ARRAYS = tuple(each.name for each in fields(PageCharacters) if each.name.endswith(("_N", "_N2", "_N4")))


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
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
