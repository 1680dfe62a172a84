"""`cairn export-library` and `import-library`: documents with their memory, in one file from home to home."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.ingest import job_reader
from app.cli.options import Call
from app.cli.output import one_line, say, scope_of, size, tell, write_json
from retrieval.types.records import ImportedDocument


def export_library(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file.")],
    collection: Annotated[
        str | None, typer.Option("--collection", metavar="NAME", help="Only the documents of this collection.")
    ] = None,
) -> None:
    """Write documents to one file, with text, memory and originals, for another home.

    There they answer at once: nothing is read again. Accounts, answers and settings stay here.
    """
    with call.library() as library:
        scope = scope_of(library, None, [collection] if collection is not None else None)
        collection_id = scope.collection_ids[0] if scope else None
        done = library.bundles.export_to(file, collection_id=collection_id)
    for source, reason in done.left_out:
        tell(f"{one_line(source, 300)} is left out: {reason}.")
    written = f"{done.documents:,} documents, {done.blocks:,} blocks: {size(done.size_bytes)} in {done.path}."
    call.write(done.to_dict(), written)


def import_library(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export-library` wrote.")],
    collection: Annotated[
        str | None,
        typer.Option("--collection", metavar="NAME", help="All go to this one; default: named as they were."),
    ] = None,
    reingest: Annotated[
        bool, typer.Option("--reingest", help="Read the originals with this model, for memory that another one made.")
    ] = False,
) -> None:
    """Take in the documents of a file that `export-library` wrote, without reading them again.

    The whole file is checked before anything is changed. What is stored already is recognised by its content.
    """
    failed = count = 0
    with call.library(backup=True) as library:
        importing = library.bundles.import_from(
            file,
            collection=collection,
            reingest=reingest,
            on_checked=lambda documents: tell(f"{documents:,} documents, all as they were exported."),
            run_job=job_reader(library),
        )
        for imported in importing:
            count += 1
            failed += imported.status == "failed"
            write_json(imported.to_dict()) if call.as_json else _report(imported)
    if not call.as_json:
        tell(f"{count - failed:,} of {count:,} documents are stored.")
    if failed:
        raise typer.Exit(1)


def _report(imported: ImportedDocument) -> None:
    source = one_line(imported.source, 300)
    if imported.status == "failed":
        tell(f"{source}: {imported.error}")
    else:
        say(f"{source}: {imported.status}, {imported.blocks:,} blocks, document {imported.document_id}")
