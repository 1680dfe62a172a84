"""`cairn verify`, `repair`, `gc` and `doctor`: is everything whole, and if not, make it so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.options import HomeOption, JsonOption, ModelOption, library_of, settings_of
from app.cli.output import duration, facts, one_line, say, size, tell, write_json

if TYPE_CHECKING:
    from storage.recovery import RescueReport

SECONDS_PER_DAY = 24 * 3600


def verify(
    context: typer.Context,
    texts: Annotated[
        bool, typer.Option("--texts", help="Also read every original anew and compare its text, as after an import.")
    ] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
) -> None:
    """Check every stored byte against its checksum.

    Exit status 1 if anything is damaged.
    """
    with library_of(context, home, model) as library:
        report = library.verify(texts=texts)
    if as_json:
        write_json({**report.to_dict(), "ok": report.ok})
    else:
        for one in report.damage:
            tell(f"damaged: {one_line(one.source, 300)} (document {one.document_id}), {one.shard}: {one.detail}")
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
        bool, typer.Option("--reingest", help="Read documents again that another model or an older version read.")
    ] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
) -> None:
    """Read damaged documents again from their originals.

    Exit status 1 if one could not be.
    """
    with library_of(context, home, model, backup=True) as library:
        report = library.repair(reingest=reingest)
    if as_json:
        write_json(report.to_dict())
    else:
        for document, reason in report.failed:
            tell(f"not repaired: {one_line(document, 300)}: {reason}")
        say(f"{len(report.repaired)} documents read again, {report.blocks:,} blocks, in {duration(report.seconds)}.")
    if report.failed:
        raise typer.Exit(1)


def gc(
    context: typer.Context,
    now: Annotated[
        bool, typer.Option("--now", help="Empty the trash, and replace all backups by one of the catalogue as it is.")
    ] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
    model: ModelOption = None,
) -> None:
    """Sweep files that an interruption left behind into the trash.

    The trash keeps them for CAIRN_TRASH_DAYS.
    """
    days = 0.0 if now else settings_of(context, home, model).trash_days
    with library_of(context, home, model, backup=not now) as library:
        report = library.gc(grace_seconds=days * SECONDS_PER_DAY)
    if as_json:
        write_json(report.to_dict())
    else:
        where = "removed" if now else f"moved to the trash, which keeps them for {days:g} days"
        swept = f"{len(report.files)} files ({size(report.swept_bytes)}) {where}"
        say(f"{swept}; {size(report.freed_bytes)} are free again.")


def rescue(
    context: typer.Context, as_json: JsonOption = False, home: HomeOption = None, model: ModelOption = None
) -> None:
    """Make a lost or damaged catalogue anew, from its last backup and from what is stored.

    Stop all other Cairn processes first. The old catalogue is kept in the trash.
    """
    from app.assembly import rescue_catalogue

    report = rescue_catalogue(settings_of(context, home, model))
    if as_json:
        write_json(None if report is None else vars(report))
    elif report is None:
        say("The catalogue is sound and knows what is stored. There is nothing to rescue.")
    else:
        tell_rescue(report)


def tell_rescue(report: RescueReport) -> None:
    begun = "no sound copy of the old one was found" if report.base is None else f"begun with {report.base}"
    say(f"A new catalogue was made: {begun}; {report.num_users} accounts.")
    for documents, how in (
        (report.kept, "are as they were"),
        (report.restored, "came from their sidecars"),
        (report.reread, "are read again from their originals when `cairn serve` or `cairn ingest` runs"),
        (report.dropped, "are not stored any more and were left out"),
    ):
        if documents:
            say(f"{len(documents)} documents {how}: {one_line(', '.join(documents), 200)}")
    if report.missing_shards:
        say(f"{report.missing_shards} files of memory are missing: `cairn repair` makes them again.")
    say("Accounts and answers are those of the copy it began with. `cairn verify` checks every stored byte.")


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
