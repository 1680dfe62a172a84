"""Library: everything that the app, the command line and LangChain may ask of a document memory.

- `ask` and `search` are methods of the library itself; all others belong to a noun: `library.documents.list()`,
  `library.jobs.run(job_id)`.
- Thread-safe; questions go before ingestion.
- `as_seen_by` gives the view of one user; storage/catalogue/permissions.py decides what is in it.
- Opening is cheap: the model, the landmarks and the modules that import the model's libraries (seconds) are loaded at
  the first need.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from model.threads import Threads
from retrieval.accounts import Accounts
from retrieval.answers import Answers
from retrieval.bundles.importing import Bundles
from retrieval.collections import Collections
from retrieval.documents import Documents
from retrieval.engine.workspace import AUTO, SHARD_BYTES, Workspace
from retrieval.errors import AccessChanged, InvalidRequest, catalogue_errors
from retrieval.folders.followed import Folders
from retrieval.index.snapshot import MemoryIndex
from retrieval.jobs import Jobs
from retrieval.maintenance import Maintenance
from retrieval.query.passage_builder import PassageBuilder
from retrieval.replicas import Replicas
from retrieval.suggestions.descriptions import Descriptions
from retrieval.types.answers import (
    DEFAULT_K,
    DEFAULT_MAX_TOKENS,
    DEFAULT_POSITIONS,
    DEFAULT_QUOTE,
    DEFAULT_VOTERS,
    NEEDS_WRITER,
    Answer,
    AnswerToken,
    Passage,
    Progress,
    longest_answer,
)
from retrieval.types.records import Scope
from retrieval.view import View
from retrieval.writers.opening import CurrentWriter
from storage.blobs.s3 import CACHE_BYTES, open_blobs
from storage.catalogue import LEASE_SECONDS, Catalogue
from storage.errors import NotFound as NoRow
from storage.kv.format import KVLayout
from storage.names import encodable
from storage.privacy import make_private
from storage.records import Principal

if TYPE_CHECKING:
    from model.checkpoint.landmark_model import LandmarkModel
    from retrieval.types.writer import Turn, Writer

__all__ = ["Library", "Scope"]

_Item: TypeAlias = Progress | AnswerToken | Answer
ACCESS_SECONDS = 1.0
"""Between two checks of what the user may read, while an answer is given."""


class Library:
    """A folder of documents whose keys and values were read once by one landmark model. Make one with `open`.

    `documents`, `collections`, `jobs`, `answers`, `descriptions`, `bundles`: what one user may see. `maintenance`,
    `folders`, `accounts`, `replicas`: for the administrator. `view`: what these are made of, for programs that measure
    or test the parts; it may change with any release.
    """

    def __init__(self, view: View, descriptions: Descriptions | None = None):
        self.view = view
        self.principal = view.principal
        self.documents, self.collections = Documents(view), Collections(view)
        self.jobs, self.answers = Jobs(view), Answers(view)
        self.descriptions = Descriptions(view) if descriptions is None else descriptions
        self.bundles, self.maintenance = Bundles(view), Maintenance(view)

    def __deepcopy__(self, memo: dict[int, Any]) -> Library:
        """Copies of what holds a library, such as a retriever, share it."""
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A library holds open files and a model, so it cannot be pickled. Open it again in the other process, or "
            "serve it and use RemoteLandmarkRetriever there."
        )

    def as_seen_by(self, principal: Principal) -> Library:
        """The view of this user: it holds only what is theirs or shared with them. Cheap."""
        view = self.view.as_seen_by(principal)
        return self if view is self.view else Library(view, self.descriptions.as_seen_by(view))

    def check_administrator(self) -> None:
        """Raises PermissionDenied for a user."""
        self.view.check_administrator()

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
        block_cache_bytes: int = 1 << 30,
        shard_bytes: int = SHARD_BYTES,
        threads: Threads = "auto",
        reader: bool = True,
        writer: Callable[[], Writer] | None = None,
    ) -> Library:
        """Open or create the library in `home`. `model` may be a function, called at the first need.

        `kv_dtype`: one of `storage.kv.format.KV_DTYPES`, or "auto" (that of the memory in `home`; in a new home what
        suits the model). `index`: "exact", "mapped", "faiss", or "auto" (by size). `store_url`: where memory and
        originals are, "s3://..." or the home folder; a bucket's cache here takes about `store_cache_bytes`.
        `lease_seconds`: after which a silent worker's document is given to another. `block_cache_bytes` bounds the
        cache of stored blocks. `threads`: to compute with; "auto" follows the load. `reader`: whether the checkpoint's
        reader reads passages before a sentence is quoted. `writer`: see `use_writer`. Raises `InvalidRequest` and, of
        storage, `CatalogueUnavailable`, `StoreUnavailable`, `NotPrivate`.
        """
        home = Path(home).expanduser().resolve()
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_private(home)
        with catalogue_errors():
            KVLayout((0,), 1, 2, 1, "bf16" if kv_dtype == AUTO else kv_dtype)
            blobs = open_blobs(store_url, home, cache_bytes=store_cache_bytes)
            catalogue = Catalogue.open(
                database_url or home / "cairn.sqlite3", home, blobs=blobs, lease_seconds=lease_seconds
            )
        workspace = Workspace(
            home,
            catalogue,
            model,
            kv_dtype=kv_dtype,
            shard_bytes=shard_bytes,
            threads=threads,
            reader=reader,
            blobs=blobs,
        )
        if catalogue.database.path is not None:
            make_private(catalogue.database.path)  # it may lie elsewhere
        passages = PassageBuilder(catalogue, workspace.pages_folder)
        memory = MemoryIndex(workspace, index=index, block_cache_bytes=block_cache_bytes)
        library = cls(View(workspace, workspace, memory, passages, CurrentWriter()))
        library.use_writer(writer)
        catalogue.recover_jobs()
        return library

    def warm_up(self) -> None:
        """Load the model and the landmarks now (from a thread, say) instead of at the first question."""
        # Importing and building these delays the first question by 0.1 s otherwise.
        from model.inference.constrained_decoding import word_starts
        from retrieval.query.answer import Answerer  # noqa: F401

        with self.view.index.open_snapshot(self.view.catalogue):
            (model := self.view.workspace.loaded().model).tokenize("")
            word_starts(model.tokenizer)

    # Questions

    @catalogue_errors()
    def search(self, query: str, k: int = DEFAULT_K, *, within: Scope | None = None) -> list[Passage]:
        """Passages by how well they match the query, best first; exactly k unless the scope holds fewer blocks."""
        from retrieval.query.search import search

        return search(self.view.workspace, self.view.index, self.view.passages, encodable(query), k, within)

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
        """Yields tokens as they come, then the stored Answer. `conversation_id`: any id of the caller's; follow-ups
        share it, or bring the conversation along (`earlier`, oldest first).

        `quote`: word for word from the documents; None: by the writer if there is one, else as suits the model.
        `whole`: the writer reads all of the documents `within`, yielding Progress first; None: where a question like
        "summarise" names documents. `max_tokens` None: as suits the writer or the model. `anyway`: quote from the
        nearest passages even where the documents do not seem to say.
        """
        from retrieval.query.answer import Answerer
        from retrieval.query.question import Question
        from retrieval.writers.written import WrittenAnswerer

        writer = None if quote or anyway else self.writer
        if whole and (quote or anyway):
            raise InvalidRequest("A quotation comes from passages, not from whole documents: ask for one of the two.")
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
        parts = (self.view.workspace, self.view.index, self.view.passages, asked)
        answerer = Answerer(*parts) if writer is None else WrittenAnswerer(*parts, writer)
        with catalogue_errors():
            yield from self._while_allowed(answerer.run(cancelled))

    def _while_allowed(self, items: Iterator[_Item]) -> Iterator[_Item]:
        """Raises AccessChanged once the account is gone, or a collection is no longer shared with it."""
        if self.view.catalogue.principal.is_administrator:
            yield from items
            return
        could_read, looked = self.view.catalogue.access(), time.monotonic()
        with closing(cast(Generator[_Item, None, None], items)):  # the model's work ends with it
            for item in items:
                if time.monotonic() - looked >= ACCESS_SECONDS:
                    self._check_access(could_read)
                    looked = time.monotonic()
                yield item

    def _check_access(self, could_read: frozenset[str]) -> None:
        """Raises AccessChanged."""
        try:
            lost = could_read - self.view.catalogue.access()
        except NoRow as gone:
            raise AccessChanged from gone
        if lost:
            raise AccessChanged

    # Who writes

    def use_writer(self, open_: Callable[[], Writer] | None) -> None:
        """Use this writer for all questions from now on. Raises PermissionDenied for a user."""
        self.check_administrator()
        self.view.writers.set(open_)

    @property
    def writer(self) -> Writer | None:
        """The writer, opened at the first need; None: the model that searches words answers. Raises WriterError."""
        return self.view.writers.writer

    @property
    def writes_own_words(self) -> bool:
        """Whether answers can be worded: by a writer, or by the model that searches once it is loaded and trained for
        it."""
        model = self.view.workspace.model_if_loaded
        return self.view.writers.is_set or (model is not None and not model.config.quotes)

    @property
    def can_write(self) -> bool:
        """Whether answers can be worded; loads the model that searches, where there is no writer."""
        return self.view.writers.is_set or not self.view.workspace.loaded().model.config.quotes

    # For the administrator

    @property
    def folders(self) -> Folders:
        """The followed folders. Raises PermissionDenied for a user."""
        self.check_administrator()
        return Folders(self.view)

    @property
    def accounts(self) -> Accounts:
        """The accounts. Raises PermissionDenied for a user."""
        self.check_administrator()
        return Accounts(self.view.catalogue)

    @property
    def replicas(self) -> Replicas:
        """Values that the servers of this library share. Raises PermissionDenied for a user."""
        self.check_administrator()
        return Replicas(self.view.catalogue, self.view.workspace.blobs)

    def close(self) -> None:
        self.check_administrator()
        self.view.index.close()
        self.view.workspace.close()
        self.maintenance.finish_backup()
        self.view.catalogue.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
