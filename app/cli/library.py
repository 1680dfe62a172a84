"""`cairn list`, `show`, `find`, `grep`, `read`, `set`, `tag`, `delete`, `export` and `cite`: what is in the library."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from app.cli.options import Call, CollectionsOption, DocumentArgument, DocumentsOption, WhereOption
from app.cli.output import (
    facts,
    find_answer_id,
    find_document,
    one_line,
    printable,
    say,
    scope_of,
    size,
    table,
    tell,
    user_message,
    write_json,
)
from retrieval.errors import CairnError, InvalidRequest, NotFound
from retrieval.types.answers import place_of

if TYPE_CHECKING:
    from retrieval.library import Library
    from retrieval.types.records import Description, Document

LISTED_ANSWERS = 1000
Listing = tuple[list[dict[str, Any]], tuple[str, ...], list[tuple[object, ...]]]
"""Rows for programs; heads and cells of a table for people."""


def list_(
    call: Call,
    collections: Annotated[bool, typer.Option("--collections", help="List collections instead.")] = False,
    jobs: Annotated[bool, typer.Option("--jobs", help="List ingestion jobs instead, newest first.")] = False,
    answers: Annotated[bool, typer.Option("--answers", help="List answers instead, newest first.")] = False,
    search: Annotated[
        str, typer.Option("--search", metavar="TEXT", help="Only those whose name or text contains TEXT.")
    ] = "",
    where: WhereOption = None,
) -> None:
    """List documents."""
    chosen = {"collections": collections, "jobs": jobs, "answers": answers}
    if sum(chosen.values()) > 1:
        raise typer.BadParameter("choose one of --collections, --jobs and --answers.")
    kind = next((name for name, flag in chosen.items() if flag), "documents")
    if where and kind != "documents":
        raise typer.BadParameter("--where chooses among documents.")
    with call.library() as library:
        rows, heads, cells = _listing(library, kind, search, where or ())
    if call.as_json:
        for row in rows:
            write_json(row)
    elif rows:
        numbers = {"documents": (2, 3, 4), "collections": (2,), "jobs": (3,)}
        say(table(heads, cells, right=numbers.get(kind, ())))
    else:
        tell(f"There are no {kind} matching that." if search or where else f"There are no {kind} yet.")


def _listing(library: Library, kind: str, search: str, where: Sequence[str]) -> Listing:
    cells: list[tuple[object, ...]]
    if kind == "documents":
        documents = library.documents.list(search=search, where=where)
        owned = any(one.owner for one in documents)
        cells = [
            (d.id, d.source, d.pages, f"{d.tokens:,}", size(d.size_bytes), d.state, d.added_at[:16])
            + ((d.owner or "-",) if owned else ())
            for d in documents
        ]
        about = library.descriptions.made_for(documents)
        rows = [
            {**one.to_dict(), "description": about[one.id].to_dict() if one.id in about else None} for one in documents
        ]
        heads = ("document", "source", "pages", "tokens", "size", "state", "added", *(["owner"] if owned else []))
        return rows, heads, cells
    if kind == "collections":
        collections = [one for one in library.collections.list() if search.lower() in one.name.lower()]
        cells = [(one.id, one.name, one.documents) for one in collections]
        return [one.to_dict() for one in collections], ("collection", "name", "documents"), cells
    if kind == "jobs":
        jobs = [one for one in library.jobs.list(limit=None) if search.lower() in one.source.lower()]
        cells = [
            (one.id, one.source, one.state, f"{one.pages_done}/{one.pages}", one.error or one.note) for one in jobs
        ]
        return [one.to_dict() for one in jobs], ("job", "source", "state", "pages", "error"), cells
    answers = library.answers.list(limit=LISTED_ANSWERS, search=search)
    cells = [(one.id, one.created_at[:16], one.question, one.text) for one in answers]
    return [one.to_dict() for one in answers], ("answer", "asked", "question", "text"), cells


def show(
    call: Call,
    document: DocumentArgument,
    page: Annotated[
        int | None, typer.Option("--page", min=1, metavar="N", help="Also show the text of page N, counted from 1.")
    ] = None,
) -> None:
    """Show what is known of one document."""
    with call.library() as library:
        found = find_document(library, document)
        text = library.documents.page_text(found.id, page) if page is not None else None
        about = library.descriptions.get(found.id) if found.state == "ready" else None
        asides = library.documents.set_aside(found.id) if found.state == "ready" else []
    if call.as_json:
        described = {"description": about.to_dict() if about else None, "set_aside": [one.to_dict() for one in asides]}
        write_json({**found.to_dict(), **described, **({"page": text.to_dict()} if text else {})})
        return
    say(facts(found.to_dict()))
    if about is not None:
        _say_description(about)
    for one in asides:
        say(f"\n{one.kind.capitalize()} text, not quoted (page {one.page}): {one_line(one.text, 300)}")
    if text is not None:
        place = place_of([text.page], [text.label]) or "the whole text"
        say(f"\n{place}, {len(text.blocks)} blocks{', ' + text.note if text.note else ''}\n")
        say(text.text)


def _say_description(about: Description) -> None:
    say(f"\n{one_line(about.first_lines, 300)}")
    if about.key_terms:
        say(f"\nIt speaks most of: {', '.join(about.key_terms)}")
    if about.questions:
        say("It can be asked:")
        say("\n".join(f"  {question}" for question in about.questions))


def find(
    call: Call,
    words: Annotated[str, typer.Argument(metavar="WORDS", help="Words of its name, title or text.")],
    where: WhereOption = None,
) -> None:
    """List the documents whose name, title or text holds all of WORDS; if none does, those with the nearest words."""
    with call.library() as library:
        found, nearest = library.documents.listed(words, where=where or ())
    if nearest:
        tell(f"No document holds all of these words. The nearest in the library: {nearest}")
    call.write_each(found, lambda one: f"{one.id}  {one.source}  {one.title}", "No document holds all of these words.")


def grep(
    call: Call,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Words as they stand in the text.")],
    expression: Annotated[bool, typer.Option("--regex", "-E", help="PATTERN is a regular expression.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, metavar="N", help="Most places.")] = 100,
    document: DocumentsOption = None,
    collection: CollectionsOption = None,
    where: WhereOption = None,
) -> None:
    """Show where PATTERN stands: in any case, with or without accents. Exit status 1 if it stands nowhere."""
    with call.library() as library:
        scope = scope_of(library, document, collection, where)
        found = library.documents.grep(pattern, expression=expression, within=scope, limit=limit, each=limit)
        nearest = "" if found or expression else library.documents.nearest(pattern)
    nowhere = "It stands nowhere." + (f" The nearest in the library: {nearest}" if nearest else "")
    call.write_each(found, lambda one: f"{', '.join(filter(None, (one.source, one.place)))}: {one.line}", nowhere)


def read(
    call: Call,
    document: DocumentArgument,
    first: Annotated[int, typer.Option("--from", min=1, metavar="N", help="First page, counted from 1.")] = 1,
    last: Annotated[
        int | None, typer.Option("--to", min=1, metavar="N", show_default=False, help="Last page; default: the end.")
    ] = None,
) -> None:
    """Print the text of a document, page by page."""
    with call.library() as library:
        pages = library.documents.read(find_document(library, document).id, first, last)
    for page in pages:
        place = place_of([page.page], [page.label])
        call.write(page.to_dict(), f"{f'[{place}]' if place else ''}\n{page.text}".strip() + "\n")


def delete(
    call: Call,
    documents: Annotated[list[str], typer.Argument(metavar="DOCUMENT", help="Ids, starts of ids, or file names.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete documents and the answers that used them."""
    with call.library() as library:
        found = {one.id: one for one in (find_document(library, key) for key in documents)}
        if not yes and not call.as_json and sys.stdin.isatty():
            names = ", ".join(one_line(one.source, 60) for one in found.values())
            them = "it" if len(found) == 1 else "them"
            typer.confirm(f"Delete {names}, with the answers that used {them}?", abort=True, err=True)
        deleted = library.documents.delete(list(found))
    call.write(
        deleted.to_dict(),
        f"Deleted {deleted.documents} documents and {deleted.answers} answers; "
        f"{size(deleted.freed_bytes)} are free again.",
    )


def export(
    call: Call,
    answer: Annotated[str, typer.Argument(metavar="ANSWER", help="Its id, the start of it, or `last`.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
) -> None:
    """Write an answer with its evidence: a page for people, or the whole record with --json."""
    from app.exports.answers import answer_as_html, answer_as_json

    with call.library() as library:
        record = library.answers.get(find_answer_id(library, answer))
        text = (answer_as_json if call.as_json else answer_as_html)(library, record)
    if output is None:  # into a file as it is: without some of its characters, places in texts would be wrong
        typer.echo(printable(text) if sys.stdout.isatty() else text)
    else:
        output.write_text(text, encoding="utf-8")
        tell(f"Written to {output}.")


def cite(
    call: Call,
    what: Annotated[
        str, typer.Argument(metavar="DOCUMENT", help="A document (id or file name), or an answer (id, or `last`).")
    ],
    format: Annotated[
        Literal["text", "bibtex", "csl-json"], typer.Option("--format", help="How to write it; --json: csl-json.")
    ] = "text",
    page: Annotated[
        str, typer.Option("--page", metavar="LABEL", help="The page, as printed; of an answer: its own.")
    ] = "",
) -> None:
    """Write a citation of a document, or of what an answer is taken from. `cairn set` adds author and date."""
    from app.exports import citations

    kind = "csl-json" if call.as_json else format
    with call.library() as library:
        try:
            text = citations.FORMATS[kind]([(find_document(library, what), page)])
        except NotFound:
            try:
                answer = library.answers.get(find_answer_id(library, what))
            except NotFound:
                raise NotFound("document or answer", what) from None
            text = citations.of_answer(library, answer, kind)
    say(text)


KEYS = ("document", "id", "source")
SEPARATOR = ";"


def set_(
    call: Call,
    document: Annotated[
        str | None,
        typer.Argument(metavar="DOCUMENT", show_default=False, help="Its id, the start of it, or its file name."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            show_default=False,
            help="author=, date= (2024-01-31), language=, tag=, or your own; a semicolon between values; none "
            "takes it away.",
        ),
    ] = None,
    rows_of: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FILE.csv", help="A table instead: a column `document` (id or file name), others by name."
        ),
    ] = None,
) -> None:
    """Set properties of documents by hand, for `--where`; without NAME=VALUE, show them.

    What a file says of itself (author, date, language, keywords) is there already. What is set by hand stays when the
    file is read again.
    """
    if (document is None) == (rows_of is None):
        raise typer.BadParameter("name a DOCUMENT, or a table with --csv FILE.csv.")
    rows = _rows(rows_of) if rows_of is not None else [(document or "", _assigned(assignments or ()))]
    failed = False
    with call.library(backup=True) as library:
        for key, properties in rows:
            try:
                found = find_document(library, key)
                if properties:
                    found = library.documents.set_properties(found.id, properties)
            except CairnError as error:
                if rows_of is None:
                    raise
                tell(f"{key}: {user_message(error)}")
                failed = True
            else:
                _write_properties(call, found)
    if failed:
        raise typer.Exit(1)


def tag(
    call: Call,
    document: DocumentArgument,
    tags: Annotated[list[str], typer.Argument(metavar="TAG", help="One or several.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take these away instead.")] = False,
) -> None:
    """Add tags to a document, or take them away: `cairn ask ... --where tag=draft`."""
    with call.library(backup=True) as library:
        found = find_document(library, document)
        kept = [one for one in found.properties.get("tag", ()) if one.casefold() not in {t.casefold() for t in tags}]
        changed = library.documents.set_properties(found.id, {"tag": kept if remove else [*kept, *tags]})
    _write_properties(call, changed)


def _assigned(assignments: Sequence[str]) -> dict[str, list[str]]:
    """`author=Ann; Ben` -> {"author": ["Ann", "Ben"]}. Raises InvalidRequest."""
    found: dict[str, list[str]] = {}
    for text in assignments:
        name, equals, values = text.partition("=")
        if not equals or not name.strip():
            raise InvalidRequest(f"{text!r} sets nothing: write NAME=VALUE, for example author=Lindqvist.")
        found.setdefault(name.strip(), []).extend(_split(values))
    return found


def _split(values: str) -> list[str]:
    return [value.strip() for value in values.split(SEPARATOR) if value.strip()]


def _rows(table: Path) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """(document, properties) of each line; an empty cell leaves its property alone. Raises InvalidRequest."""
    try:
        with open(table, encoding="utf-8-sig", newline="") as file:
            lines = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidRequest(f"{table} is not a table of comma-separated values in UTF-8: {error}.") from error
    key = next((name for name in KEYS if lines and name in lines[0]), None)
    if key is None:
        raise InvalidRequest(f"{table} has no column named `document` with ids or file names, or no lines.")
    for line in lines:
        cells = {name: cell for name, cell in line.items() if isinstance(name, str) and isinstance(cell, str)}
        yield line[key] or "", {name: _split(cell) for name, cell in cells.items() if name != key and cell.strip()}


def _write_properties(call: Call, document: Document) -> None:
    said = {"document_id": document.id, "source": document.source, "properties": document.to_dict()["properties"]}
    lines = facts({name: list(values) for name, values in document.properties.items()}, indent="  ")
    call.write(said, f"{document.source}\n{lines or '  nothing is known'}")
