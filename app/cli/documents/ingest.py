"""`cairn ingest`: files and folders into the memory, one after the other; one bad file does not stop the rest."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.documents.progress import ProgressBar
from app.cli.options import HomeOption, IntoCollectionOption, JsonOption, ModelOption, UserOption, library_of
from app.cli.output import duration, printable, say, size, tell, user_message, write_json
from app.errors import SettingsError
from retrieval.errors import MemoryMismatch
from retrieval.types.records import ALREADY_STORED, Job

if TYPE_CHECKING:
    from retrieval.library import Library

WATCH_SECONDS = 0.3
GOOD = frozenset({"done", "already stored"})


class OcrChoice(StrEnum):
    """Whether text in pictures is recognised."""

    AUTO = "auto"
    OFF = "off"


def ingest(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Files, or folders to search for files.")],
    collection: IntoCollectionOption = None,
    password: Annotated[str | None, typer.Option("--password", metavar="TEXT", help="For encrypted PDFs.")] = None,
    ocr: Annotated[
        OcrChoice | None,
        typer.Option("--ocr", show_default=False, help="Recognise text in pictures (or CAIRN_OCR; default: auto)."),
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
    user: UserOption = None,
) -> None:
    """Read files (PDF, Office, e-mail, web pages, pictures of text and more) into the memory.

    A file that is stored already costs nothing. After an interruption the same command goes on where it stopped.
    """
    failed = count = 0
    with library_of(context, home, model, user, backup=True, ocr=ocr) as library:
        for path, source in files_below(paths):
            row = _ingest_one(library, path, source, collection, password)
            count += 1
            failed += row["status"] not in GOOD
            if as_json:
                write_json(row)
            else:
                _report(row)
    if not count:
        tell(f"There is nothing to read: no file ends in {', '.join(suffixes())}.")
    elif count > 1 and not as_json:
        tell(f"{count - failed} of {count} files are stored.")
    if failed or not count:
        raise typer.Exit(1)


def files_below(paths: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """(file, name to show) for each path; a folder gives the documents in it, in order, named relative to the folder.

    A path that is no folder is passed on as it is: whoever reads it says what is wrong with it.
    """
    readable = frozenset(suffixes())
    for path in paths:
        if not path.is_dir():
            yield path, path.name
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                file = Path(folder, name)
                if file.suffix.lower() in readable and not name.startswith("."):
                    yield file, file.relative_to(path).as_posix()


def suffixes() -> tuple[str, ...]:
    """Ends of the names of files that can be read."""
    from retrieval.extraction.formats import SUFFIXES

    return SUFFIXES


def _ingest_one(
    library: Library, path: Path, source: str, collection: str | None, password: str | None
) -> dict[str, Any]:
    bar = ProgressBar(sys.stderr)
    try:
        job = library.submit(path, collection=collection, source=source, password=password)
        while job.active:
            job = library.run_job(job.id, on_progress=bar.show)
            if job.active:  # a server on the same home took it first: watch
                bar.show(job)
                time.sleep(WATCH_SECONDS)
    except Exception as error:
        message = user_message(error)
        if message is None or concerns_every_file(error):
            raise
        return row_of_failure(source, message)
    finally:
        bar.clear()
    if job.note.startswith(f"{ALREADY_STORED},"):
        tell(f"{printable(source)}: {job.note}; move it in the web UI if it belongs elsewhere.")
    return row_of_job(job, source)


def concerns_every_file(error: Exception) -> bool:
    """True if the next file would fail in the same way: model, memory or catalogue are at fault, not the file."""
    from storage.errors import CatalogueUnavailable

    model_errors = sys.modules.get("model.errors")
    return isinstance(error, (MemoryMismatch, SettingsError, CatalogueUnavailable)) or (
        model_errors is not None and isinstance(error, model_errors.ModelError)
    )


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


def row_of_failure(source: str, message: str) -> dict[str, Any]:
    """The same line for a file that never became a job."""
    numbers = dict.fromkeys(("pages", "tokens", "blocks", "size_bytes"), 0)
    return {"source": source, "document_id": None, "status": "failed", **numbers, "seconds": 0.0, "error": message}


def _report(row: dict[str, Any]) -> None:
    source = printable(row["source"])
    if row["status"] not in GOOD:
        tell(f"{source}: {row['status']}{': ' + row['error'] if row['error'] else ''}")
        return
    amount = f"{row['pages']} pages, {row['tokens']:,} tokens, {size(row['size_bytes'])}"
    how = "already stored" if row["status"] == "already stored" else f"stored in {duration(row['seconds'])}"
    say(f"{source}: {how}, {amount}, document {row['document_id']}")
