"""`cairn set` and `cairn tag`: author, date, language, tags and own fields of documents, by hand or from a table."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.options import DocumentArgument, HomeOption, JsonOption, ModelOption, UserOption, library_of
from app.cli.output import facts, find_document, say, tell, user_message, write_json
from retrieval.errors import CairnError, InvalidRequest

if TYPE_CHECKING:
    from retrieval.library import Library
    from retrieval.types.records import Document


KEYS = ("document", "id", "source")
SEPARATOR = ";"


def set_(
    context: typer.Context,
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
    table: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FILE.csv", help="A table instead: a column `document` (id or file name), others by name."
        ),
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
    user: UserOption = None,
) -> None:
    """Set properties of documents by hand, for `--where`; without NAME=VALUE, show them.

    What a file says of itself (author, date, language, keywords) is there already. What is set by hand stays when the
    file is read again.
    """
    if (document is None) == (table is None):
        raise typer.BadParameter("name a DOCUMENT, or a table with --csv FILE.csv.")
    rows = _rows(table) if table is not None else [(document or "", _assigned(assignments or ()))]
    failed = False
    with library_of(context, home, model, user, backup=True) as library:
        for key, properties in rows:
            try:
                found = _set(library, key, properties)
            except CairnError as error:
                if table is None:
                    raise
                tell(f"{key}: {user_message(error)}")
                failed = True
            else:
                _report(found, as_json)
    if failed:
        raise typer.Exit(1)


def tag(
    context: typer.Context,
    document: DocumentArgument,
    tags: Annotated[list[str], typer.Argument(metavar="TAG", help="One or several.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take these away instead.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
    user: UserOption = None,
) -> None:
    """Add tags to a document, or take them away: `cairn ask ... --where tag=draft`."""
    with library_of(context, home, model, user, backup=True) as library:
        found = find_document(library, document)
        kept = [one for one in found.properties.get("tag", ()) if one.casefold() not in {t.casefold() for t in tags}]
        changed = library.set_properties(found.id, {"tag": kept if remove else [*kept, *tags]})
    _report(changed, as_json)


def _set(library: Library, key: str, properties: Mapping[str, Sequence[str]]) -> Document:
    found = find_document(library, key)
    return library.set_properties(found.id, properties) if properties else found


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
        raise InvalidRequest(f"{table} is no table of comma-separated values in UTF-8: {error}.") from error
    key = next((name for name in KEYS if lines and name in lines[0]), None)
    if key is None:
        raise InvalidRequest(f"{table} has no column named `document` with ids or file names, or no lines.")
    for line in lines:
        cells = {name: cell for name, cell in line.items() if isinstance(name, str) and isinstance(cell, str)}
        yield line[key] or "", {name: _split(cell) for name, cell in cells.items() if name != key and cell.strip()}


def _report(document: Document, as_json: bool) -> None:
    if as_json:
        said = document.to_dict()["properties"]
        write_json({"document_id": document.id, "source": document.source, "properties": said})
        return
    lines = facts({name: list(values) for name, values in document.properties.items()}, indent="  ")
    say(f"{document.source}\n{lines or '  nothing is known'}")
