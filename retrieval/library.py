"""Library: everything that the app, the command line and LangChain may ask of a document memory.

- Thin: each method hands over to the module that does the work.
- Safe to use from several threads; questions go before ingestion.
- `as_seen_by` gives the library as one user sees it; what that is, storage/catalogue/permissions.py decides.
- Opening is cheap: model, landmarks and the modules that import the model's libraries (seconds) come when needed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from model.threads import Threads
from retrieval import doctor
from retrieval.accounts import Accounts
from retrieval.bundles.importing import Bundles
from retrieval.engine.workspace import AUTO, SHARD_BYTES, Workspace
from retrieval.errors import AccessChanged, InvalidRequest, PermissionDenied, catalogue_errors
from retrieval.extraction.versions import older_note
from retrieval.folders.followed import Folders
from retrieval.index.exact_text import TextMatch, Wanted, documents_holding, matches
from retrieval.index.snapshot import MemoryIndex, scope_documents
from retrieval.ingest import file_store, maintenance, pages
from retrieval.ingest.estimate import Watch, estimate, unwatched
from retrieval.ingest.file_store import free_bytes
from retrieval.ingest.pages import exhibits_of, figure_picture
from retrieval.query.passage_builder import PassageBuilder
from retrieval.replicas import Replicas
from retrieval.suggestions.describer import Describer
from retrieval.types.answers import (
    DEFAULT_K,
    DEFAULT_MAX_TOKENS,
    DEFAULT_POSITIONS,
    DEFAULT_QUOTE,
    DEFAULT_VOTERS,
    NEEDS_WRITER,
    Answer,
    AnswerHead,
    AnswerToken,
    BlockEffect,
    PageBox,
    Passage,
    PassageEffect,
    Progress,
    longest_answer,
)
from retrieval.types.records import (
    Collection,
    Deleted,
    Description,
    Document,
    DocumentExhibits,
    Estimate,
    Figures,
    GcReport,
    Job,
    PageText,
    RepairReport,
    Scope,
    SetAside,
    Suggestion,
    TextHit,
    VerifyReport,
    Views,
    head_view,
    page_number,
    page_of,
    page_text_view,
)
from retrieval.writers.opening import WriterSlot
from storage.backups import keep_backup_meanwhile
from storage.blobs.s3 import CACHE_BYTES, open_blobs
from storage.catalogue import LEASE_SECONDS, Catalogue
from storage.errors import NotFound as NoRow
from storage.kv.format import KVLayout
from storage.names import encodable
from storage.privacy import make_private
from storage.properties import condition
from storage.records import DeletedDocuments, DocumentSort, FolderFile, Principal
from storage.records import Document as DocumentRow
from storage.records import Job as JobRow
from storage.recovery import write_sidecar
from storage.trash import GRACE_SECONDS

if TYPE_CHECKING:
    from model.checkpoint.landmark_model import LandmarkModel
    from retrieval.types.writer import Turn, Writer

__all__ = ["Library", "Scope"]

_Item: TypeAlias = Progress | AnswerToken | Answer
ACCESS_SECONDS = 1.0
"""Between one look at what the asker may read and the next, while an answer is given."""
_LOOKED_AT = 24
"""Documents among which suggested questions are looked for."""


class Library:
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
        from model.inference.constrained_decoding import word_starts
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
            holding = documents_holding(self._catalogue, search) - {row.id for row in rows}
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

    # Questions and answers

    @property
    def writer(self) -> Writer | None:
        """Who words answers, opened at the first need; None: the model that searches. Raises WriterError."""
        return self._writers.writer

    @property
    def writes_own_words(self) -> bool:
        """Whether answers can be worded: by a writer, or by the model that searches once it is loaded and trained for
        it."""
        model = self._workspace.model_if_loaded
        return self._writers.filled or (model is not None and not model.config.quotes)

    @property
    def can_write(self) -> bool:
        """Whether answers can be worded; loads the model that searches, where there is no writer."""
        return self._writers.filled or not self._workspace.loaded().model.config.quotes

    @catalogue_errors()
    def search(self, query: str, k: int = DEFAULT_K, *, within: Scope | None = None) -> list[Passage]:
        """Passages by the attention that the query gives them, best first; exactly k unless the scope holds fewer
        blocks."""
        from retrieval.query.search import search

        return search(self._workspace, self._index, self._passages, encodable(query), k, within)

    @catalogue_errors()
    def exhibits(self, document_id: str) -> DocumentExhibits:
        """Figures and tables of a document, with their captions and cells. Raises NotFound, ExtractError."""
        document = self._catalogue.document(document_id)
        return exhibits_of(self._workspace, document.id, document.kind, self._passages.text(document_id))

    @catalogue_errors()
    def picture(self, document_id: str, name: str) -> bytes:
        """The picture of a figure, as `exhibits` names it. Raises NotFound, ExtractError."""
        return figure_picture(self._workspace, self._catalogue.document(document_id).id, name)

    def ask(
        self,
        question: str,
        *,
        k: int = DEFAULT_K,
        within: Scope | None = None,
        quote: bool | None = DEFAULT_QUOTE,
        max_tokens: int | None = DEFAULT_MAX_TOKENS,
        voters: str = DEFAULT_VOTERS,
        positions: str = DEFAULT_POSITIONS,
        conversation_id: str | None = None,
        anyway: bool = False,
        earlier: Sequence[Turn] = (),
        whole: bool | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Progress | AnswerToken | Answer]:
        """Tokens as they come, then the stored Answer. `conversation_id`: any id of the caller's; follow-ups share it,
        or bring along what was said before (`earlier`, oldest first).

        `quote`: word for word from the documents; None: by the writer if there is one, else as suits the model.
        `whole`: the writer reads all of the documents `within`, giving Progress first; None: where a question like
        "summarise" names documents. `max_tokens` None: as suits who writes. `anyway`: quote from the nearest passages
        even where the documents do not seem to say.
        """
        from retrieval.query.question import Question
        from retrieval.writers.written import answerer

        writer = None if quote or anyway else self.writer
        if whole and writer is None:
            raise InvalidRequest(NEEDS_WRITER)
        asked = Question(
            text=encodable(question),
            k=k,
            scope=within,
            quote=quote,
            max_tokens=longest_answer(max_tokens, written=writer is not None),
            voters=voters,
            positions=positions,
            conversation_id=conversation_id,
            anyway=anyway,
            earlier=tuple(earlier),
            whole=whole,
        )
        with catalogue_errors():
            answering = answerer(self._workspace, self._index, self._passages, asked, writer).run(cancelled)
            yield from self._while_allowed(answering)

    def _while_allowed(self, items: Iterator[_Item]) -> Iterator[_Item]:
        """Raises AccessChanged once the account is gone, or a collection that it could read is not shared with it."""
        if self._catalogue.principal.is_administrator:
            yield from items
            return
        could_read, looked = self._catalogue.access(), time.monotonic()
        with closing(cast(Generator[_Item, None, None], items)):  # the model's work ends with it
            for item in items:
                if time.monotonic() - looked >= ACCESS_SECONDS:
                    self._check_access(could_read)
                    looked = time.monotonic()
                yield item

    def _check_access(self, could_read: frozenset[str]) -> None:
        """Raises AccessChanged."""
        try:
            lost = could_read - self._catalogue.access()
        except NoRow as gone:
            raise AccessChanged from gone
        if lost:
            raise AccessChanged

    @catalogue_errors()
    def answers(
        self, *, limit: int = 100, offset: int = 0, search: str = "", conversation_id: str | None = None
    ) -> list[AnswerHead]:
        """Newest first."""
        rows = self._catalogue.answers(limit=limit, offset=offset, search=search, conversation_id=conversation_id)
        return [head_view(row) for row in rows]

    @catalogue_errors()
    def answer(self, answer_id: str) -> Answer:
        """As it was given. Raises NotFound."""
        return Answer.from_dict(json.loads(self._catalogue.answer(answer_id).body))

    @catalogue_errors()
    def delete_answer(self, answer_id: str) -> None:
        self._catalogue.delete_answer(answer_id)

    def effect_of_block(self, answer_id: str, block_id: int) -> BlockEffect:
        """How much less likely the stored answer becomes when this block is left out of what the model may read."""
        from retrieval.query.effect import effect_of_block

        return effect_of_block(self._workspace, self._index, self.answer(answer_id), block_id)

    @catalogue_errors()
    def effect_of_passage(self, answer_id: str, passage: int) -> PassageEffect:
        """What would be quoted if a passage of the stored answer (counted from 0) were not in the library."""
        from retrieval.query.effect import effect_of_passage

        return effect_of_passage(self._workspace, self._index, self._passages, self.answer(answer_id), passage)

    # What documents say

    def check_administrator(self) -> None:
        """Raises PermissionDenied for a user."""
        self._administrator()

    def note_terms(self, go_on: Callable[[], bool] = lambda: True) -> int:
        """Record the words of stored blocks that lack them, as in a library of an older release, for as long as `go_on`
        says so. Returns the number of shards done. Raises PermissionDenied for a user."""
        from retrieval.index.rare_terms import note_terms  # the model's libraries take seconds to import

        self._administrator()
        with catalogue_errors():
            return note_terms(self._workspace, go_on=go_on)

    @property
    def replicas(self) -> Replicas:
        """What the servers of this library share. Raises PermissionDenied for a user."""
        self._administrator()
        return Replicas(self._catalogue, self._workspace.blobs)

    @catalogue_errors()
    def figures(self) -> Figures:
        """What whoever runs this watches; cheap. Raises PermissionDenied for a user."""
        self._administrator()
        totals = self._catalogue.totals()
        return Figures(
            jobs=self._catalogue.num_jobs_by_state(),
            num_documents=totals.num_documents,
            num_tokens=totals.num_tokens,
            stored_bytes=totals.size_bytes,
            resident_bytes=self._index.size_bytes,
            free_bytes=free_bytes(self._workspace),
        )

    @catalogue_errors()
    def description(self, document_id: str) -> Description:
        """What a document is about. Its questions are made later, see `describe_next`. Raises NotFound."""
        document = self._views.document(self._catalogue.document(document_id))
        return self._describer.description(document, lambda: self._passages.text(document_id))

    def descriptions(self, documents: Sequence[Document]) -> dict[str, Description]:
        """By document id, of those that have been described."""
        found = {one.id: self._describer.kept(one.id) for one in documents}
        return {document_id: one for document_id, one in found.items() if one is not None}

    @catalogue_errors()
    def suggestions(self, count: int = 3, *, within: Scope | None = None) -> list[Suggestion]:
        """Questions that the newest documents in scope can answer, of as many documents as possible. Raises NotFound
        and InvalidRequest for a scope that a question could not have either."""
        wanted = scope_documents(self._catalogue, within) if within not in (None, Scope()) else None
        newest = [
            one
            for one in self._views.documents(self._catalogue.documents(sort="added"))
            if one.state == "ready" and (wanted is None or one.id in wanted)
        ][:_LOOKED_AT]
        described = self.descriptions(newest)
        each = [
            [Suggestion(question, one.id, one.title or one.source) for question in described[one.id].questions]
            for one in newest
            if one.id in described
        ]
        rounds = (one for row in zip_longest(*each) for one in row if one is not None)
        return list(islice(rounds, count))

    @catalogue_errors()
    def describe_next(self) -> bool:
        """Describe one document that has no description yet, when there is nothing else to do. False if all have one.

        The questions of a description are tried at the model, behind everybody's own. Raises PermissionDenied for a
        user.
        """
        self._administrator()
        return self._describer.next(self._views.documents(self._catalogue.documents(sort="added")))

    @catalogue_errors()
    def page_text(self, document_id: str, page: int) -> PageText:
        """Text of one page (from 1) with its blocks. Raises NotFound."""
        return pages.page_text(self._workspace, *self._opened(document_id), page)

    @catalogue_errors()
    def page_labels(self, document_id: str) -> list[str]:
        """The printed number of each page, or what each part is called. Raises NotFound."""
        self._catalogue.document(document_id)
        return [page.label for page in self._catalogue.pages(document_id)]

    @catalogue_errors()
    def set_aside(self, document_id: str) -> list[SetAside]:
        """What was set aside when the document was read. Raises NotFound."""
        kept = self._catalogue.extras(document_id).get("asides", ())
        return [SetAside(str(kind), page_of(int(page)), str(text)) for kind, page, text in kept]

    @catalogue_errors()
    def boxes(self, document_id: str, start: int, end: int) -> list[PageBox]:
        """Where these characters of the text stand: a box a line; none without pages. Raises NotFound, ExtractError."""
        return pages.boxes_of(self._workspace, *self._opened(document_id), start, end)

    @catalogue_errors()
    def find(self, document_id: str, words: str) -> list[TextHit]:
        """Where these words stand in a document, in any case. Raises NotFound."""
        return pages.find(self._workspace, *self._opened(document_id), words)

    def _opened(self, document_id: str) -> tuple[Document, str]:
        """With its text."""
        return self._views.document(self._catalogue.document(document_id)), self._passages.text(document_id)

    @catalogue_errors()
    def grep(
        self, pattern: str, *, expression: bool = False, within: Scope | None = None, limit: int = 100, each: int = 20
    ) -> list[TextMatch]:
        """Where these words stand in the documents in scope, or with `expression` what matches a regular expression:
        at most `limit` places, `each` of one document, newest documents first. Raises NotFound, InvalidRequest."""
        wanted = Wanted.of_expression(pattern) if expression else Wanted.of_words(pattern)
        rows = self._catalogue.documents(sort="added")
        if within not in (None, Scope()):
            ids = scope_documents(self._catalogue, within)
            rows = [row for row in rows if row.id in ids]
        return list(islice(matches(self._catalogue, rows, wanted, each=each), limit))

    @catalogue_errors()
    def read(self, document_id: str, first: int = 1, last: int | None = None) -> list[PageText]:
        """Text of the pages from `first` to `last` (from 1; default: to the end), without their blocks. Raises NotFound
        for a document or a first page that is not there."""
        document, text = self._opened(document_id)
        rows = self._catalogue.pages(document_id)
        number = page_number(first, document, len(rows))
        return [page_text_view(document_id, row, text, {}) for row in rows[number:last]]

    @property
    def num_described(self) -> int:
        """Descriptions made since the library was opened."""
        return self._describer.made

    # Folders and people

    @property
    def bundles(self) -> Bundles:
        """Documents with their memory, exported to a file and imported."""
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
