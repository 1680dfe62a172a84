"""Files to text with the place of every character; every file is read in a process of its own, with limits.

`extract` reads every format of `retrieval.extraction.formats`, and recognises text in pictures where a page has none;
`render_page` draws a page of a PDF or a picture; `unlock` writes an encrypted PDF without its encryption.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from retrieval.errors import ExtractError, NothingToRead
from retrieval.extraction.document import ExtractedDocument, ExtractedPage, OutlineEntry
from retrieval.extraction.formats import format_of
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.ocr.languages import DEFAULT, language_files
from retrieval.extraction.office import older
from retrieval.extraction.process.admission import Admission
from retrieval.extraction.process.ipc import IMAGE, read_document, read_progress, read_result
from retrieval.extraction.process.sandbox import Sandbox

__all__ = [
    "ExtractLimits", "ExtractProgress", "ExtractedDocument", "ExtractedPage", "OutlineEntry", "extract", "render_page",
    "try_recognising", "unlock",
]  # fmt: skip

_START_SECONDS = 20.0  # for the process itself to start on a busy machine
_CLOCK_FACTOR = 3.0  # wall clock to processor time, for machines that do other work
_PICTURES_AT_ONCE = 6
_PICTURE_SECONDS = 40.0  # of the processor; a dense page takes two to four
_PICTURE_BYTES = 1200 << 20
_OFFICE_SECONDS = 120.0  # of the processor; an ordinary file takes one
SANDBOX = Sandbox()
_languages: str | None = DEFAULT
atexit.register(SANDBOX.close)

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


def set_reader_limits(memory_bytes: int) -> None:
    """Limit the total memory of the processes that read files for this one at the same time."""
    SANDBOX.admission = Admission(memory_bytes=memory_bytes)


def set_ocr(languages: str | None) -> None:
    """Languages ("eng+deu") in which text in pictures is recognised from now on, None for not at all.

    Raises ValueError for a language that is not installed.
    """
    global _languages
    if languages is not None:
        language_files(languages)
    _languages = languages


def recognises_pictures() -> bool:
    """Whether text in pictures is recognised, as `set_ocr` says."""
    return _languages is not None


def extract(
    path: str | Path,
    *,
    limits: ExtractLimits | None = None,
    password: str | None = None,
    person: str = "",
    ocr: bool = True,
    kept: Path | None = None,
    watch: Callable[[ExtractProgress], object] = lambda progress: None,
    check: Callable[[], object] = lambda: None,
) -> ExtractedDocument:
    """Text, boxes and outline of a file. Raises ExtractError with a reason that a person understands.

    `person`, here and below: for whom; people take turns. `ocr`: recognise text in pictures of pages without any, in
    the languages of `set_ocr`; without it NothingToRead is raised for a file of such pages alone. `kept`: the folder
    where what is recognised is kept, so that nothing is recognised twice. `watch` is called with the pages read so far,
    or the pictures in which text is recognised, and `check`, about twice a second meanwhile: what they raise ends the
    reading.
    """
    file = _File(Path(path), limits or ExtractLimits(), password, person, check)
    format_ = format_of(path)
    with tempfile.TemporaryDirectory(prefix="cairn-extract-") as name:
        if format_.newer:
            file = _converted(file, format_.newer, Path(name))
        languages = _languages if ocr and format_.may_hold_pictures else None
        if languages is None:
            return _extract(file, Path(name), None, watch)
        recognised = (kept or Path(name)) / f"recognised-{languages}"
        recognised.mkdir(parents=True, exist_ok=True, mode=0o700)
        scanned: Sequence[int]
        try:
            document = _extract(file, Path(name), recognised, watch)
            scanned = document.scanned
        except NothingToRead as error:
            scanned = error.pages
        if not scanned:
            return document
        failed: list[str] = []
        at_once = _PICTURES_AT_ONCE if format_.drawn else 1  # one bad attachment is no reason to lose a message
        for first in range(0, len(scanned), at_once):
            pages = scanned[first : first + at_once]

            def watch_pictures(done: int, *_told: int, before: int = first) -> None:
                watch(ExtractProgress(RECOGNISING, min(len(scanned), before + done), len(scanned)))

            watch_pictures(0)
            try:
                _recognise(file, pages, languages, recognised, watch_pictures)
            except ExtractError as error:
                if format_.drawn:
                    raise
                failed.append(f"A picture in it was not read: {error.reason}")
        document = _extract(file, Path(name), recognised, watch, stage=ARRANGING)
        return replace(document, notes=(*document.notes, *failed)) if failed else document


@dataclass(frozen=True)
class _File:
    """A file that is to be read, and for whom."""

    path: Path
    limits: ExtractLimits
    password: str | None
    person: str
    check: Callable[[], object] = lambda: None

    def serve(
        self,
        task: str,
        folder: Path,
        limits: ExtractLimits | None = None,
        watch: Callable[[int, int, int], object] = lambda *told: None,
        **more: object,
    ) -> dict[str, Any]:
        """Have a worker do a task, by default with the limits of the file's size; it writes to `folder`, also how far
        it is, which `watch` is told. Returns its facts."""
        size = _size_of(self.path)
        limits = limits or self.limits.for_size(size)
        request: dict[str, Any] = {"task": task, "path": os.path.abspath(self.path), "folder": str(folder)}
        request |= {"password": self.password, "limits": asdict(limits), "caller": os.getpid()} | more

        def check() -> None:
            self.check()
            if (told := read_progress(folder, self.limits)) is not None:
                watch(*told)

        try:
            seconds = _CLOCK_FACTOR * limits.seconds + _START_SECONDS
            status, complaint = SANDBOX.serve(request, seconds, self.person, check)
        except subprocess.TimeoutExpired:
            raise _took_too_long(limits) from None
        SANDBOX.start_next()
        facts = read_result(folder)
        if facts is None:
            raise _explain(status, complaint, limits)
        return facts


def _extract(
    file: _File,
    folder: Path,
    recognised: Path | None,
    watch: Callable[[ExtractProgress], object],
    stage: str = EXTRACTING,
) -> ExtractedDocument:
    result = Path(tempfile.mkdtemp(dir=folder))
    kept = recognised and str(recognised.resolve())
    facts = file.serve("extract", result, None, lambda *told: watch(ExtractProgress(stage, *told)), recognised=kept)
    try:
        return read_document(result, facts, file.limits)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ExtractError(f"Reading the file gave no usable result ({error}). It is probably damaged.") from error


def _converted(file: _File, suffix: str, folder: Path) -> _File:
    """A file of Office before 2007 in today's format, in `folder`; with the limits of any file, since LibreOffice alone
    takes more than a small one may."""
    limits = replace(file.limits, seconds=min(file.limits.seconds, _OFFICE_SECONDS))
    facts = file.serve("convert", folder, limits, suffix=suffix, office=older.program())
    return replace(file, path=folder / str(facts["name"]))


def try_recognising(
    path: str | Path, pages: Sequence[int], *, password: str | None = None, person: str = ""
) -> tuple[float, list[str]]:
    """How long recognising the text of `pages` (from 0) will take here, by three of them or all, and the texts of
    those: none of attachments, or if one cannot be recognised, which takes its time too and which reading the file
    reports."""
    assert _languages is not None and pages
    file = _File(Path(path), ExtractLimits(), password, person)
    tried = sorted({pages[len(pages) * part // 6] for part in (1, 3, 5)})
    began, texts = time.perf_counter(), list[str]()
    with tempfile.TemporaryDirectory(prefix="cairn-recognised-") as name, suppress(ExtractError):
        try:
            _recognise(file, tried, _languages, Path(name))
        finally:
            seconds = (time.perf_counter() - began) / len(tried) * len(pages)
        if format_of(path).drawn:
            read = _extract(file, Path(name), Path(name), lambda progress: None)
            texts = [read.text[read.pages[page].start : read.pages[page].end] for page in tried]
    return seconds, texts


def _recognise(
    file: _File,
    pages: Sequence[int],
    languages: str,
    recognised: Path,
    watch: Callable[[int, int, int], object] = lambda *told: None,
) -> None:
    """Have some pages recognised, with limits of their own: what a picture costs does not follow from its file's
    size."""
    limits = replace(
        file.limits,
        seconds=min(file.limits.seconds, len(pages) * _PICTURE_SECONDS),
        memory_bytes=min(file.limits.memory_bytes, _PICTURE_BYTES),
    )
    models = [str(model) for model in language_files(languages)]
    request = {"pages": list(pages), "languages": languages, "models": models, "recognised": str(recognised.resolve())}
    with tempfile.TemporaryDirectory(prefix="cairn-recognise-") as name:
        file.serve("recognise", Path(name), limits, watch, **request)


def render_page(
    path: str | Path,
    page: int,
    *,
    width_px: int = 1200,
    password: str | None = None,
    limits: ExtractLimits | None = None,
    person: str = "",
) -> bytes:
    """PNG of one page (0-based) of a PDF or a picture, `width_px` wide, or narrower beyond `limits.pixels`.

    Raises ExtractError.
    """
    file = _File(Path(path), limits or ExtractLimits(), password, person)
    if width_px < 1:
        raise ValueError(f"width_px must be at least 1, not {width_px}")
    if not format_of(path).drawn:
        raise ExtractError(f"{file.path.name} has no page images: only pages of PDF files and pictures can be drawn.")
    with tempfile.TemporaryDirectory(prefix="cairn-render-") as name:
        file.serve("render", Path(name), page=page, width_px=width_px)
        image = (Path(name) / IMAGE).read_bytes()
    if not image.startswith(b"\x89PNG"):
        raise ExtractError("Drawing the page gave no image. The file is probably damaged.")
    return image


def unlock(path: str | Path, into: Path, *, password: str, person: str = "") -> bool:
    """Write an encrypted PDF without its encryption to the new file `into`, for its owner only.

    False, and no file, if it needs no password. Raises ExtractError.
    """
    file = _File(Path(path), ExtractLimits(), password, person)
    with tempfile.TemporaryDirectory(prefix="cairn-unlock-") as name:
        try:
            return bool(file.serve("unlock", Path(name), into=str(into.resolve()))["unlocked"])
        except BaseException:
            into.unlink(missing_ok=True)
            raise


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
