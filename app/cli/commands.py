"""The commands and their order, and the one place where a problem becomes a line on stderr and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

import app
from app.cli import bundles, ingest, library, maintenance, questions, serve, sync, users, work
from app.cli.options import HomeOption, ModelOption, command
from app.cli.output import tell, user_message

INTERRUPTED = 130


class Commands(TyperGroup):
    """Commands in the order in which they were added; problems that a user can solve end as one line."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            tell("Stopped. Run the same command again to resume the documents that were being read.")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # the reader of the pipe has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except Exception as error:
            message = user_message(error)
            if message is None:
                raise
            tell(f"cairn: {message}")
            raise typer.Exit(1) from error


cli = typer.Typer(
    name="cairn",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


@cli.callback()
def options(
    context: typer.Context,
    home: HomeOption = None,
    model: ModelOption = None,
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=lambda on: _version() if on else None, help="Show the version."
    ),
) -> None:
    """Ask questions of your own documents, and see the passages that the answer comes from."""
    context.obj = home, model  # those behind the command's name win


def _version() -> None:
    typer.echo(f"cairn {app.version()}")
    raise typer.Exit


ONE_PERSON_MAY: dict[str, Callable[..., None]] = {
    "ingest": ingest.ingest,
    "sync": sync.sync,
    "search": questions.search,
    "ask": questions.ask,
    "find": library.find,
    "grep": library.grep,
    "read": library.read,
    "list": library.list_,
    "show": library.show,
    "delete": library.delete,
    "export": library.export,
    "cite": library.cite,
    "set": library.set_,
    "tag": library.tag,
    "export-library": bundles.export_library,
    "import-library": bundles.import_library,
}
"""With --user: as that person may."""

ADMINISTRATION: dict[str, Callable[..., None]] = {
    "verify": maintenance.verify,
    "repair": maintenance.repair,
    "gc": maintenance.gc,
    "rescue": maintenance.rescue,
    "backup": maintenance.backup,
    "restore": maintenance.restore,
    "doctor": maintenance.doctor,
    "serve": serve.serve,
    "token": serve.token,
    "work": work.work,
}

ACCOUNTS: dict[str, Callable[..., None]] = {
    "add": users.add,
    "list": users.list_,
    "password": users.password,
    "token": users.token,
    "link": users.link,
    "unlink": users.unlink,
    "adopt": users.adopt,
    "remove": users.remove,
}

for name, function in ONE_PERSON_MAY.items():
    cli.command(name)(command(function, user=True))
for name, function in ADMINISTRATION.items():
    cli.command(name)(command(function))
user = typer.Typer(help="Accounts of the people who share this library.", no_args_is_help=True)
for name, function in ACCOUNTS.items():
    user.command(name)(command(function))
cli.add_typer(user, name="user")


def run() -> None:
    """Entry of the console script."""
    cli(prog_name="cairn" if Path(sys.argv[0]).name == "cairn" else "python -m app")
