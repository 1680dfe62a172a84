"""`cairn sync`: make the library follow a folder: what is new, changed, moved or gone there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from app.cli.ingest import job_reader
from app.cli.options import Call, IntoCollectionOption, path_given
from app.cli.output import duration, one_line, say, tell, write_json
from retrieval.types.records import FileChange, FolderReport, FollowOptions
from storage.records import Removed


def sync(
    call: Call,
    folder: Annotated[
        str, typer.Argument(metavar="DIR", parser=path_given, help="The folder to follow, with the folders in it.")
    ],
    collection: IntoCollectionOption = None,
    removed: Annotated[
        Removed | None,
        typer.Option(
            "--removed",
            help="Documents of files that are gone: they stay, go to the home's trash, or are deleted. "
            "Remembered for later runs. Default: keep.",
            show_default=False,
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Read also files whose documents were deleted in the library.")
    ] = False,
    checksum: Annotated[
        bool, typer.Option("--checksum", help="Compare contents even where size and times are as they were.")
    ] = False,
    emptied: Annotated[
        bool, typer.Option("--emptied", help="All files were really removed: the folder may be empty now.")
    ] = False,
) -> None:
    """Make the library follow a folder: read what is new or changed, notice what was moved or removed.

    What did not change is not read again. A changed file's document is replaced once the new one is complete. After an
    interruption the same command goes on where it stopped.
    """
    options = FollowOptions(again=again, every_byte=checksum, emptied=emptied)
    with replace(call, user=None).library(backup=True) as library:
        owner_id = None if call.user is None else library.accounts.get(call.user).id
        followed = library.folders.follow(Path(folder), owner_id=owner_id, collection=collection, removed=removed)
        failed = False
        for one in library.folders.run(followed.id, read=job_reader(library), options=options):
            if isinstance(one, FolderReport):
                write_json({"report": one.to_dict()}) if call.as_json else tell(summary(one))
                failed = bool(one.counts.get("failed"))
            else:
                write_json(_row(one)) if call.as_json else _report(one)
    if failed:
        raise typer.Exit(1)


def _row(change: FileChange) -> dict[str, str | None]:
    """The line that scripts read; `previous` and `reason` where there is something to say."""
    plain = change.to_dict()
    return {name: value for name, value in plain.items() if value or name == "document_id"}


def _report(change: FileChange) -> None:
    if change.change in ("same", "skipped"):
        return
    source = one_line(change.source, 300)
    came = f" (was {one_line(change.previous, 300)})" if change.previous else ""
    reason = f": {change.reason}" if change.reason else ""
    if change.change in ("failed", "later"):
        tell(f"{change.change:8}{source}{reason}")
    else:
        document = f", document {change.document_id}" if change.document_id and change.change != "removed" else ""
        say(f"{change.change:8}{source}{came}{reason}{document}")


def summary(report: FolderReport) -> str:
    """`1,000 files in 2:10: 20 added, 980 the same; not followed: 3.`"""
    words = {"same": "the same", "reading": "being read", "later": "still being written"}
    done = [f"{count:,} {words.get(change, change)}" for change, count in report.counts.items() if change != "skipped"]
    files = sum(count for change, count in report.counts.items() if change != "skipped")
    skipped = report.counts.get("skipped", 0)
    left = f"; not followed: {skipped:,} (--json lists them)" if skipped else ""
    return f"{files:,} files in {duration(report.seconds)}: {', '.join(done) or 'nothing to do'}{left}."
