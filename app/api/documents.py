"""HTTP: uploads, jobs, documents, collections, pages."""

from __future__ import annotations

import contextlib
import time
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal

from fastapi import BackgroundTasks, Depends, File, Form, Path, Query, Response, UploadFile
from fastapi.responses import FileResponse
from pydantic import Field, StringConstraints, field_validator

from app.api.dependencies import Person, RequestLibrary, api_routes
from app.api.errors import Body, Refused, describe
from app.api.uploads import ServerUploads, shown_name
from app.api.web_page import fetch_page
from app.exports import citations
from retrieval.errors import CairnError, NotFound
from retrieval.index.exact_text import LONGEST_PATTERN
from retrieval.library import Library
from retrieval.types.records import Job, Scope
from storage.names import clean_name
from storage.properties import checked_property, checked_values

PAGE_SIZES = Query(ge=1, le=500)
PICTURE_WIDTHS_PX = (300, 600, 900, 1200, 1800, 2400)  # a few only, since each is kept on disk
PAGES_READ = 10
STOPPED_SECONDS = 120.0  # a cancelled job stops within one pass, however large the model
Plain = dict[str, Any]
CitationFormat = Literal["text", "bibtex", "csl-json"]
CITATION_TYPES = {
    "text": "text/plain; charset=utf-8",
    "bibtex": "application/x-bibtex; charset=utf-8",
    "csl-json": "application/vnd.citationstyles.csl+json",
}
Conditions = Annotated[
    list[Annotated[str, StringConstraints(max_length=600)]],
    Field(max_length=20, description="Each a name, an operator (= != ~ > >= < <=) and a value"),
]


class WebAddress(Body):
    url: str = Field(min_length=1, max_length=2000, description="Of a public page, with http:// or https://")
    sent_as: str = Field("", max_length=100, description="Told back with the waiting file")


class Start(Body):
    collection: str | None = Field(None, max_length=200, description="Name; made if new")
    password: str | None = Field(None, max_length=1000, description="For an encrypted PDF")


class Retry(Body):
    password: str | None = Field(None, max_length=1000)


class Name(Body):
    name: str = Field(min_length=1, max_length=200)


class Sharing(Body):
    """Who may read a collection beside its owner; replaces what was set before."""

    everyone: bool = Field(False, description="Everybody with an account")
    people: list[str] = Field(default_factory=list, max_length=1000, description="Names of users")
    groups: list[str] = Field(default_factory=list, max_length=1000, description="Groups of single sign-on")


class DocumentChange(Body):
    """Only the fields that are present change; `collection_id` null takes the document out of its collection, and a
    property without values goes."""

    title: str | None = Field(None, min_length=1, max_length=500)
    collection_id: str | None = None
    properties: dict[str, list[str]] | None = Field(
        None, max_length=100, description="author, date, language, tag, or names of your own, each with its values"
    )

    @field_validator("title")
    @classmethod
    def _is_a_title(cls, title: str | None) -> str | None:
        if title is not None and not clean_name(title):
            raise ValueError("A document needs a title")
        return title

    @field_validator("properties")
    @classmethod
    def _can_be_set(cls, properties: dict[str, list[str]] | None) -> dict[str, list[str]] | None:
        for name, values in (properties or {}).items():
            checked_values(checked_property(name), values)
        return properties


class Identities(Body):
    document_ids: list[str] = Field(min_length=1, max_length=5000)


routes = api_routes()


@routes.post("/estimate", tags=["files"])
async def estimate(
    library: RequestLibrary,
    person: Person,
    uploads: ServerUploads,
    file: Annotated[UploadFile, File()],
    password: Annotated[str | None, Form(max_length=1000)] = None,
) -> Plain:
    """What storing a file would cost: pages, tokens, bytes on disk, seconds. The file is not kept."""
    found = await uploads.estimate_now(library, person, file.file, file.filename or "", password)
    return {**found.to_dict(), "fits": found.fits}


@routes.post("/documents", status_code=202, tags=["files"])
def upload(
    library: RequestLibrary,
    uploads: ServerUploads,
    file: Annotated[list[UploadFile], File()],
    collection: Annotated[str | None, Form(max_length=200)] = None,
    password: Annotated[str | None, Form(max_length=1000)] = None,
) -> Plain:
    """Store files: one durable job each. Answers at once; the work goes on by itself."""
    if len(file) > uploads.settings.max_uploads:
        raise Refused(429, "too_many_files", f"At most {uploads.settings.max_uploads} files at a time.")
    jobs, refused = [], []
    for one in file:
        try:
            job = uploads.submit(library, one.file, one.filename or "", collection=collection, password=password)
            jobs.append(job.to_dict())
        except CairnError as error:
            if len(file) == 1:
                raise
            _, code, message = describe(error)
            refused.append({"source": shown_name(one.filename or ""), "code": code, "message": message})
    return {"jobs": jobs, "refused": refused}


@routes.post("/uploads", status_code=201, tags=["files"])
def stage(
    library: RequestLibrary,
    person: Person,
    uploads: ServerUploads,
    file: Annotated[UploadFile, File()],
    sent_as: Annotated[str, Form(max_length=100)] = "",
) -> Plain:
    """Send a file without starting: it waits, is estimated, and is stored on `start`. `sent_as` is told back."""
    return uploads.stage(library, person, file.file, file.filename or "", sent_as=sent_as).shown()


@routes.post("/uploads/page", status_code=201, tags=["files"])
def stage_page(library: RequestLibrary, person: Person, uploads: ServerUploads, page: WebAddress) -> Plain:
    """Fetch a public web page, once; from then on it is like a file that was sent."""
    with TemporaryFile() as file:
        name = fetch_page(page.url, uploads.settings.max_upload_bytes, file)
        file.seek(0)
        return uploads.stage(library, person, file, name, sent_as=page.sent_as).shown()


@routes.get("/uploads", tags=["files"])
def staged(library: RequestLibrary, uploads: ServerUploads) -> Plain:
    """Files that wait, with their estimates."""
    return {"uploads": [file.shown() for file in uploads.files(library)]}


@routes.post("/uploads/{upload_id}/start", status_code=202, tags=["files"])
def start(library: RequestLibrary, uploads: ServerUploads, upload_id: str, start: Start) -> Plain:
    """Store a waiting file."""
    job = uploads.start(library, upload_id, collection=start.collection or None, password=start.password)
    return job.to_dict()


@routes.delete("/uploads/{upload_id}", status_code=204, tags=["files"])
def discard(library: RequestLibrary, uploads: ServerUploads, upload_id: str) -> None:
    """Forget a waiting file."""
    uploads.discard(library, upload_id)


@routes.get("/jobs", tags=["jobs"])
def jobs(library: RequestLibrary, active_only: bool = False, limit: Annotated[int, PAGE_SIZES] = 200) -> Plain:
    """Newest first."""
    return {"jobs": [job.to_dict() for job in library.jobs.list(active_only=active_only, limit=limit)]}


@routes.get("/jobs/{job_id}", tags=["jobs"])
def job(library: RequestLibrary, job_id: str) -> Plain:
    return library.jobs.get(job_id).to_dict()


@routes.post("/jobs/{job_id}/cancel", tags=["jobs"])
def cancel(library: RequestLibrary, job_id: str, background: BackgroundTasks, discard: bool = False) -> Plain:
    """Stops within one pass; `discard`: and then the document goes, with what was stored of it."""
    job = library.jobs.cancel(job_id)
    if discard:
        background.add_task(_discard, library, job)
    return job.to_dict()


@routes.post("/jobs/{job_id}/retry", tags=["jobs"])
def retry(library: RequestLibrary, job_id: str, retry: Retry | None = None) -> Plain:
    """Queue a failed or cancelled job again."""
    return library.jobs.retry(job_id, password=retry.password if retry else None).to_dict()


def _discard(library: Library, job: Job) -> None:
    """Waits until a job stops and deletes its document, unless it was stored completely nevertheless."""
    ends = time.monotonic() + STOPPED_SECONDS
    with contextlib.suppress(NotFound):  # somebody else deleted it
        while job.active and time.monotonic() < ends:
            time.sleep(0.1)
            job = library.jobs.get(job.id)
        if job.state == "cancelled":
            library.documents.delete([job.document_id])


async def chosen(
    document_id: Annotated[list[str] | None, Query(max_length=500)] = None,
    collection_id: Annotated[list[str] | None, Query(max_length=500)] = None,
    where: Annotated[list[str], Query(max_length=20)] = [],  # noqa: B006 - FastAPI copies it
) -> Scope:
    return Scope(tuple(document_id or ()), tuple(collection_id or ()), tuple(where))


Chosen = Annotated[Scope, Depends(chosen)]
"""These documents, and those of these collections, that meet all conditions."""


@routes.get("/suggestions", tags=["documents"])
def suggestions(library: RequestLibrary, scope: Chosen, count: Annotated[int, Query(ge=1, le=20)] = 3) -> Plain:
    """Questions that the newest documents (of these, or of these collections, that meet all conditions in `where`)
    can really answer."""
    return {"suggestions": [one.to_dict() for one in library.descriptions.suggestions(count, within=scope)]}


@routes.get("/documents", tags=["documents"])
def documents(
    library: RequestLibrary,
    search: Annotated[str, Query(max_length=500)] = "",
    collection_id: str | None = None,
    sort: str = "added",
    where: Annotated[list[str], Query(max_length=20)] = [],  # noqa: B006 - FastAPI copies it
    limit: Annotated[int, PAGE_SIZES] = 50,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Plain:
    """Documents by words of name, title or text, with their descriptions; `sort`: added, source, title, size,
    pages; `where`: conditions such as `date>=2024`, all of which they meet. `nearest`: words that were looked for
    in place of misspelt ones, or ""."""
    found, nearest = library.documents.listed(search, collection_id=collection_id, sort=sort, where=where)
    about = library.descriptions.made_for(shown := found[offset : offset + limit])
    page = [{**one.to_dict(), "description": about[one.id].to_dict() if one.id in about else None} for one in shown]
    size = sum(one.size_bytes for one in found)
    return {"documents": page, "total": len(found), "size_bytes": size, "nearest": nearest}


@routes.post("/documents/delete", tags=["documents"])
def delete_many(library: RequestLibrary, which: Identities) -> Plain:
    """Delete documents with everything that came from them, answers included."""
    return library.documents.delete(which.document_ids).to_dict()


@routes.get("/documents/{document_id}", tags=["documents"])
def document(library: RequestLibrary, document_id: str) -> Plain:
    found = library.documents.get(document_id)
    about = library.descriptions.get(document_id).to_dict() if found.state == "ready" else None
    asides = [one.to_dict() for one in library.documents.set_aside(document_id)] if found.state == "ready" else []
    more = {"description": about, "set_aside": asides, "page_labels": library.documents.page_labels(document_id)}
    return {**found.to_dict(), **more}


@routes.get("/documents/{document_id}/citation", tags=["documents"], response_class=Response)
def citation(
    library: RequestLibrary,
    document_id: str,
    format: CitationFormat = "text",
    page: Annotated[str, Query(max_length=50)] = "",
) -> Response:
    """A citation to take away, with the page if one is named."""
    text = citations.FORMATS[format]([(library.documents.get(document_id), page)])
    return Response(text, media_type=CITATION_TYPES[format])


@routes.patch("/documents/{document_id}", tags=["documents"])
def change(library: RequestLibrary, document_id: str, change: DocumentChange) -> Plain:
    """Rename, move to a collection, or set properties; if one of these is refused, nothing changes."""
    if "collection_id" in change.model_fields_set:  # first: only a move can still be refused by itself
        library.documents.move(document_id, change.collection_id)
    if change.title is not None:
        library.documents.rename(document_id, change.title.strip())
    if change.properties:
        library.documents.set_properties(document_id, change.properties)
    return library.documents.get(document_id).to_dict()


@routes.delete("/documents/{document_id}", tags=["documents"])
def delete_document(library: RequestLibrary, document_id: str) -> Plain:
    """Delete one document with everything that came from it, answers included."""
    library.documents.get(document_id)  # raises NotFound if there is none
    return library.documents.delete([document_id]).to_dict()


@routes.get("/collections", tags=["collections"])
def collections(library: RequestLibrary) -> Plain:
    return {"collections": [collection.to_dict() for collection in library.collections.list()]}


@routes.post("/collections", status_code=201, tags=["collections"])
def create(library: RequestLibrary, name: Name) -> Plain:
    return library.collections.create(name.name.strip()).to_dict()


@routes.patch("/collections/{collection_id}", tags=["collections"])
def rename(library: RequestLibrary, collection_id: str, name: Name) -> Plain:
    return library.collections.rename(collection_id, name.name.strip()).to_dict()


@routes.put("/collections/{collection_id}/sharing", tags=["collections"])
def share(library: RequestLibrary, collection_id: str, sharing: Sharing) -> Plain:
    """Say who may read your collection: everyone with an account, some people and groups, or nobody."""
    shared = library.collections.share(collection_id, **sharing.model_dump())
    return shared.to_dict()


@routes.delete("/collections/{collection_id}", status_code=204, tags=["collections"])
def delete_collection(library: RequestLibrary, collection_id: str) -> None:
    """The collection goes, its documents stay."""
    library.collections.delete(collection_id)


def _gives(*media_types: str) -> dict[str, Any]:
    """What is said of a route that answers with a file of one of these types."""
    return {"response_class": Response, "responses": {200: {"content": {kind: {} for kind in media_types}}}}


@routes.get("/documents/{document_id}/pages/{page}.png", tags=["pages"], **_gives("image/png"))
def image(
    library: RequestLibrary,
    document_id: str,
    page: int,
    width_px: Annotated[int, Query(ge=1, le=PICTURE_WIDTHS_PX[-1])] = 1200,
) -> Response:
    """Picture of a page (from 1), at least `width_px` wide: 300, 600, 900, 1200, 1800 or 2400."""
    width_px = next(width for width in PICTURE_WIDTHS_PX if width >= width_px)
    png = library.documents.page_image(document_id, page, width_px=width_px)
    return Response(png, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})


@routes.get("/documents/{document_id}/pages/{page}", tags=["pages"])
def text(library: RequestLibrary, document_id: str, page: int) -> Plain:
    """Text of a page (from 1) with its blocks: character spans and boxes."""
    return library.documents.page_text(document_id, page).to_dict()


@routes.get("/documents/{document_id}/boxes", tags=["pages"])
def boxes(
    library: RequestLibrary,
    document_id: str,
    start: Annotated[int, Query(ge=0)] = 0,
    end: Annotated[int, Query(ge=0)] = 0,
) -> Plain:
    """Where the characters from `start` to `end` of the document's text stand: a box for each line."""
    return {"boxes": [box.to_dict() for box in library.documents.boxes(document_id, start, end)]}


@routes.get("/documents/{document_id}/original", tags=["pages"], response_class=FileResponse)
def original(library: RequestLibrary, document_id: str) -> FileResponse:
    """The file as it was added, for download."""
    document = library.documents.get(document_id)
    return FileResponse(
        library.documents.original(document_id),
        filename=shown_name(document.source),
        media_type="application/octet-stream",
        headers={"Cache-Control": "no-store"},
    )


@routes.get("/documents/{document_id}/find", tags=["pages"])
def find(library: RequestLibrary, document_id: str, text: Annotated[str, Query(max_length=200)] = "") -> Plain:
    """Where these words stand in the document, in any case: page (from 1), and characters of its text."""
    return {"hits": [hit.to_dict() for hit in library.documents.find(document_id, text)]}


@routes.get("/documents/{document_id}/text", tags=["pages"])
def read(
    library: RequestLibrary,
    document_id: str,
    first: Annotated[int, Query(ge=1)] = 1,
    last: Annotated[int | None, Query(ge=1)] = None,
) -> Plain:
    """Text of the pages from `first` to `last` (from 1; default: ten pages). `next`: the page to go on from, or
    null."""
    read = library.documents.read(document_id, first, min(last or first + PAGES_READ - 1, first + PAGES_READ - 1))
    pages = [page.to_dict("document_id", "page", "label", "text", "start", "note") for page in read]
    more = library.documents.get(document_id).pages > first + len(read) - 1
    return {"pages": pages, "next": first + len(read) if more else None}


@routes.get("/grep", tags=["pages"])
def grep(
    library: RequestLibrary,
    scope: Chosen,
    pattern: Annotated[str, Query(min_length=1, max_length=LONGEST_PATTERN)],
    expression: bool = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Plain:
    """Where these words stand, in any case, with or without accents; with `expression`, where a regular expression
    matches. Newest documents first. `nearest`: if they stand nowhere, the nearest words of the library, or ""."""
    found = library.documents.grep(pattern, expression=expression, within=scope, limit=limit + 1)
    nearest = "" if found or expression else library.documents.nearest(pattern)
    return {"matches": [one.to_dict() for one in found[:limit]], "more": len(found) > limit, "nearest": nearest}


@routes.get("/documents/{document_id}/exhibits", tags=["pages"])
def exhibits(library: RequestLibrary, document_id: str) -> Plain:
    """Figures and tables: page (from 1), place, caption, box or picture, and the cells of tables."""
    return library.documents.exhibits(document_id).to_dict()


@routes.get("/documents/{document_id}/pictures/{name}", tags=["pages"], **_gives("image/png", "image/jpeg"))
def picture(library: RequestLibrary, document_id: str, name: str) -> Response:
    """The picture of a figure in a document whose pages cannot be drawn, by the name that its exhibits give."""
    data = library.documents.picture(document_id, name)
    media_type = "image/png" if name.endswith(".png") else "image/jpeg"
    return Response(data, media_type=media_type, headers={"Cache-Control": "private, max-age=3600"})


@routes.get("/documents/{document_id}/tables/{number}.csv", tags=["pages"], **_gives("text/csv"))
def table(library: RequestLibrary, document_id: str, number: Annotated[int, Path(ge=1)]) -> Response:
    """A table as CSV, for spreadsheets; `number` counts from 1 in the order of the document's exhibits."""
    tables = library.documents.exhibits(document_id).tables
    if number > len(tables):
        raise NotFound("table", number, hint=f"The document has {len(tables)}.")
    return Response(tables[number - 1].csv, media_type="text/csv", headers={"Cache-Control": "no-store"})
