"""Options of many commands, and `command`, which gives every command the common ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.output import say, tell, write_json
from retrieval.types.answers import QUOTED_TOKENS, WRITTEN_TOKENS

if TYPE_CHECKING:
    from app.settings import Settings
    from retrieval.library import Library


def path_given(text: str) -> str:
    """Parses a path; raises `typer.BadParameter` for an empty one, which would mean the current folder."""
    if not text:
        raise typer.BadParameter("the path is empty. Name a file or a folder; . is the current folder.")
    return text


HomeOption = Annotated[
    str | None,
    typer.Option(
        "--home",
        metavar="DIR",
        parser=path_given,
        help="Folder for all data (or CAIRN_HOME; default: the platform's data folder).",
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
PathsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH",
        parser=path_given,
        show_default=False,
        help="Files or folders to read first, and to ask alone.",
    ),
]
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
        "--questions",
        metavar="FILE.jsonl",
        parser=path_given,
        help='One {"id", "question"} per line (- is stdin); answers as JSON lines.',
    ),
]


@dataclass(frozen=True)
class Call:
    """One call of a command, with the options that every command has."""

    home: str | None
    model: str | None
    user: str | None = None
    as_json: bool = False

    def settings(self, **overrides: Any) -> Settings:
        """Options of the command win over those before its name, and these over the environment."""
        from app.settings import load_settings

        return load_settings(home=self.home, model=self.model, **overrides)

    @contextmanager
    def library(self, *, backup: bool = False, **overrides: Any) -> Iterator[Library]:
        """The library, open; as `--user` sees it, or the whole of it. `backup`: of the catalogue, meanwhile, as for
        commands that change what is stored."""
        from app import assembly

        with assembly.open_library(self.settings(**overrides)) as library:
            if backup:
                library.maintenance.keep_backup()
            if self.user is None:
                yield library
                return
            from storage.records import Principal

            account = library.accounts.get(self.user)
            yield library.as_seen_by(Principal(account.id, account.name))

    def write(self, row: Any, text: str) -> None:
        """The result: JSON for programs, or words for people."""
        if self.as_json:
            write_json(row)
        else:
            say(text)

    def write_each(self, rows: Iterable[Any], text: Callable[[Any], str], nothing: str = "") -> None:
        """One line each, of records that have `to_dict`. `nothing`: said, with exit status 1, where there are none."""
        some = False
        for row in rows:
            some = True
            if self.as_json:
                write_json(row.to_dict())
            else:
                say(text(row))
        if nothing and not some:
            tell(nothing)
            raise typer.Exit(1)


_Parameter = inspect.Parameter
_SHARED = (
    _Parameter("as_json", _Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption),
    _Parameter("home", _Parameter.KEYWORD_ONLY, default=None, annotation=HomeOption),
    _Parameter("model", _Parameter.KEYWORD_ONLY, default=None, annotation=ModelOption),
)
_USER = _Parameter("user", _Parameter.KEYWORD_ONLY, default=None, annotation=UserOption)


def command(function: Callable[..., None], *, user: bool = False) -> Callable[..., None]:
    """A command of Typer from a function of a `Call` and of its own options: --json, --home and --model join them, and
    --user for what one person may do."""
    own = [*inspect.signature(function, eval_str=True).parameters.values()][1:]
    parameters = [
        _Parameter("context", _Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *(each.replace(kind=_Parameter.KEYWORD_ONLY) for each in own),
        *_SHARED,
        *([_USER] if user else []),
    ]

    def run(
        context: typer.Context,
        as_json: bool,
        home: str | None,
        model: str | None,
        user: str | None = None,
        **given: Any,
    ) -> None:
        home_before, model_before = context.obj
        function(Call(home or home_before, model or model_before, user, as_json), **given)

    run.__doc__ = function.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
