"""`cairn list`, `show`, `delete` and `export`: what is in the library, and out of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.options import DocumentArgument, HomeOption, JsonOption, ModelOption, UserOption, WhereOption, library_of
from app.cli.output import facts, find_answer_id, find_document, one_line, say, size, table, tell, write_json
from retrieval.errors import NotFound
from retrieval.types.answers import place_of

if TYPE_CHECKING:
    from retrieval.library import Library
    from retrieval.types.records import Description

LISTED_ANSWERS = 1000


@dataclass(frozen=True)
class Listing:
    """Rows for programs, and the same as cells of a table for people; `right` are the columns of numbers."""

    rows: list[dict[str, Any]]
    heads: tuple[str, ...]
    cells: list[tuple[object, ...]]
    right: tuple[int, ...] = ()


def _documents(library: Library, search: str, where: Sequence[str]) -> Listing:
    found = library.documents(search=search, where=where)
    owned = any(one.owner for one in found)
    cells: list[tuple[object, ...]] = [
        (d.id, d.source, d.pages, f"{d.tokens:,}", size(d.size_bytes), d.state, d.added_at[:16])
        + ((d.owner or "-",) if owned else ())
        for d in found
    ]
    heads = ("document", "source", "pages", "tokens", "size", "state", "added", *(["owner"] if owned else []))
    about = library.descriptions(found)
    rows = [{**one.to_dict(), "description": about[one.id].to_dict() if one.id in about else None} for one in found]
    return Listing(rows, heads, cells, right=(2, 3, 4))


def _collections(library: Library, search: str) -> Listing:
    found = [one for one in library.collections() if search.lower() in one.name.lower()]
    cells: list[tuple[object, ...]] = [(one.id, one.name, one.documents) for one in found]
    return Listing([one.to_dict() for one in found], ("collection", "name", "documents"), cells, right=(2,))


def _jobs(library: Library, search: str) -> Listing:
    found = [one for one in library.jobs() if search.lower() in one.source.lower()]
    return Listing(
        [one.to_dict() for one in found],
        ("job", "source", "state", "pages", "error"),
        [(one.id, one.source, one.state, f"{one.pages_done}/{one.pages}", one.error or one.note) for one in found],
        right=(3,),
    )


def _answers(library: Library, search: str) -> Listing:
    found = library.answers(limit=LISTED_ANSWERS, search=search)
    return Listing(
        [one.to_dict() for one in found],
        ("answer", "asked", "question", "text"),
        [(one.id, one.created_at[:16], one.question, one.text) for one in found],
    )


def list_(
    context: typer.Context,
    collections: Annotated[bool, typer.Option("--collections", help="List collections instead.")] = False,
    jobs: Annotated[bool, typer.Option("--jobs", help="List ingestion jobs instead, newest first.")] = False,
    answers: Annotated[bool, typer.Option("--answers", help="List answers instead, newest first.")] = False,
    search: Annotated[
        str, typer.Option("--search", metavar="TEXT", help="Only those whose name or text contains TEXT.")
    ] = "",
    where: WhereOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
    user: UserOption = None,
) -> None:
    """List documents."""
    chosen = {"collections": collections, "jobs": jobs, "answers": answers}
    if sum(chosen.values()) > 1:
        raise typer.BadParameter("choose one of --collections, --jobs and --answers.")
    kind = next((name for name, flag in chosen.items() if flag), "documents")
    if where and kind != "documents":
        raise typer.BadParameter("--where chooses among documents.")
    listing_of = {"collections": _collections, "jobs": _jobs, "answers": _answers}
    with library_of(context, home, model, user) as library:
        listing = _documents(library, search, where or ()) if kind == "documents" else listing_of[kind](library, search)
    if as_json:
        for row in listing.rows:
            write_json(row)
    elif listing.rows:
        say(table(listing.heads, listing.cells, right=listing.right))
    else:
        tell(f"There are no {kind}{' matching that' if search else ''} yet.")


def show(
    context: typer.Context,
    document: DocumentArgument,
    page: Annotated[
        int | None, typer.Option("--page", min=1, metavar="N", help="Also show the text of page N, counted from 1.")
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
    user: UserOption = None,
) -> None:
    """Show what is known of one document."""
    with library_of(context, home, model, user) as library:
        found = find_document(library, document)
        text = library.page_text(found.id, page) if page is not None else None
        about = library.description(found.id) if found.state == "ready" else None
        asides = library.set_aside(found.id) if found.state == "ready" else []
    if as_json:
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


def delete(
    context: typer.Context,
    documents: Annotated[list[str], typer.Argument(metavar="DOCUMENT", help="Ids, starts of ids, or file names.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
    user: UserOption = None,
) -> None:
    """Delete documents and the answers that used them."""
    with library_of(context, home, model, user) as library:
        found = {one.id: one for one in (find_document(library, key) for key in documents)}
        if not yes and not as_json and sys.stdin.isatty():
            names = ", ".join(one_line(one.source, 60) for one in found.values())
            typer.confirm(
                f"Delete {names}, with the answers that used {'it' if len(found) == 1 else 'them'}?",
                abort=True,
                err=True,
            )
        deleted = library.delete_documents(list(found))
    if as_json:
        write_json(deleted.to_dict())
    else:
        say(
            f"Deleted {deleted.documents} documents and {deleted.answers} answers; "
            f"{size(deleted.freed_bytes)} are free again."
        )


def export(
    context: typer.Context,
    answer: Annotated[str, typer.Argument(metavar="ANSWER", help="Its id, the start of it, or `last`.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The whole record as JSON instead of a page for people.")
    ] = False,
    home: HomeOption = None,
    model: ModelOption = None,
    user: UserOption = None,
) -> None:
    """Write an answer with its evidence as an HTML page or JSON."""
    from app.exports.answers import answer_as_html, answer_as_json

    with library_of(context, home, model, user) as library:
        record = library.answer(find_answer_id(library, answer))
        text = (answer_as_json if as_json else answer_as_html)(library, record)
    if output is None:
        say(text)
    else:
        output.write_text(text, encoding="utf-8")
        tell(f"Written to {output}.")


class CitationFormat(StrEnum):
    """How citations are written."""

    TEXT = "text"
    BIBTEX = "bibtex"
    CSL_JSON = "csl-json"


def cite(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="DOCUMENT", help="A document (id or file name), or an answer (id, or `last`).")
    ],
    format: Annotated[CitationFormat, typer.Option("--format", help="How to write it.")] = CitationFormat.TEXT,
    page: Annotated[
        str, typer.Option("--page", metavar="LABEL", help="The page, as printed; of an answer: its own.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format csl-json.")] = False,
    home: HomeOption = None,
    model: ModelOption = None,
    user: UserOption = None,
) -> None:
    """Write a citation of a document, or of what an answer is taken from. `cairn set` adds author and date."""
    from app.exports import citations

    kind = "csl-json" if as_json else format.value
    with library_of(context, home, model, user) as library:
        try:
            text = citations.FORMATS[kind](find_document(library, what), page)
        except NotFound:
            text = citations.of_answer(library, library.answer(find_answer_id(library, what)), kind)
    say(text)
