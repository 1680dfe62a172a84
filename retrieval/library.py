"""Library: everything that the app, the command line and LangChain may ask of a document memory.

- Thin: each method hands over to the module that does the work.
- Safe to use from several threads; questions go before ingestion.
- Opening is cheap: neither the model nor the landmarks are loaded before they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrieval.passages import Answer, AnswerHead, AnswerToken, BlockEffect, Passage
from retrieval.records import (
    Collection,
    Deleted,
    Document,
    Estimate,
    GcReport,
    Job,
    PageText,
    RepairReport,
    Scope,
    VerifyReport,
)

if TYPE_CHECKING:
    from model.backbone import LandmarkModel

__all__ = ["Library", "Scope"]


class Library:
    """A folder of documents whose keys and values were read once by one landmark model."""

    @classmethod
    def open(
        cls,
        home: Path,
        model: LandmarkModel | Callable[[], LandmarkModel],
        *,
        database_url: str | None = None,
        kv_dtype: str = "bf16",
        index: str = "auto",
        hot_bytes: int = 1 << 30,
    ) -> Library:
        """Open or create the library in `home`. `model` may be a function, called at the first need.

        `index`: "exact", "faiss", or "auto" (exact up to a documented size). `hot_bytes` bounds the cache of stored blocks.
        """
        raise NotImplementedError

    # Ingestion

    def estimate(self, path: Path, *, password: str | None = None) -> Estimate:
        """What `submit` of this file would cost. Raises ExtractError."""
        raise NotImplementedError

    def submit(
        self, path: Path, *, collection: str | None = None, source: str | None = None, password: str | None = None
    ) -> Job:
        """Copy the file in and queue it. `collection` is a name, made if new; `source` the name shown (default: the file's).

        A file whose content is already stored by this model gives a job in state "done" with note "already stored".
        """
        raise NotImplementedError

    def run_job(self, job_id: str, *, on_progress: Callable[[Job], None] | None = None) -> Job:
        """Work one job off in this thread; resumes at the last committed shard. Never raises for what the file did."""
        raise NotImplementedError

    def run_next_job(self, *, on_progress: Callable[[Job], None] | None = None) -> Job | None:
        """Work off the oldest waiting job, if there is one."""
        raise NotImplementedError

    def jobs(self, *, active_only: bool = False, limit: int = 200) -> list[Job]:
        """Newest first."""
        raise NotImplementedError

    def job(self, job_id: str) -> Job:
        raise NotImplementedError

    def cancel_job(self, job_id: str) -> Job:
        """Cancel; a running job stops within one window and what it had stored is removed."""
        raise NotImplementedError

    def retry_job(self, job_id: str, *, password: str | None = None) -> Job:
        """Queue a failed or cancelled job again."""
        raise NotImplementedError

    # Documents and collections

    def documents(self, *, search: str = "", collection_id: str | None = None, sort: str = "added") -> list[Document]:
        """`sort`: "added" (newest first), "source", "title", "size", "pages"."""
        raise NotImplementedError

    def document(self, document_id: str) -> Document:
        raise NotImplementedError

    def rename_document(self, document_id: str, title: str) -> Document:
        raise NotImplementedError

    def move_document(self, document_id: str, collection_id: str | None) -> Document:
        raise NotImplementedError

    def delete_documents(self, document_ids: Sequence[str]) -> Deleted:
        """Remove rows, stored memory, originals, page images, and answers that used them."""
        raise NotImplementedError

    def collections(self) -> list[Collection]:
        raise NotImplementedError

    def create_collection(self, name: str) -> Collection:
        raise NotImplementedError

    def rename_collection(self, collection_id: str, name: str) -> Collection:
        raise NotImplementedError

    def delete_collection(self, collection_id: str) -> None:
        """Remove the collection; its documents stay, in no collection."""
        raise NotImplementedError

    def page_image(self, document_id: str, page: int, *, width_px: int = 1200) -> bytes:
        """PNG of one page (0-based)."""
        raise NotImplementedError

    def page_text(self, document_id: str, page: int) -> PageText:
        raise NotImplementedError

    def original(self, document_id: str) -> Path:
        """The stored original file."""
        raise NotImplementedError

    # Questions

    def search(self, query: str, k: int = 8, *, within: Scope | None = None) -> list[Passage]:
        """Passages by the attention that the query gives them, best first; exactly k unless the scope holds fewer blocks."""
        raise NotImplementedError

    def ask(
        self,
        question: str,
        *,
        k: int = 8,
        within: Scope | None = None,
        quote: bool = False,
        max_tokens: int = 128,
        voters: str = "group",
        conversation_id: str | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[AnswerToken | Answer]:
        """Tokens as they come, then the stored Answer. `conversation_id`: any id of the caller's; follow-ups share it."""
        raise NotImplementedError

    def answers(self, *, limit: int = 100, search: str = "", conversation_id: str | None = None) -> list[AnswerHead]:
        """Newest first."""
        raise NotImplementedError

    def answer(self, answer_id: str) -> Answer:
        raise NotImplementedError

    def delete_answer(self, answer_id: str) -> None:
        raise NotImplementedError

    def effect_of_block(self, answer_id: str, block_id: int) -> BlockEffect:
        """How much less likely the stored answer becomes when this block is left out."""
        raise NotImplementedError

    # Upkeep

    def verify(self) -> VerifyReport:
        """Re-derive every checksum; name what is damaged or orphaned."""
        raise NotImplementedError

    def repair(self, *, reingest: bool = False) -> RepairReport:
        """Read damaged documents again from their originals; `reingest`: all documents, for another model."""
        raise NotImplementedError

    def gc(self) -> GcReport:
        """Remove files that no row knows."""
        raise NotImplementedError

    def doctor(self) -> dict[str, Any]:
        """What this machine and this library can do, and what is wrong; JSON-able."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
