"""Figures of a library for whoever runs it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """`jobs`: how many, by state; `stored_bytes`: keys and values on disk; `resident_bytes`: landmarks and blocks in
    RAM."""

    jobs: dict[str, int]
    num_documents: int
    num_tokens: int
    stored_bytes: int
    resident_bytes: int
    free_bytes: int
