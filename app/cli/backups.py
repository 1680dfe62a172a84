"""`cairn backup` and `cairn restore`: the catalogue in one file, and back into SQLite or PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.maintenance import tell_rescue
from app.cli.options import HomeOption, JsonOption, ModelOption, settings_of
from app.cli.output import say, size, write_json

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The copy of the catalogue.")]


def backup(
    context: typer.Context,
    file: FileArgument,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
) -> None:
    """Copy the catalogue into one file, while it is in use.

    Then copy the home's folders kv and files with any tool: what is in them never changes.
    """
    from app.assembly import backup_catalogue

    settings = settings_of(context, home, model)
    made = backup_catalogue(settings, file)
    if as_json:
        write_json({"file": str(made), "size_bytes": made.stat().st_size})
    else:
        say(
            f"The catalogue was copied to {made} ({size(made.stat().st_size)}). Now copy {settings.home}/kv and /files."
        )


def restore(
    context: typer.Context,
    file: FileArgument,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
) -> None:
    """Put a copy in place of the catalogue, and bring it up to what is stored by now.

    Stop all other Cairn processes first. With CAIRN_DATABASE_URL, a library moves to PostgreSQL or back this way.
    """
    from app.assembly import restore_catalogue

    report = restore_catalogue(settings_of(context, home, model), file)
    if as_json:
        write_json(vars(report))
    else:
        tell_rescue(report)
