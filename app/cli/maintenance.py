"""`cairn verify`, `repair`, `gc` and `doctor`: is everything whole, and if not, make it so."""

from __future__ import annotations

import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.options import Call
from app.cli.output import duration, facts, one_line, say, size, tell, user_message, write_json

if TYPE_CHECKING:
    from app.settings import Settings
    from storage.recovery import RescueReport


PACKAGES = ("cairn", "torch", "transformers", "gradio", "faiss-cpu", "sqlalchemy", "pypdf", "pypdfium2")
LITTLE_DISK_BYTES = 1_000_000_000


def examine(settings: Settings) -> dict[str, Any]:
    """Machine, settings and library as plain values; `problems` is a list of sentences, empty when all is well."""
    from app import assembly

    report: dict[str, Any] = {
        "home": str(settings.home),
        "model_path": settings.model,
        "versions": {"python": platform.python_version(), **_versions()},
    }
    problems: list[str] = []
    try:
        assembly.check_model(settings.model)
        with assembly.open_library(settings) as library:
            found = library.maintenance.doctor()
        problems += found.pop("problems", [])
        report |= {**found, "versions": {**report["versions"], **found.get("versions", {})}}
    except Exception as error:
        message = user_message(error)
        if message is None:
            raise
        problems.append(message)
    if "free_bytes" not in report:  # the library, which could not be opened, would have said so
        report["free_bytes"] = free = _free_disk(settings.home)
        if free is not None and free < LITTLE_DISK_BYTES:
            problems.append(f"Little disk space is left at {settings.home}: {free / 1e6:,.0f} MB.")
    return {**report, "problems": list(dict.fromkeys(problems))}


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a folder without being installed
            found[name] = "not installed"
    return found


def _free_disk(home: Path) -> int | None:
    folder = next(folder for folder in (home, *home.parents) if folder.exists())
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


SECONDS_PER_DAY = 24 * 3600


def verify(
    call: Call,
    texts: Annotated[
        bool, typer.Option("--texts", help="Also read every original anew and compare its text, as after an import.")
    ] = False,
) -> None:
    """Check every stored byte against its checksum.

    Exit status 1 if anything is damaged.
    """
    with call.library() as library:
        report = library.maintenance.verify(texts=texts)
    if call.as_json:
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
    call: Call,
    reingest: Annotated[
        bool, typer.Option("--reingest", help="Read documents again that another model or an older version read.")
    ] = False,
    later: Annotated[
        bool, typer.Option("--later", help="With --reingest: leave the reading to `cairn serve` or `cairn work`.")
    ] = False,
) -> None:
    """Read damaged documents again from their originals.

    Exit status 1 if one could not be.
    """
    with call.library(backup=True) as library:
        report = library.maintenance.repair(reingest=reingest, later=later)
        waiting = library.maintenance.figures().jobs.get("queued", 0)
    for document, reason in () if call.as_json else report.failed:
        tell(f"not repaired: {one_line(document, 300)}: {reason}")
    again = f"{len(report.repaired)} documents read again, {report.blocks:,} blocks, in {duration(report.seconds)}."
    call.write(report.to_dict(), f"{waiting} documents wait to be read again." if later else again)
    if report.failed:
        raise typer.Exit(1)


def gc(
    call: Call,
    now: Annotated[
        bool, typer.Option("--now", help="Empty the trash, and replace all backups by one of the catalogue as it is.")
    ] = False,
) -> None:
    """Sweep files that an interruption left behind into the trash.

    The trash keeps them for CAIRN_TRASH_DAYS.
    """
    days = 0.0 if now else call.settings().trash_days
    with call.library(backup=not now) as library:
        report = library.maintenance.gc(grace_seconds=days * SECONDS_PER_DAY)
    where = "removed" if now else f"moved to the trash, which keeps them for {days:g} days"
    swept = f"{len(report.files)} files ({size(report.swept_bytes)}) {where}"
    call.write(report.to_dict(), f"{swept}; {size(report.freed_bytes)} are free again.")


def rescue(call: Call) -> None:
    """Make a lost or damaged catalogue anew, from its last backup and from what is stored.

    Stop all other Cairn processes first. The old catalogue is kept in the trash.
    """
    from app.assembly import rescue_catalogue

    report = rescue_catalogue(call.settings())
    if report is None:
        call.write(None, "The catalogue is sound and knows what is stored. There is nothing to rescue.")
    else:
        _write_rescue(call, report)


def _write_rescue(call: Call, report: RescueReport) -> None:
    if call.as_json:
        write_json(vars(report))
        return
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


def doctor(call: Call) -> None:
    """Say what this machine can do, and what is wrong.

    Exit status 1 if anything is wrong.
    """

    report = examine(call.settings())
    if call.as_json:
        write_json(report)
    else:
        say(facts({name: value for name, value in report.items() if name != "problems"}))
        say("\nNothing is wrong." if not report["problems"] else "")
        for problem in report["problems"]:
            tell(f"problem: {problem}")
    if report["problems"]:
        raise typer.Exit(1)


FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The copy of the catalogue.")]


def backup(call: Call, file: FileArgument) -> None:
    """Copy the catalogue into one file, while it is in use.

    Then copy the home's folders kv and files with any tool: what is in them never changes. Where memory and originals
    lie in a bucket (CAIRN_STORE_URL), they are not copied: the bucket's own replication or versions keep them.
    """
    from app.assembly import backup_catalogue

    settings = call.settings()
    made = backup_catalogue(settings, file)
    size_bytes = made.stat().st_size
    copied = f"The catalogue was copied to {made} ({size(size_bytes)})."
    call.write({"file": str(made), "size_bytes": size_bytes}, f"{copied} {_what_else(settings)}")


def _what_else(settings: Settings) -> str:
    """What a whole backup needs beside the catalogue."""
    store = settings.store_url
    if store is None or store == "file:":
        return f"Now copy {settings.home}/kv and /files."
    return (
        f"Memory and originals stay in {store.partition('?')[0]}: they are kept by that bucket's own replication or "
        "versions, and need no copy to be restored there."
    )


def restore(
    call: Call,
    file: FileArgument,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also in place of a catalogue that belongs to another home folder.")
    ] = False,
) -> None:
    """Put a copy in place of the catalogue, and bring it up to what is stored by now.

    Stop all other Cairn processes first. With CAIRN_DATABASE_URL, a library moves to PostgreSQL or back this way.
    """
    from app.assembly import restore_catalogue

    _write_rescue(call, restore_catalogue(call.settings(), file, anyway=anyway))
