"""`cairn verify`, `repair`, `gc` and `doctor`: is everything whole, and if not, make it so."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.options import HomeOption, JsonOption, ModelOption, library_of, settings_of
from app.cli.output import duration, facts, printable, say, size, tell, write_json


def verify(
    context: typer.Context, as_json: JsonOption = False, home: HomeOption = None, model: ModelOption = None
) -> None:
    """Check every stored byte against its checksum.

    Exit status 1 if anything is damaged.
    """
    with library_of(context, home, model) as library:
        report = library.verify()
    if as_json:
        write_json({**report.to_dict(), "ok": report.ok})
    else:
        for one in report.damage:
            tell(f"damaged: {printable(one.source)} (document {one.document_id}), {one.shard}: {one.detail}")
        for name in report.orphans:
            tell(f"not in the catalogue: {name}")
        say(
            f"{report.documents} documents, {report.blocks:,} blocks, {size(report.size_bytes)} checked in "
            f"{duration(report.seconds)}: {_verdict(len(report.damage), len(report.orphans))}"
        )
    if not report.ok:
        raise typer.Exit(1)


def _verdict(damaged: int, orphans: int) -> str:
    if damaged:
        return f"{damaged} damaged. `cairn repair` reads the damaged documents again."
    return f"all whole.{f' `cairn gc` removes {orphans} files that belong to nothing.' if orphans else ''}"


def repair(
    context: typer.Context,
    reingest: Annotated[
        bool, typer.Option("--reingest", help="Read all documents again, as another model needs.")
    ] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
) -> None:
    """Read damaged documents again from their originals.

    Exit status 1 if one could not be.
    """
    with library_of(context, home, model) as library:
        report = library.repair(reingest=reingest)
    if as_json:
        write_json(report.to_dict())
    else:
        for document, reason in report.failed:
            tell(f"not repaired: {printable(document)}: {reason}")
        say(f"{len(report.repaired)} documents read again, {report.blocks:,} blocks, in {duration(report.seconds)}.")
    if report.failed:
        raise typer.Exit(1)


def gc(context: typer.Context, as_json: JsonOption = False, home: HomeOption = None, model: ModelOption = None) -> None:
    """Remove files that an interruption left behind."""
    with library_of(context, home, model) as library:
        report = library.gc()
    if as_json:
        write_json(report.to_dict())
    else:
        say(f"{len(report.files)} files removed, {size(report.freed_bytes)} are free again.")


def doctor(
    context: typer.Context, as_json: JsonOption = False, home: HomeOption = None, model: ModelOption = None
) -> None:
    """Say what this machine can do, and what is wrong.

    Exit status 1 if anything is wrong.
    """
    from app.doctor import examine

    report = examine(settings_of(context, home, model))
    if as_json:
        write_json(report)
    else:
        say(facts({name: value for name, value in report.items() if name != "problems"}))
        say("\nNothing is wrong." if not report["problems"] else "")
        for problem in report["problems"]:
            tell(f"problem: {problem}")
    if report["problems"]:
        raise typer.Exit(1)
