"""Chooses the writer: the one that a command or CAIRN_WRITER names, else the one chosen on the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval.types.serialisation import Record

if TYPE_CHECKING:
    from app.settings import Settings
    from retrieval.types.writer import Writer

CHOICE_FILE = "writer.json"


@dataclass(frozen=True)
class Chosen(Record):
    """The choice of the page; `key`: of a server, kept in a file of mode 0600 and never given to a browser."""

    name: str
    key: str | None = None

    def key_for(self, name: str) -> str | None:
        """A key goes to the server that it was given for, and to no other."""
        return self.key if name.partition("#")[0] == self.name.partition("#")[0] else None


def writer_name(settings: Settings) -> str | None:
    """None: there is no writer, and answers are quoted."""
    chosen = chosen_on_the_page(settings.home)
    return settings.writer or (chosen.name if chosen else None)


def writer_opener(settings: Settings) -> Callable[[], Writer] | None:
    """A function that opens the writer of these settings; None if they name none."""
    name = writer_name(settings)
    return opener_of(settings, name) if name else None


def key_of(settings: Settings, name: str, given: str | None = None) -> str | None:
    """The key just given for a server, else that of the page's choice for it, else that of the settings."""
    chosen = chosen_on_the_page(settings.home)
    return given or (chosen.key_for(name) if chosen else None) or settings.writer_key


def opener_of(settings: Settings, name: str, key: str | None = None) -> Callable[[], Writer]:
    """A function that opens the writer of that name, with device and time limit of the settings. `key`: `key_of`."""

    def open_() -> Writer:
        from retrieval.writers.opening import open_writer

        return open_writer(
            name,
            home=settings.home,
            key=key_of(settings, name, key),
            timeout_seconds=settings.writer_timeout,
            memory_bytes=int(settings.writer_memory),
            few_bits=settings.writer_weights,
            prefetches=settings.writer_ahead,
            device=None if settings.device == "auto" else settings.device,
            dtype=None if settings.dtype == "auto" else settings.dtype,
        )

    return open_


def chosen_on_the_page(home: Path) -> Chosen | None:
    """A damaged file counts as absent: the page shows what is chosen."""
    try:
        return Chosen.from_dict(json.loads((home / CHOICE_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def choose(home: Path, name: str | None, key: str | None = None) -> None:
    """Store the choice of the page; None: no writer. `key`: a new one; without it that of the same server stays."""
    from storage.blobs.files import FileBlobs

    if not name:
        (home / CHOICE_FILE).unlink(missing_ok=True)
        return
    before = chosen_on_the_page(home)
    kept = key or (before.key_for(name) if before else None)
    FileBlobs(home).replace(CHOICE_FILE, json.dumps(Chosen(name, kept).to_dict()).encode())
