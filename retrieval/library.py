"""Library: everything that the app, the command line and LangChain may ask of a document memory.

- Thin: each method hands over to the module that does the work.
- Safe to use from several threads; questions go before ingestion.
- `as_seen_by` gives the library as one user sees it; what that is, storage/catalogue/permissions.py decides.
- Opening is cheap: model, landmarks and the modules that import the model's libraries (seconds) come when needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from model.threads import Threads
from retrieval import doctor
from retrieval.about import About
from retrieval.accounts import Accounts
from retrieval.asking import Asking
from retrieval.bundles.importing import Bundles
from retrieval.engine.workspace import AUTO, SHARD_BYTES, Workspace
from retrieval.errors import PermissionDenied, catalogue_errors
from retrieval.extraction.versions import older_note
from retrieval.folders.followed import Folders
from retrieval.index import exact_text
from retrieval.index.snapshot import MemoryIndex
from retrieval.ingest import file_store, maintenance, pages
from retrieval.ingest.estimate import Watch, estimate, unwatched
from retrieval.query.passage_builder import PassageBuilder
from retrieval.suggestions.describer import Describer
from retrieval.types.records import (
    Collection,
    Deleted,
    Document,
    Estimate,
    GcReport,
    Job,
    RepairReport,
    Scope,
    VerifyReport,
    Views,
)
from retrieval.writers.opening import WriterSlot
from storage.backups import keep_backup_meanwhile
from storage.blobs.s3 import CACHE_BYTES, open_blobs
from storage.catalogue import LEASE_SECONDS, Catalogue
from storage.kv.format import KVLayout
from storage.privacy import make_private
from storage.properties import condition
from storage.records import DeletedDocuments, DocumentSort, FolderFile, Principal
from storage.records import Document as DocumentRow
from storage.records import Job as JobRow
from storage.recovery import write_sidecar
from storage.trash import GRACE_SECONDS

if TYPE_CHECKING:
    from model.checkpoint.landmark_model import LandmarkModel
    from retrieval.types.writer import Writer

__all__ = ["Library", "Scope"]


class Library(Asking, About):
    """A folder of documents whose keys and values were read once by one landmark model. Make one with `open`."""

    def __init__(self, workspace: Workspace, index: MemoryIndex):
        self._workspace, self._index, self._catalogue = workspace, index, workspace.catalogue
        self._passages = PassageBuilder(workspace.catalogue, workspace.pages_folder)
        self._views = Views(workspace.catalogue)
        self.principal, self._whole = workspace.catalogue.principal, self
        self._writers, self._describer = WriterSlot(), Describer(workspace, index, self._passages)
        self._backup: threading.Thread | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Library:
        """Copies of what holds a library, such as a retriever, share it."""
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A library holds open files and a model, so it cannot be pickled. Open it again in the other process, or "
            "serve it and use RemoteLandmarkRetriever there."
        )

    def as_seen_by(self, principal: Principal) -> Library:
        """The library as this user sees it: nothing that is not theirs or shared with them exists in it. Cheap."""
        whole = self._whole
        if principal.user_id is None:
            return whole
        catalogue = whole._catalogue.acting_for(principal)
        library = Library(whole._workspace.with_catalogue(catalogue), whole._index)
        library._passages, library._whole = whole._passages.with_catalogue(catalogue), whole
        library._writers, library._describer = whole._writers, whole._describer
        return library

    def use_writer(self, open_: Callable[[], Writer] | None) -> None:
        """The writer of all questions from now on. Raises PermissionDenied for a user."""
        self._administrator()._writers.fill(open_)

    def _administrator(self) -> Library:
        """Raises PermissionDenied."""
        if not self.principal.is_administrator:
            raise PermissionDenied("library")
        return self

    @classmethod
    def open(
        cls,
        home: Path,
        model: LandmarkModel | Callable[[], LandmarkModel],
        *,
        database_url: str | None = None,
        store_url: str | None = None,
        store_cache_bytes: int = CACHE_BYTES,
        lease_seconds: float = LEASE_SECONDS,
        kv_dtype: str = AUTO,
        index: str = "auto",
        hot_bytes: int = 1 << 30,
        shard_bytes: int = SHARD_BYTES,
        threads: Threads = "auto",
        second_look: bool = True,
        writer: Callable[[], Writer] | None = None,
    ) -> Library:
        """Open or create the library in `home`. `model` may be a function, called at the first need.

        `kv_dtype`: one of `storage.kv.format.KV_DTYPES`, or "auto" (that of the memory in `home`; in a new home what
        suits the model). `index`: "exact", "mapped", "faiss", or "auto" (by size). `store_url`: where memory and
        originals lie, "s3://..." or the home folder; a bucket's cache here takes about `store_cache_bytes`.
        `lease_seconds`: after which a silent worker's document is given to another. `hot_bytes` bounds the cache of
        stored blocks. `threads`: to compute with; "auto" follows the load. `second_look`: let a reader read passages
        again. `writer`: see `use_writer`. Raises `InvalidRequest` and, of storage, `CatalogueUnavailable`,
        `StoreUnavailable`, `NotPrivate`.
        """
        home = Path(home).expanduser().resolve()
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_private([home])
        with catalogue_errors():
            KVLayout((0,), 1, 2, 1, "bf16" if kv_dtype == AUTO else kv_dtype)
            blobs = open_blobs(store_url, home, cache_bytes=store_cache_bytes)
            url = database_url or f"sqlite:///{home / 'cairn.sqlite3'}"
            catalogue = Catalogue.open(url, home, blobs=blobs, lease_seconds=lease_seconds)
        workspace = Workspace(
            home,
            catalogue,
            model,
            kv_dtype=kv_dtype,
            shard_bytes=shard_bytes,
            threads=threads,
            second_look=second_look,
            blobs=blobs,
        )
        if catalogue.database.path is not None:
            make_private([catalogue.database.path])  # it may lie elsewhere
        library = cls(workspace, MemoryIndex(workspace, index=index, hot_bytes=hot_bytes))
        library.use_writer(writer)
        catalogue.recover_jobs()
        return library

    def warm_up(self) -> None:
        """Load the model and the landmarks now (from a thread, say) instead of at the first question."""
        # Importing and building these delays the first question by 0.1 s otherwise.
        from model.inference.generate import word_starts
        from retrieval.query.answer import Answerer  # noqa: F401

        with self._index.open_snapshot(self._catalogue):
            (model := self._workspace.loaded().model).tokenize("")
            word_starts(model.tokenizer)

    # Ingestion

    def estimate(self, path: Path, *, password: str | None = None, watch: Watch = unwatched) -> Estimate:
        """What `submit` of this file would cost; `watch` as in `retrieval.ingest.estimate`. Raises ExtractError."""
        return estimate(self._workspace, Path(path), password, watch)

    def submit(
        self,
        path: Path,
        *,
        collection: str | None = None,
        source: str | None = None,
        password: str | None = None,
        content_sha256: str | None = None,
        of_folder: tuple[str, FolderFile] | None = None,
    ) -> Job:
        """Copy the file in and queue it. `collection` is a name, made if new; `source` the name shown (default: the
        file's).

        A file whose content is already stored by this model gives a job in state "done" with note "already stored"; one
        that is just being stored gives the job at work. Either is put into `collection` if it was in none; of one that
        stays in another the note says so. `content_sha256`: what the file is known to hold. `of_folder`: the followed
        folder in which it lies, and what is known of it there. Raises ExtractError, NotEnoughSpace, MemoryMismatch,
        FileChanged.
        """
        submitted = file_store.submit(
            self._workspace,
            Path(path),
            collection=collection,
            source=source,
            password=password,
            content_sha256=content_sha256,
            of_folder=of_folder,
        )
        if not submitted.already_stored and of_folder is None:
            self._forget_failed(submitted.document)
        return self._views.submitted(submitted, collection)

    def _forget_failed(self, new: DocumentRow) -> None:
        """Of failed attempts with a file of the same name nothing was stored: they give way to the new one."""
        rows = [row for row in self._catalogue.documents(search=new.source) if row.owner_id == new.owner_id]
        failed = [row.id for row in rows if row.source == new.source and row.state == "failed"]
        if failed:
            self.delete_documents(failed)

    def run_job(self, job_id: str, *, on_progress: Callable[[Job], None] = lambda job: None) -> Job:
        """Work one job off in this thread; resumes at the last committed shard. Never raises for what the file did."""
        from retrieval.ingest.pipeline import claim

        self.job(job_id)  # not found for whom it does not concern
        with catalogue_errors():
            claimed = claim(self._whole._workspace, job_id)
        return self.job(job_id) if claimed is None else self._whole._run(claimed, on_progress)

    def run_next_job(
        self, *, on_progress: Callable[[Job], None] = lambda job: None, idle_owners_only: bool = False
    ) -> Job | None:
        """Work off the oldest waiting job of the owner whose turn it is, if there is one.

        A long one is queued again after its turn if others wait. `idle_owners_only`: of an owner with no running job.
        """
        from retrieval.ingest.pipeline import claim_next

        claimed = claim_next(self._administrator()._workspace, idle_owners_only=idle_owners_only)
        return None if claimed is None else self._run(claimed, on_progress, gives_way=True)

    def _run(self, claimed: JobRow, on_progress: Callable[[Job], None], *, gives_way: bool = False) -> Job:
        from retrieval.ingest.pipeline import Ingestion

        def notify(row: JobRow) -> None:
            on_progress(self._views.job(row))

        ended = Ingestion(self._workspace, claimed, notify, gives_way=gives_way).run()
        self._passages.forget([ended.document_id])
        if ended.state == "done":
            from retrieval.writers.passages import read_ahead

            open_writer = lambda: self.writer  # noqa: E731
            read_ahead(self._workspace, self._passages, open_writer, ended.document_id, lambda: notify(ended))
        return self._views.job(ended)

    def jobs(self, *, active_only: bool = False, limit: int = 200) -> list[Job]:
        """Newest first."""
        return [self._views.job(row) for row in self._catalogue.jobs(active_only=active_only, limit=limit)]

    def num_active_jobs(self) -> int:
        """Queued and running."""
        return self._catalogue.num_active_jobs()

    @catalogue_errors()
    def job(self, job_id: str) -> Job:
        """Raises NotFound."""
        return self._views.job(self._catalogue.job(job_id))

    @catalogue_errors()
    def cancel_job(self, job_id: str) -> Job:
        """A running job stops within one window. What it stored stays, unseen, until it is retried or deleted."""
        return self._views.job(self._catalogue.cancel_job(job_id))

    @catalogue_errors()
    def retry_job(self, job_id: str, *, password: str | None = None) -> Job:
        """Queue a failed or cancelled job again; it goes on where it stopped. `password` unlocks its PDF for good (the
        kept copy needs none any more). Raises NotFound, ExtractError."""
        if password is not None:
            file_store.unlock_original(self._whole._workspace, self._catalogue.job(job_id), password)
        return self._views.job(self._catalogue.retry_job(job_id))

    # Documents and collections

    @catalogue_errors()
    def documents(
        self, *, search: str = "", collection_id: str | None = None, sort: str = "added", where: Sequence[str] = ()
    ) -> list[Document]:
        """`search`: words of the name or title, or else of the text; documents that are named so come first. `sort`:
        "added" (newest first), "source", "title", "size", "pages". `where` as in `Scope`. Raises NotFound,
        InvalidRequest."""
        if collection_id is not None:
            self._catalogue.collection(collection_id)
        order = cast(DocumentSort, sort)
        rows = self._catalogue.documents(search=search, collection_id=collection_id, sort=order)
        if search.strip():
            holding = exact_text.documents_holding(self._catalogue, search) - {row.id for row in rows}
            if holding:
                among = self._catalogue.documents(collection_id=collection_id, sort=order)
                rows += [row for row in among if row.id in holding]
        if where:
            wanted = self._catalogue.documents_where([condition(text) for text in where])
            rows = [row for row in rows if row.id in wanted]
        return self._views.documents(rows)

    @catalogue_errors()
    def document(self, document_id: str) -> Document:
        """Its notes also say what reading it again would add, where an older version read it."""
        found = self._catalogue.document(document_id)
        view = self._views.document(found)
        if found.state != "ready":
            return view
        note = older_note(found.kind, self._catalogue.extras(document_id).get("version", 1))
        return replace(view, notes=(*view.notes, note)) if note else view

    @catalogue_errors()
    def rename_document(self, document_id: str, title: str) -> Document:
        from retrieval.index.title_keys import keep_title

        renamed = self._catalogue.rename_document(document_id, title)
        keep_title(self._workspace, renamed)
        return self._views.document(renamed)

    @catalogue_errors()
    def set_properties(self, document_id: str, properties: Mapping[str, Sequence[str]]) -> Document:
        """Set author, date, language, tag or any other property by hand; one without values is taken away. Raises
        NotFound, PermissionDenied, InvalidRequest."""
        self._catalogue.set_properties(document_id, properties)
        write_sidecar(self._whole._catalogue.database, self._workspace.home, document_id, self._workspace.blobs)
        return self.document(document_id)

    @catalogue_errors()
    def move_document(self, document_id: str, collection_id: str | None) -> Document:
        return self._views.document(self._catalogue.move_document(document_id, collection_id))

    @catalogue_errors()
    def delete_documents(self, document_ids: Sequence[str]) -> Deleted:
        """Remove rows, stored memory, originals, page images, and answers that used them. Unknown ids are ignored."""
        return self._deleted(self._catalogue.delete_documents(document_ids))

    def _deleted(self, rows: DeletedDocuments) -> Deleted:
        self._passages.forget(rows.document_ids)
        return maintenance.delete(self._workspace, self._index, rows)

    def collections(self) -> list[Collection]:
        return self._views.collections(self._catalogue.collections())

    @catalogue_errors()
    def create_collection(self, name: str) -> Collection:
        return self._views.collection(self._catalogue.create_collection(name))

    @catalogue_errors()
    def rename_collection(self, collection_id: str, name: str) -> Collection:
        return self._views.collection(self._catalogue.rename_collection(collection_id, name))

    @catalogue_errors()
    def share_collection(
        self, collection_id: str, *, everyone: bool = False, people: Sequence[str] = (), groups: Sequence[str] = ()
    ) -> Collection:
        """From now on `people` and members of `groups` (names) may read it, or everyone with an account; nobody else.
        Raises NotFound."""
        readers = [self._catalogue.user_named(name).id for name in people]
        row = self._catalogue.share_collection(collection_id, everyone=everyone, readers=readers, groups=groups)
        return self._views.collection(row)

    @catalogue_errors()
    def delete_collection(self, collection_id: str, *, with_documents: bool = False) -> Deleted:
        """Remove the collection; its documents stay, in no collection, unless `with_documents`."""
        return self._deleted(self._catalogue.delete_collection(collection_id, with_documents=with_documents))

    def page_image(self, document_id: str, page: int, *, width_px: int = 1200) -> bytes:
        """PNG of one page (from 1), drawn once. Raises NotFound, ExtractError (not a PDF, password missing)."""
        return pages.page_image(self._workspace, self.document(document_id), page, width_px)

    def original(self, document_id: str) -> Path:
        """The kept copy of the original file. Raises NotFound."""
        return file_store.original_of(self._workspace, document_id)

    # Maintenance

    def verify(self, *, texts: bool = False) -> VerifyReport:
        """Re-derive every checksum; name what is damaged or orphaned. `texts`: also read every original anew, and
        compare its text with the stored one."""
        return maintenance.verify(self._administrator()._workspace, texts=texts)

    def repair(self, *, reingest: bool = False) -> RepairReport:
        """Make damaged parts of the memory again; `reingest`: read all documents again that another model has read, or
        an older version that left out what is read now."""
        self._administrator()
        if not reingest:
            return maintenance.repair(self._workspace, self._index)
        return maintenance.reingest(self._workspace, self._index, self._passages.forget, self.run_job)

    def gc(self, *, grace_seconds: float = GRACE_SECONDS) -> GcReport:
        """Sweep files that no row knows into the trash, and empty it of what was swept so long ago; 0: of everything,
        and of all backups that hold what was deleted. Raises `storage.errors.CatalogueUnavailable`."""
        return maintenance.gc(self._administrator()._workspace, self._index, grace_seconds)

    def keep_backup(self) -> threading.Thread:
        """Copy the catalogue in the background if it changed since its last copy; `close` waits for it."""
        self._backup = keep_backup_meanwhile(self._catalogue.database)
        return self._backup

    def doctor(self) -> dict[str, Any]:
        """What this machine and this library can do, and what is wrong; JSON-able. A user's speaks of what they see.

        A checkpoint as writer is tried once (see `writer_report`), which takes about a minute.
        """
        return doctor.examine(self._workspace, self._index, self.writer)

    # Folders and people

    @property
    def bundles(self) -> Bundles:
        """Files in which documents travel with their memory."""
        return Bundles(self, self._workspace, self._whole._catalogue)

    @property
    def folders(self) -> Folders:
        """Folders whose files are followed. Raises PermissionDenied for a user."""
        return Folders(self._administrator(), self._workspace)

    @property
    def accounts(self) -> Accounts:
        """Who may sign in. Raises PermissionDenied for a user."""
        return Accounts(self._administrator()._catalogue)

    def people(self) -> list[str]:
        """Names of all who have an account."""
        return [user.name for user in self._catalogue.users()]

    def groups(self) -> list[str]:
        """Names of the groups that one is in, as single sign-on said; all of them for the administrator."""
        return self._catalogue.own_groups()

    def close(self) -> None:
        self._administrator()._index.close()
        self._workspace.close()
        if self._backup is not None:
            self._backup.join()
        self._catalogue.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
