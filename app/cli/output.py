"""The output of the command line: JSON, tables, sizes, and one clear line for every problem.

Text from documents may hold terminal control codes; `printable` removes them before they reach a terminal.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from model.errors import ModelError
from retrieval.errors import NOT_ENOUGH_MEMORY, CairnError, InvalidRequest, NotFound, ran_out_of_memory
from retrieval.types.records import Document, Scope
from storage.errors import StorageError

if TYPE_CHECKING:
    from retrieval.library import Library


SHORTEST_PREFIX = 4


def find_document(library: Library, key: str) -> Document:
    """The document that a person means: by id, by file name, or by the start of an id (4 characters or more).

    Raises NotFound, or InvalidRequest if several fit.
    """
    documents = library.documents.list()
    for fits in (
        [one for one in documents if one.id == key],
        [one for one in documents if one.source == key],
        [one for one in documents if len(key) >= SHORTEST_PREFIX and one.id.startswith(key)],
    ):
        if len(fits) > 1:
            ids = ", ".join(one.id for one in fits[:5])
            raise InvalidRequest(f"{key!r} matches {len(fits)} documents; give one of these ids: {ids}")
        if fits:
            return fits[0]
    raise NotFound("document", key)


def find_answer_id(library: Library, key: str) -> str:
    """The id of the answer that a person means: by id, by the start of one (4 characters or more), or `last`."""
    heads = library.answers.list(limit=10_000)
    if key == "last" and heads:
        return heads[0].id
    fits = [one.id for one in heads if one.id == key or (len(key) >= SHORTEST_PREFIX and one.id.startswith(key))]
    if len(fits) > 1:
        raise InvalidRequest(f"{key!r} matches {len(fits)} answers; give more of the id.")
    return fits[0] if fits else library.answers.get(key).id


def scope_of(
    library: Library,
    documents: Sequence[str] | None,
    collections: Sequence[str] | None,
    where: Sequence[str] | None = None,
) -> Scope | None:
    """--document, --collection and --where -> what a question may see; None if none was given."""
    if not documents and not collections and not where:
        return None
    chosen = tuple(find_document(library, key).id for key in documents or ())
    known = {key: one.id for one in library.collections.list() for key in (one.id, one.name)} if collections else {}
    for name in collections or ():
        if name not in known:
            raise NotFound("collection", name)
    return Scope(chosen, tuple(known[name] for name in collections or ()), tuple(where or ()))


def write_json(value: Any) -> None:
    """One line of JSON, written at once so that a reader of the pipe sees it."""
    typer.echo(json.dumps(value, ensure_ascii=False, default=str))
    sys.stdout.flush()


def say(text: str = "") -> None:
    typer.echo(printable(text))


def tell(text: str) -> None:
    """A line for the person, on stderr; one, whatever is named in it."""
    typer.echo(" ".join(printable(text).splitlines()), err=True)


def user_message(error: BaseException) -> str | None:
    """The one line that says what went wrong, or None if the error is our own mistake and deserves its traceback."""
    if isinstance(error, (CairnError, ModelError, StorageError)):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if ran_out_of_memory(error):
        return NOT_ENOUGH_MEMORY
    return None


def printable(text: str) -> str:
    """`text` without control, direction and private-use characters; line breaks and tabs stay."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co"))


def one_line(text: str, width: int = 100) -> str:
    """The start of `text` on one line."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= width else flat[: width - 1].rstrip() + "…"


def size(size_bytes: float) -> str:
    """1300000 -> "1.3 MB"; decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size_bytes) < 1000:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


def duration(seconds: float) -> str:
    """75 -> "1:15"; under ten seconds with one decimal."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[int] = ()) -> str:
    """Columns as wide as their widest cell; those numbered in `right` are set flush right."""
    cells = [[one_line(str(cell), 60) for cell in row] for row in rows]
    widths = [max(len(head), *(len(row[at]) for row in cells), 0) for at, head in enumerate(heads)]
    lines = [
        "  ".join(
            cell.rjust(w) if at in right else cell.ljust(w)
            for at, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in ([list(heads), *cells] if cells else [])
    ]
    return "\n".join(line.rstrip() for line in lines)


def facts(values: Mapping[str, Any], indent: str = "") -> str:
    """Nested names and values, one a line; names that end in _bytes are shown as sizes."""
    lines = []
    for name, value in values.items():
        words = name.removesuffix("_bytes").replace("_", " ")
        if isinstance(value, Mapping):
            lines += [f"{indent}{words}", facts(value, indent + "  ")] if value else [f"{indent}{words}: none"]
        elif isinstance(value, (list, tuple)):
            lines.append(f"{indent}{words}: {', '.join(map(str, value)) if value else 'none'}")
        elif name.endswith("_bytes") and isinstance(value, (int, float)):
            lines.append(f"{indent}{words}: {size(value)}")
        elif isinstance(value, bool):
            lines.append(f"{indent}{words}: {'yes' if value else 'no'}")
        else:
            lines.append(f"{indent}{words}: {f'{value:,}' if isinstance(value, int) else value}")
    return "\n".join(lines)
