"""Files to text with the place of every character; every file is read in a process of its own, with limits.

`extract` reads every format of `retrieval.extraction.formats`; `render_page` draws a page of a PDF; `unlock` writes an
encrypted PDF without its encryption.
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
from retrieval.extraction.admission import Admission
from retrieval.extraction.document import ExtractedDocument, ExtractedPage, OutlineEntry
from retrieval.extraction.formats import PDF, format_of
from retrieval.extraction.ipc import IMAGE, read_document, read_result
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.sandbox import Sandbox

__all__ = ["ExtractLimits", "ExtractedDocument", "ExtractedPage", "OutlineEntry", "extract", "render_page", "unlock"]

_START_SECONDS = 20.0  # for the process itself to start on a busy machine
_CLOCK_FACTOR = 3.0  # wall clock to processor time, for machines that do other work
_SANDBOX = Sandbox()
atexit.register(_SANDBOX.close)


def set_reader_limits(processes: int, memory_bytes: int) -> None:
    """Of all files that this process has read at the same time."""
    _SANDBOX.admission = Admission(processes, memory_bytes)


def extract(
    path: str | Path, *, limits: ExtractLimits | None = None, password: str | None = None, person: str = ""
) -> ExtractedDocument:
    """Text, boxes and outline of a file. Raises ExtractError with a reason that a person understands.

    `person`, here and below: for whom; people take turns.
    """
    path, limits = Path(path), limits or ExtractLimits()
    format_of(path)
    with tempfile.TemporaryDirectory(prefix="cairn-extract-") as name:
        folder = Path(name)
        facts = _run({"task": "extract", "password": password}, path, folder, limits, person)
        try:
            return read_document(folder, facts, limits)
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise ExtractError(f"Reading the file gave no usable result ({error}). It is probably damaged.") from error


def render_page(
    path: str | Path,
    page: int,
    *,
    width_px: int = 1200,
    password: str | None = None,
    limits: ExtractLimits | None = None,
    person: str = "",
) -> bytes:
    """PNG of one page (0-based) of a PDF, `width_px` wide or narrower where it would exceed `limits.pixels`.

    Raises ExtractError.
    """
    path, limits = Path(path), limits or ExtractLimits()
    if width_px < 1:
        raise ValueError(f"width_px must be at least 1, not {width_px}")
    if path.suffix.lower() not in PDF.suffixes:
        raise ExtractError(f"{path.name} has no page images: only pages of PDF files can be drawn.")
    with tempfile.TemporaryDirectory(prefix="cairn-render-") as name:
        folder = Path(name)
        task = {"task": "render", "password": password, "page": page, "width_px": width_px}
        _run(task, path, folder, limits, person)
        image = (folder / IMAGE).read_bytes()
    if not image.startswith(b"\x89PNG"):
        raise ExtractError("Drawing the page gave no image. The file is probably damaged.")
    return image


def unlock(
    path: str | Path, into: Path, *, password: str, limits: ExtractLimits | None = None, person: str = ""
) -> bool:
    """Write an encrypted PDF without its encryption to the new file `into`, for its owner only.

    False, and no file, if it needs no password. Raises ExtractError.
    """
    path, limits = Path(path), limits or ExtractLimits()
    with tempfile.TemporaryDirectory(prefix="cairn-unlock-") as name:
        request = {"task": "unlock", "password": password, "into": str(into.resolve())}
        try:
            return bool(_run(request, path, Path(name), limits, person)["unlocked"])
        except BaseException:
            into.unlink(missing_ok=True)
            raise


def _run(request: dict[str, Any], path: Path, folder: Path, limits: ExtractLimits, person: str) -> dict[str, Any]:
    """Have a worker serve the request; it writes to `folder`. Returns its facts."""
    limits = limits.for_size(_size_of(path))
    request |= {"path": os.path.abspath(path), "folder": str(folder), "limits": asdict(limits), "caller": os.getpid()}
    try:
        status, complaint = _SANDBOX.serve(request, _CLOCK_FACTOR * limits.seconds + _START_SECONDS, person)
    except subprocess.TimeoutExpired:
        raise _took_too_long(limits) from None
    _SANDBOX.start_next()
    facts = read_result(folder)
    if facts is None:
        raise _explain(status, complaint, limits)
    return facts


def _size_of(path: Path) -> int:
    """Of a file with something in it. Raises ExtractError."""
    if not path.is_file():
        raise ExtractError(f"There is no file {path}.")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise ExtractError(f"{path.name} cannot be opened: {error.strerror}.") from error
    if size == 0:
        raise ExtractError("The file is empty (0 bytes).")
    return size


def _took_too_long(limits: ExtractLimits) -> ExtractError:
    return ExtractError(
        f"Reading the file took longer than {limits.seconds:.0f} seconds and was stopped. "
        "It is very large, damaged or malicious. Split it or export it again."
    )


def _explain(status: int, complaint: str, limits: ExtractLimits) -> ExtractError:
    """Why a worker ended without a result."""
    if status == -getattr(signal, "SIGXCPU", 24):
        return _took_too_long(limits)
    if "MemoryError" in complaint or "bad_alloc" in complaint or status == -getattr(signal, "SIGKILL", 9):
        return ExtractError(limits.out_of_memory())
    if status < 0:
        return ExtractError(
            f"The reader crashed on this file ({signal.Signals(-status).name}): it is damaged, malicious, or "
            f"needs more than {limits.memory_bytes / 1e9:.1f} GB of memory. Nothing else is affected. "
            "Export it again and retry."
        )
    last = complaint.strip().splitlines()[-1:] or ["no message"]
    return ExtractError(f"The file could not be read ({last[0][:200]}). It is damaged: export it again and retry.")
