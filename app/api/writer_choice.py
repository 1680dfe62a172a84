"""HTTP: the writer in use, choosing another, and trying one.

Only a user at the machine may choose, and only without accounts: the server calls an address with the key of the
settings, and downloads a name from the hub. Where CAIRN_WRITER names the writer, the page cannot change it. A key is
never given to a browser.
"""

from __future__ import annotations

from functools import cache

from pydantic import Field

from app.api.dependencies import RequestLibrary, ServerSettings, api_routes
from app.api.documents import Plain
from app.api.errors import Body, Refused
from app.auth import for_this_machine_only
from app.settings import Settings
from app.writers import choose, chosen_on_the_page, key_of, opener_of
from retrieval.errors import WriterError
from retrieval.library import Library
from retrieval.writers.opening import try_writer

HOW_TO = "Answers are quoted. To have them written, name a writer in the settings."
HOW_TO_ELSEWHERE = "Answers are quoted. Whoever runs this server can have them written: CAIRN_WRITER names a writer."


class Choice(Body):
    """`name`: a checkpoint's folder or hub name, or a server's address; empty: no writer."""

    name: str = Field("", max_length=500)
    key: str | None = Field(None, max_length=1000, description="Of a server; absent: as before")


routes = api_routes("writer")


@routes.get("/writer")
def current(library: RequestLibrary, settings: ServerSettings) -> Plain:
    """The writer, whether passages leave this machine for it, and whether this person may choose another."""
    return described_writer(settings, library)


@routes.put("/writer")
def change(library: RequestLibrary, settings: ServerSettings, choice: Choice) -> Plain:
    """Choose the writer of all questions from now on; it stays chosen when the server starts again."""
    _check_may_choose(settings, library)
    name = choice.name.strip()
    open_ = cache(opener_of(settings, name, choice.key)) if name else None  # a checkpoint that was tried stays loaded
    if open_ is not None and (trial := try_writer(open_())).problem:
        raise Refused(422, "no_writer", f"Not saved. {trial.problem}")
    choose(settings.home, name, choice.key)
    library.use_writer(open_)
    return described_writer(settings, library)


@routes.post("/writer/test")
def test(library: RequestLibrary, settings: ServerSettings, choice: Choice) -> Plain:
    """One small request to the writer of that name, or to the current one: what it wrote, or why it did not."""
    name = choice.name.strip()
    if name:
        _check_may_choose(settings, library)
    writer = opener_of(settings, name, choice.key)() if name else library.writer
    if writer is None:
        raise Refused(422, "no_writer", "There is no writer to try. Name one first.")
    return try_writer(writer).to_dict()


@routes.post("/writer/models")
def models(library: RequestLibrary, settings: ServerSettings, choice: Choice) -> Plain:
    """The models of the server at an address; none for what is no address."""
    from retrieval.writers.server import model_names  # here: importing openai takes most of a second

    _check_may_choose(settings, library)
    address = choice.name.strip().partition("#")[0]
    if not address.startswith(("http://", "https://")):
        return {"models": []}
    try:
        return {"models": model_names(address, key=key_of(settings, address, choice.key))}
    except ValueError as error:
        raise Refused(422, "no_writer", str(error)) from error


def _check_may_choose(settings: Settings, library: Library) -> None:
    if refusal := _refusal(settings, library):
        raise refusal


def _refusal(settings: Settings, library: Library) -> Refused | None:
    """Why this person may not choose."""
    if settings.writer is not None:
        return Refused(409, "fixed_writer", "The writer is set by CAIRN_WRITER, where the server was started.")
    if not library.principal.is_administrator:
        return Refused(403, "not_yours", "Only the administrator can choose the writer, with CAIRN_WRITER.")
    if not for_this_machine_only(settings):
        return Refused(
            403, "not_here", "The writer is chosen here only on one person's own machine. Elsewhere use CAIRN_WRITER."
        )
    return None


def described_writer(settings: Settings, library: Library) -> Plain:
    may_choose = _refusal(settings, library) is None
    chosen = chosen_on_the_page(settings.home)
    plain: Plain = {
        "name": None,
        "kind": None,
        "leaves_machine": False,
        "problem": "",
        "how_to": HOW_TO if may_choose else HOW_TO_ELSEWHERE,
        "may_choose": may_choose,
        "chosen": chosen.name if may_choose and chosen else "",
        "has_key": bool(may_choose and chosen and chosen.key),
        "own_words": library.writes_own_words,
    }
    try:
        writer = library.writer
    except WriterError as error:
        return {**plain, "problem": str(error)}
    if writer is not None:
        plain |= {"name": writer.name, "kind": writer.kind, "leaves_machine": writer.leaves_machine}
    return plain
