"""How far the reading of a file is, as the process that reads it tells."""

from __future__ import annotations

from dataclasses import dataclass

EXTRACTING, RECOGNISING, ARRANGING = "extracting", "recognising", "arranging"
"""The text of the file; text in its pictures; the file once more, with that text at its place."""


@dataclass(frozen=True)
class ExtractProgress:
    """`done` of `total` pages, whose text has `characters` so far; while text in pictures is recognised: of these
    pictures."""

    stage: str
    done: int
    total: int
    characters: int = 0
