"""`cairn find`, `grep` and `read`: documents by their words, places by exact text, and the text itself."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.options import (
    CollectionsOption,
    DocumentArgument,
    DocumentsOption,
    HomeOption,
    JsonOption,
    ModelOption,
    UserOption,
    WhereOption,
    library_of,
)
from app.cli.output import find_document, say, scope_of, tell, write_json
from retrieval.types.answers import place_of


def find(
    context: typer.Context,
    words: Annotated[str, typer.Argument(metavar="WORDS", help="Words of its name, title or text.")],
    where: WhereOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
    user: UserOption = None,
) -> None:
    """List the documents whose name, title or text holds all of WORDS."""
    with library_of(context, home, model, user) as library:
        found = library.documents(search=words, where=where or ())
    for one in found:
        if as_json:
            write_json(one.to_dict())
        else:
            say(f"{one.id}  {one.source}  {one.title}")
    if not found:
        tell("No document holds all of these words.")
        raise typer.Exit(1)


def grep(
    context: typer.Context,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Words as they stand in the text.")],
    expression: Annotated[bool, typer.Option("--regex", "-E", help="PATTERN is a regular expression.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, metavar="N", help="Most places.")] = 100,
    document: DocumentsOption = None,
    collection: CollectionsOption = None,
    where: WhereOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
    user: UserOption = None,
) -> None:
    """Show where PATTERN stands: in any case, with or without accents. Exit status 1 if it stands nowhere."""
    with library_of(context, home, model, user) as library:
        scope = scope_of(library, document, collection, where)
        found = library.grep(pattern, expression=expression, within=scope, limit=limit, each=limit)
    for one in found:
        if as_json:
            write_json(one.to_dict())
        else:
            say(f"{', '.join(part for part in (one.source, one.place) if part)}: {one.line}")
    if not found:
        tell("It stands nowhere.")
        raise typer.Exit(1)


def read(
    context: typer.Context,
    document: DocumentArgument,
    first: Annotated[int, typer.Option("--from", min=1, metavar="N", help="First page, counted from 1.")] = 1,
    last: Annotated[
        int | None, typer.Option("--to", min=1, metavar="N", show_default=False, help="Last page; default: the end.")
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
    user: UserOption = None,
) -> None:
    """Print the text of a document, page by page."""
    with library_of(context, home, model, user) as library:
        pages = library.read(find_document(library, document).id, first, last)
    for page in pages:
        if as_json:
            write_json(page.to_dict())
        else:
            place = place_of([page.page], [page.label])
            say(f"{f'[{place}]' if place else ''}\n{page.text}".strip() + "\n")
