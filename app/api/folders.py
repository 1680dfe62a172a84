"""HTTP: followed folders. For the administrator only: they are paths of the server's machine. Whoever can name a folder
can read what is in it, so that is left to those who sit at the machine and to its command line."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from app.api.dependencies import RequestLibrary, ServerSettings, api_routes
from app.api.documents import Plain
from app.api.errors import Body, Refused
from app.auth import for_this_machine_only
from app.work import WATCH_SECONDS
from retrieval.errors import NotFound
from retrieval.folders.followed import Folders
from retrieval.library import Library
from retrieval.types.records import FolderReport


class NewFolder(Body):
    path: str = Field(min_length=1, max_length=4000, description="Of the machine that serves")
    collection: str | None = Field(None, max_length=200, description="Name; made if new")
    removed: Literal["keep", "trash", "delete"] = Field(
        "keep", description="What happens to documents of files that are gone"
    )


routes = api_routes()


@routes.get("/folders", tags=["folders"])
def folders(library: RequestLibrary, settings: ServerSettings) -> Plain:
    """Followed folders with the report of their last run; `may_add`: whether a folder can be named here."""
    if not library.principal.is_administrator:
        return {"folders": [], "may_add": False, "interval_seconds": WATCH_SECONDS}
    followed = [folder.to_dict() for folder in library.folders.list()]
    return {"folders": followed, "may_add": for_this_machine_only(settings), "interval_seconds": WATCH_SECONDS}


@routes.post("/folders", status_code=201, tags=["folders"])
def follow(library: RequestLibrary, settings: ServerSettings, new: NewFolder) -> Plain:
    """Watch a folder: it is looked at again and again while the server runs."""
    if not for_this_machine_only(settings) or not library.principal.is_administrator:
        raise Refused(
            403,
            "not_here",
            "Folders are named here only on one person's own machine. Elsewhere use `cairn serve --watch DIR`.",
        )
    folder = library.folders.follow(
        Path(new.path), collection=new.collection or None, removed=new.removed, watched=True
    )
    return folder.to_dict()


@routes.post("/folders/{folder_id}/run", tags=["folders"])
def run(library: RequestLibrary, folder_id: str) -> Plain:
    """Look at the folder now. Files to be read go to the queue."""
    report = next(one for one in _folders(library, folder_id).run(folder_id) if isinstance(one, FolderReport))
    return report.to_dict()


@routes.delete("/folders/{folder_id}", status_code=204, tags=["folders"])
def forget(library: RequestLibrary, folder_id: str) -> None:
    """Follow it no longer. Its documents stay."""
    _folders(library, folder_id).forget(folder_id)


def _folders(library: Library, folder_id: str) -> Folders:
    """Users have none. Raises NotFound."""
    if not library.principal.is_administrator:
        raise NotFound("folder", folder_id)
    return library.folders
