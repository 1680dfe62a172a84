"""Which writer: the one that a command or CAIRN_WRITER names, else the one chosen on the page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.settings import Settings
    from retrieval.types.writer import Writer

CHOICE_FILE = "writer.json"


def writer_name(settings: Settings) -> str | None:
    """None: there is no writer, and answers are quoted."""
    return settings.writer or chosen_on_the_page(settings.home)


def writer_opener(settings: Settings) -> Callable[[], Writer] | None:
    """Opens the writer of these settings; None if there is none."""
    name = writer_name(settings)
    return opener_of(settings, name) if name else None


def opener_of(settings: Settings, name: str) -> Callable[[], Writer]:
    """Opens the writer of that name with the key, device and time limit of the settings."""

    def open_() -> Writer:
        from retrieval.writers.opening import WriterSpec, open_writer

        spec = WriterSpec(
            name=name,
            home=settings.home,
            key=settings.writer_key,
            timeout_seconds=settings.writer_timeout,
            memory_bytes=int(settings.writer_memory),
            repair=settings.writer_repair,
            few_bits=settings.writer_weights,
            reads_ahead=settings.writer_ahead,
            device=None if settings.device == "auto" else settings.device,
            dtype=None if settings.dtype == "auto" else settings.dtype,
        )
        return open_writer(spec)

    return open_


def chosen_on_the_page(home: Path) -> str | None:
    """A damaged file counts as absent: the page shows what is chosen."""
    try:
        name = json.loads((home / CHOICE_FILE).read_text(encoding="utf-8"))["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) and name else None


def choose(home: Path, name: str | None) -> None:
    """Keep the choice of the page; None: no writer."""
    path = home / CHOICE_FILE
    if not name:
        path.unlink(missing_ok=True)
        return
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps({"name": name}), encoding="utf-8")
    os.replace(unfinished, path)
