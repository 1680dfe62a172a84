"""Options that many commands share, and from them the settings and the library of this call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retrieval.types.answers import QUOTED_TOKENS, WRITTEN_TOKENS

if TYPE_CHECKING:
    from app.settings import Settings
    from retrieval.library import Library

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home", metavar="DIR", help="Folder for all data (or CAIRN_HOME; default: the platform's data folder)."
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="PATH", help="Checkpoint (or CAIRN_MODEL; default: the shipped one)."),
]
WriterOption = Annotated[
    str | None,
    typer.Option(
        "--writer",
        metavar="NAME",
        help="Who words the answer (or CAIRN_WRITER): a chat checkpoint, or the address of a server.",
    ),
]
UserOption = Annotated[
    str | None,
    typer.Option("--user", metavar="NAME", help="Act as this user; default: the administrator, who sees everything."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to stdout and nothing else.")]
BlocksOption = Annotated[
    int, typer.Option("-k", "--top-k", min=1, max=1024, metavar="N", help="How many blocks to select.")
]
VotersOption = Annotated[
    str,
    typer.Option(
        "--voters",
        metavar="WHO",
        help="Of a model that writes: who chooses the blocks it reads. token: every token of every head for itself; "
        "head; group: the heads that share keys together.",
    ),
]
PositionsOption = Annotated[
    str,
    typer.Option(
        "--positions",
        metavar="WHERE",
        help="Of a model that writes: where the blocks stand that it reads. library: all alike, before the question; "
        "paper: the newest at their distance, the others further away.",
    ),
]
DocumentsOption = Annotated[
    list[str] | None,
    typer.Option("--document", metavar="DOCUMENT", help="Only this document (id or file name); repeatable."),
]
CollectionsOption = Annotated[
    list[str] | None, typer.Option("--collection", metavar="NAME", help="Only this collection; repeatable.")
]
DocumentArgument = Annotated[str, typer.Argument(metavar="DOCUMENT", help="Its id, the start of it, or its file name.")]
IntoCollectionOption = Annotated[
    str | None,
    typer.Option("--collection", metavar="NAME", help="New documents go to this collection, created if new."),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="Only documents that meet it: author=Lindqvist, date>=2024, tag!=draft, title~dam; repeatable.",
    ),
]
LengthOption = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        min=1,
        max=4096,
        metavar="N",
        show_default=False,
        help=f"Longest answer; default: {QUOTED_TOKENS} tokens, {WRITTEN_TOKENS} from a writer.",
    ),
]
WholeOption = Annotated[
    bool | None,
    typer.Option(
        "--whole/--passages",
        show_default=False,
        help="Let the writer read all of the documents, or the best passages only; default: all where --document or "
        '--collection names some and the question asks for it ("summarise", "list all").',
    ),
]
QuestionsOption = Annotated[
    str | None,
    typer.Option(
        "--questions", metavar="FILE.jsonl", help='One {"id", "question"} per line (- is stdin); answers as JSON lines.'
    ),
]


@dataclass(frozen=True)
class GlobalOptions:
    """--home and --model as given before the command's name."""

    home: Path | None = None
    model: str | None = None


def settings_of(context: typer.Context, home: Path | None, model: str | None, **overrides: Any) -> Settings:
    """Settings of this call: options after the command win over those before it, and these over the environment."""
    from app.settings import load_settings

    before = context.obj if isinstance(context.obj, GlobalOptions) else GlobalOptions()
    return load_settings(home=home or before.home, model=model or before.model, **overrides)


@contextmanager
def library_of(
    context: typer.Context,
    home: Path | None,
    model: str | None,
    user: str | None = None,
    *,
    backup: bool = False,
    **overrides: Any,
) -> Iterator[Library]:
    """The library of this call, open; as `user` sees it, or the whole of it. `backup`: of the catalogue, meanwhile, as
    for commands that change what is stored."""
    from app import assembly

    with assembly.open_library(settings_of(context, home, model, **overrides)) as library:
        if backup:
            library.keep_backup()
        if user is None:
            yield library
            return
        from storage.records import Principal

        account = library.accounts.named(user)
        yield library.as_seen_by(Principal(account.id, account.name))
