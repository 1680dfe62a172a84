"""HTTP: libraries exported to a file, and imported. An export holds what the user may see; imported documents are
theirs.

Both take long, and much disk and memory: one at a time for each user, few at a time in all, in turn. A user's next
export starts after the last one was sent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import File, Form, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from app.api.dependencies import Person, RequestLibrary, api_routes, shared
from app.api.documents import Plain
from app.api.errors import Refused
from app.api.uploads import ServerUploads, Uploads, shown_name
from app.limits.fair_queue import FairQueue, QueueFull
from retrieval.errors import NotFound
from retrieval.library import Library
from storage.bundle import BadBundle

SUFFIX = ".cairn"
AT_ONCE, EACH_WAITING = 2, 2
T = TypeVar("T")


class Bundles:
    """Takes turns. Of each user one export is written or sent at a time: slow clients would fill the disk with them."""

    def __init__(self) -> None:
        self._queue = FairQueue("cairn-bundle", at_once=AT_ONCE, each_waiting=EACH_WAITING)
        self._lock, self._people = threading.Lock(), set[str]()

    async def in_turn(self, person: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.wrap_future(self._queue.submit(person, work))
        except QueueFull:
            message = "Too many libraries are on their way in or out. Try again shortly."
            raise Refused(429, "too_many_bundles", message, 30) from None

    def close(self) -> None:
        self._queue.close()

    def begin(self, person: str) -> None:
        """Raises Refused for a second one."""
        with self._lock:
            if person in self._people:
                raise Refused(429, "too_many_bundles", "Another library of yours is still being sent. Wait for it.", 30)
            self._people.add(person)

    def end(self, person: str, path: Path | None = None) -> None:
        if path is not None:
            path.unlink(missing_ok=True)
        with self._lock:
            self._people.discard(person)


class _Export(FileResponse):
    """Ends the export however the sending ends. A background task would not run after a refused range or a broken
    connection."""

    def __init__(self, bundles: Bundles, person: str, path: Path, name: str):
        super().__init__(path, filename=f"{name}{SUFFIX}", media_type="application/zip")
        self._bundles, self._person, self._file = bundles, person, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await run_in_threadpool(self._bundles.end, self._person, self._file)


ServerBundles = Annotated[Bundles, shared("bundles")]
routes = api_routes("bundles")


@routes.get("/bundle", response_class=FileResponse)
async def export(
    library: RequestLibrary, person: Person, bundles: ServerBundles, uploads: ServerUploads, collection_id: str = ""
) -> FileResponse:
    """All ready documents that may be read, or those of a collection, with their memory, in one file."""
    bundles.begin(person)
    try:
        name, path = await bundles.in_turn(person, lambda: _written(library, uploads, collection_id))
    except BaseException:
        bundles.end(person)
        raise
    return _Export(bundles, person, path, name)


@routes.post("/bundle")
async def import_(
    library: RequestLibrary,
    person: Person,
    bundles: ServerBundles,
    uploads: ServerUploads,
    file: Annotated[UploadFile, File()],
    collection: Annotated[str | None, Form(max_length=200)] = None,
) -> Plain:
    """Take in the documents of such a file without reading them again; the whole file is checked first.
    `collection`: a name, made if new; by itself each goes into the one that it was in."""
    return {"documents": await bundles.in_turn(person, lambda: _taken_in(library, uploads, file, collection))}


def _written(library: Library, uploads: Uploads, collection_id: str) -> tuple[str, Path]:
    """The name and path of a new bundle."""
    name = _named(library, collection_id) if collection_id else "library"
    chosen = library.documents.list(collection_id=collection_id or None)
    uploads.check_room(name, sum(document.size_bytes for document in chosen))
    path = uploads.new_path()
    try:
        library.bundles.export_to(path, collection_id=collection_id or None)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return name, path


def _taken_in(library: Library, uploads: Uploads, file: UploadFile, collection: str | None) -> list[dict[str, Any]]:
    name = shown_name(file.filename or "")
    path = uploads.take(file.file, name)
    try:
        return [one.to_dict() for one in library.bundles.import_from(path, collection=collection or None)]
    except BadBundle as error:
        raise Refused(422, "bad_bundle", str(error).replace(path.name, name)) from error
    finally:
        path.unlink(missing_ok=True)


def _named(library: Library, collection_id: str) -> str:
    """The name of a collection as a file name. Raises NotFound."""
    for collection in library.collections.list():
        if collection.id == collection_id:
            return shown_name(collection.name)
    raise NotFound("collection", collection_id)
