"""Files to text with the place of every character; every file is read in a process of its own, with limits.

`extract` reads PDF, Word (.docx), web pages, Markdown and plain text; `render_page` draws a page of a PDF; `unlock`
writes an encrypted PDF without its encryption.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument, ExtractedPage, OutlineEntry
from retrieval.extraction.ipc import IMAGE, read_document, read_result
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.sandbox import Readers

__all__ = [
    "SUFFIXES",
    "ExtractLimits",
    "ExtractedDocument",
    "ExtractedPage",
    "OutlineEntry",
    "extract",
    "render_page",
    "unlock",
]

SUFFIXES = (".pdf", ".docx", ".html", ".htm", ".md", ".markdown", ".txt")
_START_SECONDS = 20.0  # the process's own start, on a busy machine, is not the file's fault
_CLOCK_FACTOR = 3.0  # neither is the time that the processor spends on others
_READERS = Readers()
atexit.register(_READERS.end)


def extract(path: str | Path, *, limits: ExtractLimits | None = None, password: str | None = None) -> ExtractedDocument:
    """Reads a file in a separate, limited process. Raises ExtractError with a reason that a person understands.

    Formats without pages (.docx, .html, .md, .txt) come back as one page with label "" and without boxes.
    """
    path, limits = Path(path), limits or ExtractLimits()
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise ExtractError(f"{suffix or 'A file without an ending'} is no format that can be read. These are: {known}.")
    _check_file(path)
    with tempfile.TemporaryDirectory(prefix="cairn-extract-") as folder:
        request = {"task": "extract", "suffix": suffix, "password": password}
        facts = _run(request, path, Path(folder), limits)
        try:
            return read_document(Path(folder), facts, limits)
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise ExtractError(f"Reading the file gave no sound result ({error}). It is probably damaged.") from error


def render_page(
    path: str | Path,
    page: int,
    *,
    width_px: int = 1200,
    password: str | None = None,
    limits: ExtractLimits | None = None,
) -> bytes:
    """PNG of one page (0-based) of a PDF, drawn in a separate, limited process.

    It is `width_px` wide, or narrower where it would have more than `limits.pixels`. Raises ExtractError.
    """
    path, limits = Path(path), limits or ExtractLimits()
    if width_px < 1:
        raise ValueError(f"width_px must be at least 1, not {width_px}")
    if path.suffix.lower() != ".pdf":
        raise ExtractError("Only pages of PDF files can be drawn.")
    _check_file(path)
    with tempfile.TemporaryDirectory(prefix="cairn-render-") as folder:
        request = {"task": "render", "suffix": ".pdf", "password": password, "page": page, "width_px": width_px}
        _run(request, path, Path(folder), limits, output=IMAGE)
        image = (Path(folder) / IMAGE).read_bytes()
    if not image.startswith(b"\x89PNG"):
        raise ExtractError("Drawing the page gave no image. The file is probably damaged.")
    return image


def unlock(path: str | Path, into: Path, *, password: str, limits: ExtractLimits | None = None) -> bool:
    """Writes an encrypted PDF without its encryption to the new file `into`, for its owner only.

    False, and no file, if it needs no password. Raises ExtractError.
    """
    path, limits = Path(path), limits or ExtractLimits()
    _check_file(path)
    with tempfile.TemporaryDirectory(prefix="cairn-unlock-") as folder:
        request = {"task": "unlock", "suffix": ".pdf", "password": password, "into": str(into.resolve())}
        try:
            return bool(_run(request, path, Path(folder), limits)["unlocked"])
        except BaseException:
            into.unlink(missing_ok=True)
            raise


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise ExtractError(f"There is no file {path}.")
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise ExtractError(f"{path.name} cannot be opened: {error.strerror}.") from error
    if empty:
        raise ExtractError("The file is empty (0 bytes).")


def _run(
    request: dict[str, Any], path: Path, folder: Path, limits: ExtractLimits, output: str | None = None
) -> dict[str, Any]:
    """Has the worker serve a request. Returns its facts; with `output`, waits for that file instead."""
    request |= {"path": str(path.resolve()), "folder": str(folder), "limits": asdict(limits), "caller": os.getpid()}
    try:
        status, complaint = _READERS.serve(request, _CLOCK_FACTOR * limits.seconds + _START_SECONDS)
    except subprocess.TimeoutExpired:
        raise _took_too_long(limits) from None
    _READERS.start_next()
    facts = read_result(folder)
    if output is not None and (folder / output).is_file():
        return {}
    if facts is not None:
        return facts
    raise _explain(status, complaint, limits)


def _took_too_long(limits: ExtractLimits) -> ExtractError:
    return ExtractError(
        f"Reading the file took longer than {limits.seconds:.0f} seconds and was stopped. "
        "It is very large, damaged, or made to do harm. Split it or export it again."
    )


def _explain(status: int, complaint: str, limits: ExtractLimits) -> ExtractError:
    """What the end of a worker that left no result means."""
    if status == -getattr(signal, "SIGXCPU", 24):
        return _took_too_long(limits)
    if "MemoryError" in complaint or "bad_alloc" in complaint or status == -getattr(signal, "SIGKILL", 9):
        return ExtractError(limits.out_of_memory())
    if status < 0:
        return ExtractError(
            f"The reader crashed on this file ({signal.Signals(-status).name}): it is damaged, made to do harm, or "
            f"needs more than {limits.memory_bytes / 1e9:.1f} GB of memory. Nothing else is affected. "
            "Export it again and retry."
        )
    last = complaint.strip().splitlines()[-1:] or ["no message"]
    return ExtractError(f"The file could not be read ({last[0][:200]}). It is damaged; export it again and retry.")
