"""`cairn ingest`: files, folders and buckets into the memory, one after the other; one bad file does not stop the rest.

With `--workers` it only queues them, and other processes read them (`cairn work`).
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from app.cli.options import Call, IntoCollectionOption, path_given
from app.cli.output import duration, one_line, say, size, tell, user_message, write_json
from app.errors import SettingsError
from model.errors import ModelError
from retrieval.errors import InvalidRequest, MemoryMismatch, NotFound
from retrieval.types.records import ALREADY_STORED, Job
from storage.errors import CatalogueUnavailable

if TYPE_CHECKING:
    from retrieval.ingest.intake import BucketSource, FileSource
    from retrieval.library import Library


REDRAW_SECONDS = 0.1
BAR_WIDTH = 20


def progress_line(job: Job, width: int) -> str:
    """`a.pdf [####----] reading, 12/40 pages, 31,200/104,000 tokens, 2,410 tokens/s, 0:30 left`, cut to `width`."""
    parts = [job.stage or job.state]
    if job.pages:
        parts.append(f"{job.pages_done}/{job.pages} pages")
    if job.tokens:
        parts.append(f"{job.tokens_done:,}/{job.tokens:,} tokens")
    if job.tokens_per_second:
        parts.append(f"{job.tokens_per_second:,.0f} tokens/s")
    if job.eta_seconds is not None:
        parts.append(f"{duration(job.eta_seconds)} left")
    filled = round(job.share * BAR_WIDTH)
    line = f"{one_line(job.source, 32)} [{'#' * filled}{'-' * (BAR_WIDTH - filled)}] {', '.join(parts)}"
    return line[: max(width - 1, 1)]


class ProgressBar:
    """Redraws one line of stderr, at most ten times a second. Where that is no terminal it draws nothing."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._drawn_at = float("-inf")
        self._length = 0

    def show(self, job: Job) -> None:
        now = time.monotonic()
        if not self._stream.isatty() or now - self._drawn_at < REDRAW_SECONDS:
            return
        line = progress_line(job, shutil.get_terminal_size().columns)
        self._stream.write("\r" + line.ljust(self._length))
        self._stream.flush()
        self._drawn_at, self._length = now, len(line)

    def clear(self) -> None:
        if self._length:
            self._stream.write("\r" + " " * self._length + "\r")
            self._stream.flush()
        self._drawn_at, self._length = float("-inf"), 0


WATCH_SECONDS = 0.3
GOOD = frozenset({"done", "already stored"})


def ingest(
    call: Call,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH", parser=path_given, help="Files, or folders to search for files; also s3://bucket/prefix."
        ),
    ],
    collection: IntoCollectionOption = None,
    password: Annotated[str | None, typer.Option("--password", metavar="TEXT", help="For encrypted PDFs.")] = None,
    ocr: Annotated[
        Literal["auto", "off"] | None,
        typer.Option("--ocr", show_default=False, help="Recognise text in pictures (or CAIRN_OCR; default: auto)."),
    ] = None,
    workers: Annotated[
        bool, typer.Option("--workers", help="Hand everything in at once, for `cairn work` processes to read.")
    ] = False,
) -> None:
    """Read files (PDF, Office, e-mail, web pages, pictures of text and more) into the memory.

    A file that is stored already costs nothing. After an interruption the same command goes on where it stopped.
    """
    failed = count = 0
    with call.library(backup=True, ocr=ocr) as library:
        found = found_at(paths)
        rows: Iterator[dict[str, Any]]
        if workers:
            rows = _read_by_workers(library, [_handed_in(library, each, collection, password) for each in found])
        else:
            rows = (ingest_one(library, each, collection, password) for each in found)
        for row in rows:
            count += 1
            failed += row["status"] not in GOOD
            if call.as_json:
                write_json(row)
            else:
                _report(row)
    if not count:
        tell(f"There is nothing to read: no file ends in {', '.join(suffixes())}.")
    elif count > 1 and not call.as_json:
        tell(f"{count - failed} of {count} files are stored.")
    if failed or not count:
        raise typer.Exit(1)


def found_at(paths: Sequence[str]) -> Iterator[FileSource | BucketSource]:
    """The files at these paths: files, folders, addresses of a bucket."""
    from retrieval.ingest.intake import SCHEME, FileSource, bucket_sources

    names = _told_apart([path for path in paths if not path.startswith(SCHEME)])
    for path in paths:
        if path.startswith(SCHEME):
            yield from bucket_sources(path, frozenset(suffixes()))
        else:
            yield from (FileSource(file, names.get(path, name)) for file, name in files_below([Path(path)]))


def _told_apart(paths: Sequence[str]) -> dict[str, str]:
    """Names for those of the paths that end in the same name: from the first folder in which they differ."""
    names: dict[str, str] = {}
    for name in {Path(path).name for path in paths}:
        same = sorted({path for path in paths if Path(path).name == name})
        if len(same) > 1 and not any(Path(path).is_dir() for path in same):
            common = os.path.commonpath([Path(path).absolute().parent for path in same])
            names |= {path: Path(path).absolute().relative_to(common).as_posix() for path in same}
    return names


def files_below(paths: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """(file, name to show) for each path; a folder gives the documents in it, in order, named relative to the folder.

    A path that is no folder is passed on as it is: whoever reads it says what is wrong with it. So is a folder below
    that cannot be read. Symbolic links below a folder, which may lead out of it, and homes of libraries are left out.
    """
    unreadable: list[Path] = []
    readable = frozenset(suffixes())
    for path in paths:
        if not path.is_dir():
            yield path, path.name
            continue
        for folder, folders, names in os.walk(path, onerror=lambda error: unreadable.append(Path(error.filename))):
            if "home.json" in names and "kv" in folders:
                tell(f"{one_line(folder, 300)} is the home of a library, and is left out.")
                folders[:] = []
                continue
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                file = Path(folder, name)
                if file.is_symlink():
                    tell(f"{one_line(str(file), 300)} is a link, and is left out.")
                elif file.suffix.lower() in readable and not name.startswith("."):
                    yield file, file.relative_to(path).as_posix()
        for shut in unreadable:
            yield shut, path.name if shut == path else shut.relative_to(path).as_posix()
        unreadable.clear()


def suffixes() -> tuple[str, ...]:
    """Ends of the names of files that can be read."""
    from retrieval.extraction.formats import suffixes_here

    return suffixes_here()


def ingest_one(
    library: Library, source: FileSource | BucketSource, collection: str | None, password: str | None
) -> dict[str, Any]:
    """Read one file and show how far it is; the row that scripts read."""
    job = _handed_in(library, source, collection, password)
    if not isinstance(job, Job):
        return job
    try:
        return row_of_job(job_reader(library)(job), source.name)
    except Exception as error:
        return _failure(source.name, error)


def job_reader(library: Library) -> Callable[[Job], Job]:
    """Runs a job to its end, with a line on stderr that shows how far it is."""

    def read(job: Job) -> Job:
        bar = ProgressBar()
        try:
            while job.active:
                job = library.jobs.run(job.id, on_progress=bar.show)
                if job.active:  # a server on the same home took it first: watch
                    bar.show(job)
                    time.sleep(WATCH_SECONDS)
        finally:
            bar.clear()
        return job

    return read


def _handed_in(
    library: Library, source: FileSource | BucketSource, collection: str | None, password: str | None
) -> Job | dict[str, Any]:
    """The file's job, or the row of one that cannot be taken."""
    try:
        with source.fetched() as path:
            job = library.documents.submit(path, collection=collection, source=source.name, password=password)
    except Exception as error:
        return _failure(source.name, error)
    if job.note.startswith(f"{ALREADY_STORED},"):
        tell(f"{one_line(source.name, 300)}: {job.note}; move it in the web UI if it belongs elsewhere.")
    return job


def _read_by_workers(library: Library, handed_in: Sequence[Job | dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows in the order in which documents end."""
    yield from (each for each in handed_in if not isinstance(each, Job))
    waiting = {each.id: each.source for each in handed_in if isinstance(each, Job)}
    while waiting:
        for identity, source in list(waiting.items()):
            try:
                job = library.jobs.get(identity)
            except NotFound:
                yield _failure(source, InvalidRequest("The document was deleted while it waited."))
            else:
                if job.active:
                    continue
                yield row_of_job(job, source)
            del waiting[identity]
        if waiting:
            time.sleep(WATCH_SECONDS)


def _failure(source: str, error: Exception) -> dict[str, Any]:
    """The row of a file that never became a job. Raises the error again if it is unknown, or if the next file would
    fail in the same way: model, memory or catalogue are at fault, not the file."""
    message = user_message(error)
    if message is None or isinstance(error, (MemoryMismatch, SettingsError, CatalogueUnavailable, ModelError)):
        raise error
    numbers = dict.fromkeys(("pages", "tokens", "blocks", "size_bytes"), 0)
    return {"source": source, "document_id": None, "status": "failed", **numbers, "seconds": 0.0, "error": message}


def row_of_job(job: Job, source: str) -> dict[str, Any]:
    """The line that scripts read. `status`: "done", "already stored", "failed" or "cancelled"."""
    stored_before = job.state == "done" and job.note.startswith(ALREADY_STORED)
    return {
        "source": source,
        "document_id": job.document_id or None,
        "status": "already stored" if stored_before else job.state,
        "pages": job.pages,
        "tokens": job.tokens,
        "blocks": job.blocks,
        "size_bytes": job.size_bytes,
        "seconds": round(job.seconds, 3),
        "error": job.error or None,
    }


def _report(row: dict[str, Any]) -> None:
    source = one_line(row["source"], 300)
    if row["status"] not in GOOD:
        tell(f"{source}: {row['status']}{': ' + row['error'] if row['error'] else ''}")
        return
    amount = f"{row['pages']} pages, {row['tokens']:,} tokens, {size(row['size_bytes'])}"
    how = "already stored" if row["status"] == "already stored" else f"stored in {duration(row['seconds'])}"
    say(f"{source}: {how}, {amount}, document {row['document_id']}")
