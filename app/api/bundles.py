"""HTTP: libraries that travel in a file, out and in. What one person may see goes out; what comes in is theirs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Form, UploadFile
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from app.api.dependencies import RequestLibrary
from app.api.documents import Plain
from app.api.errors import Refused
from app.api.uploads import Uploads, shown_name
from retrieval.errors import NotFound
from storage.bundle.archive import BadBundle

SUFFIX = ".cairn"


def router(uploads: Uploads) -> APIRouter:
    routes = APIRouter(tags=["bundles"])

    @routes.get("/bundle", response_class=FileResponse)
    def leave(library: RequestLibrary, collection_id: str = "") -> FileResponse:
        """All ready documents that may be read, or those of a collection, with their memory, in one file."""
        name = _named(library, collection_id) if collection_id else "library"
        path = uploads.new_path()
        try:
            library.bundles.export_to(path, collection_id=collection_id or None)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        remove = BackgroundTask(path.unlink, missing_ok=True)
        return FileResponse(path, filename=f"{name}{SUFFIX}", media_type="application/zip", background=remove)

    @routes.post("/bundle")
    def arrive(
        library: RequestLibrary,
        file: Annotated[UploadFile, File()],
        collection: Annotated[str | None, Form(max_length=200)] = None,
    ) -> Plain:
        """Take in the documents of such a file without reading them again; the whole file is checked first.
        `collection`: a name, made if new; by itself each goes into the one that it was in."""
        name = shown_name(file.filename or "")
        path = uploads.take(file.file, name)
        try:
            arrived = [one.to_dict() for one in library.bundles.import_from(path, collection=collection or None)]
        except BadBundle as error:
            raise Refused(422, "bad_bundle", str(error).replace(path.name, name)) from error
        finally:
            path.unlink(missing_ok=True)
        return {"documents": arrived}

    return routes


def _named(library: RequestLibrary, collection_id: str) -> str:
    """The name of a collection as that of a file. Raises NotFound."""
    for collection in library.collections():
        if collection.id == collection_id:
            return shown_name(collection.name)
    raise NotFound("collection", collection_id)
