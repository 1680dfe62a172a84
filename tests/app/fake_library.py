"""A library without a model: the methods of `retrieval.library.Library`, all in RAM, rich and repeatable evidence.

`deliver()` works off one page of the oldest waiting job, so that tests decide when ingestion moves.
"""

from __future__ import annotations

import io
import itertools
import math
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from retrieval.errors import ExtractError, InvalidRequest, NotFound
from retrieval.types.passages import (
    Answer,
    AnswerHead,
)
from retrieval.types.records import Collection, Deleted, Document, Estimate, Job, PageText, TextBlock
from retrieval.types.views import page_number
from storage.records import ADMINISTRATOR, Principal, User
from tests.app.fake_answers import FakeAnswers
from tests.app.fake_words import BLOCK_CHARACTERS, BLOCKS_A_PAGE, LINES_A_BLOCK, NOW, get, hash_of, page_words


class NoAccounts:
    any = False

    def named(self, name: str) -> User:
        raise NotFound("user", name)

    def by_id(self, user_id: str) -> User | None:
        return None

    def of_token(self, token_digest: str) -> User | None:
        return None


class FakeLibrary(FakeAnswers):
    def __init__(self, *, token_seconds: float = 0.0):
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self.token_seconds = token_seconds
        self.document_rows: dict[str, Document] = {}
        self.page_texts: dict[str, list[str]] = {}
        self.block_rows: dict[int, tuple[str, int, int, int]] = {}  # block id -> document, page, start, end
        self.job_rows: dict[str, Job] = {}
        self.collection_rows: dict[str, Collection] = {}
        self.answer_rows: dict[str, Answer] = {}
        self.heads: list[AnswerHead] = []
        self.asked: list[dict[str, Any]] = []

    # For tests

    def add(
        self,
        source: str,
        *,
        title: str = "",
        pages: int = 3,
        text: str = "",
        collection_id: str | None = None,
        kind: str = "pdf",
    ) -> Document:
        identity = uuid.UUID(int=next(self._ids)).hex
        texts = [page_words(hash_of(source) + page, text if page == 0 else "") for page in range(pages)]
        with self._lock:
            self.page_texts[identity] = texts
            self._cut(identity, texts)
            size = pages * 1_350_000
            self.document_rows[identity] = Document(
                identity, source, title or Path(source).stem.title(), collection_id, pages, pages * 540,
                pages * BLOCKS_A_PAGE, size, "ready", NOW, "sha256:" + identity, kind,
            )  # fmt: skip
            return self.document_rows[identity]

    def deliver(self, pages: int = 1, source: str | None = None) -> Job | None:
        """Work off some pages of the oldest job, or of the one of `source`."""
        with self._lock:
            waiting = [job for job in self.job_rows.values() if job.active and source in (None, job.source)]
            if not waiting:
                return None
            job = waiting[0]
            done = min(job.pages, job.pages_done + pages)
            job = replace(
                job, state="running", stage="reading", pages_done=done, tokens_done=done * 540, tokens_per_second=412.0,
                eta_seconds=(job.pages - done) * 540 / 412.0, seconds=done * 1.3,
            )  # fmt: skip
            if done == job.pages:
                job = replace(job, state="done", stage="", eta_seconds=0.0)
                document = self.document_rows[job.document_id]
                self.document_rows[job.document_id] = replace(document, state="ready")
            self.job_rows[job.id] = job
            return job

    def _cut(self, identity: str, texts: Sequence[str]) -> None:
        start = 0
        for page, text in enumerate(texts):
            for at in range(0, len(text), BLOCK_CHARACTERS):
                end = min(at + BLOCK_CHARACTERS, len(text))
                self.block_rows[next(self._ids)] = (identity, page, start + at, start + end)
            start += len(text)

    def warm_up(self) -> None:
        pass

    # People: there are none, and whoever looks sees everything

    principal = ADMINISTRATOR

    def as_seen_by(self, principal: Principal) -> FakeLibrary:
        return self

    @property
    def accounts(self) -> NoAccounts:
        return NoAccounts()

    def people(self) -> list[str]:
        return []

    def share_collection(self, collection_id: str, *, everyone: bool = False, people: Sequence[str] = ()) -> Collection:
        raise NotFound("user", ", ".join(people))

    # Ingestion

    def estimate(self, path: Path, *, password: str | None = None) -> Estimate:
        content = Path(path).read_bytes()
        if b"HOSTILE" in content:
            raise ExtractError("The file is damaged: its page tree refers to itself.")
        if b"ENCRYPTED" in content and password != "open sesame":
            raise ExtractError("The file is locked: a password is needed.")
        pages = max(1, content.count(b"/Type /Page\n") or 4)
        tokens = pages * 540
        return Estimate(Path(path).name, pages, tokens, pages * 9, pages * 1_350_000, tokens / 412.0, 80_000_000_000)

    def submit(
        self, path: Path, *, collection: str | None = None, source: str | None = None, password: str | None = None
    ) -> Job:
        estimate = self.estimate(path, password=password)
        with self._lock:
            group = self.create_collection(collection).id if collection else None
            document = self.add(source or Path(path).name, pages=estimate.pages, collection_id=group)
            self.document_rows[document.id] = replace(document, state="ingesting")
            job = Job(
                uuid.UUID(int=next(self._ids)).hex, document.id, document.source, group, "queued", "", 0,
                estimate.pages, 0, estimate.tokens, estimate.blocks, estimate.size_bytes, 0.0, None, 0.0, "", "", NOW,
            )  # fmt: skip
            self.job_rows[job.id] = job
            return job

    def jobs(self, *, active_only: bool = False, limit: int = 200) -> list[Job]:
        with self._lock:
            rows = [job for job in reversed(self.job_rows.values()) if job.active or not active_only]
            return rows[:limit]

    def num_active_jobs(self) -> int:
        return len(self.jobs(active_only=True))

    def job(self, job_id: str) -> Job:
        return get(self.job_rows, "job", job_id)

    def cancel_job(self, job_id: str) -> Job:
        job = self.job(job_id)
        with self._lock:
            if job.active:
                self.job_rows[job_id] = replace(job, state="cancelled")
                self.document_rows.pop(job.document_id, None)
            return self.job_rows[job_id]

    def retry_job(self, job_id: str, *, password: str | None = None) -> Job:
        job = self.job(job_id)
        with self._lock:
            self.job_rows[job_id] = replace(job, state="queued", error="", pages_done=0)
            return self.job_rows[job_id]

    # Documents and collections

    def documents(self, *, search: str = "", collection_id: str | None = None, sort: str = "added") -> list[Document]:
        keys: dict[str, Callable[[Document], Any]] = {
            "source": lambda one: one.source.lower(), "title": lambda one: one.title.lower(),
            "size": lambda one: -one.size_bytes, "pages": lambda one: -one.pages,
        }  # fmt: skip
        if sort not in {"added", *keys}:
            raise InvalidRequest(f"Unknown sort order {sort!r}.")
        with self._lock:
            rows = list(reversed(self.document_rows.values()))
        words = search.lower()
        rows = [
            one
            for one in rows
            if words in f"{one.source} {one.title}".lower() and collection_id in (None, one.collection_id)
        ]
        return sorted(rows, key=keys[sort]) if sort in keys else rows

    def document(self, document_id: str) -> Document:
        return get(self.document_rows, "document", document_id)

    def rename_document(self, document_id: str, title: str) -> Document:
        self.document_rows[document_id] = replace(self.document(document_id), title=title)
        return self.document_rows[document_id]

    def move_document(self, document_id: str, collection_id: str | None) -> Document:
        if collection_id is not None:
            get(self.collection_rows, "collection", collection_id)
        self.document_rows[document_id] = replace(self.document(document_id), collection_id=collection_id)
        return self.document_rows[document_id]

    def delete_documents(self, document_ids: Sequence[str]) -> Deleted:
        gone = [self.document(identity) for identity in document_ids]
        with self._lock:
            for document in gone:
                del self.document_rows[document.id]
            used = [
                one.id
                for one in self.answer_rows.values()
                if {p.document_id for p in one.passages} & {d.id for d in gone}
            ]
            for identity in used:
                self.delete_answer(identity)
        return Deleted(len(gone), sum(d.blocks for d in gone), len(used), sum(d.size_bytes for d in gone))

    def collections(self) -> list[Collection]:
        with self._lock:
            counts = [document.collection_id for document in self.document_rows.values()]
            return [replace(one, documents=counts.count(one.id)) for one in self.collection_rows.values()]

    def create_collection(self, name: str) -> Collection:
        with self._lock:
            for one in self.collection_rows.values():
                if one.name == name:
                    return one
            made = Collection(uuid.UUID(int=next(self._ids)).hex, name, 0, NOW)
            self.collection_rows[made.id] = made
            return made

    def rename_collection(self, collection_id: str, name: str) -> Collection:
        renamed = replace(get(self.collection_rows, "collection", collection_id), name=name)
        self.collection_rows[collection_id] = renamed
        return renamed

    def delete_collection(self, collection_id: str, *, with_documents: bool = False) -> Deleted:
        get(self.collection_rows, "collection", collection_id)
        for document in list(self.document_rows.values()):
            if document.collection_id == collection_id:
                self.document_rows[document.id] = replace(document, collection_id=None)
        del self.collection_rows[collection_id]
        return Deleted(0, 0, 0, 0)

    def page_image(self, document_id: str, page: int, *, width_px: int = 1200) -> bytes:
        text = self._page(document_id, page)
        image = Image.new("RGB", (width_px, round(width_px * 1.414)), "white")
        draw = ImageDraw.Draw(image)
        for ordinal in range(math.ceil(len(text) / BLOCK_CHARACTERS)):
            piece = text[ordinal * BLOCK_CHARACTERS :][:BLOCK_CHARACTERS]
            for line in range(LINES_A_BLOCK):
                words = piece[line * 58 : (line + 1) * 58].replace("\n", " ").encode("ascii", "replace").decode()
                top = (0.08 + ordinal * 0.094 + line * 0.0225) * image.height
                draw.text((0.11 * width_px, top), words, fill="#222", font_size=width_px * 0.0245)
        out = io.BytesIO()
        image.save(out, "PNG")
        return out.getvalue()

    def page_text(self, document_id: str, page: int) -> PageText:
        text = self._page(document_id, page)
        start = sum(len(one) for one in self.page_texts[document_id][: page - 1])
        blocks = tuple(
            TextBlock(block, first, last, self._boxes(block))
            for block, (identity, on, first, last) in self.block_rows.items()
            if identity == document_id and on == page - 1
        )
        return PageText(document_id, page, str(page), text, start, blocks)

    def _page(self, document_id: str, page: int) -> str:
        document, texts = self.document(document_id), self.page_texts[document_id]
        return texts[page_number(page, document, len(texts))]

    # Upkeep

    def doctor(self) -> dict[str, Any]:
        documents = self.documents()
        return {
            "device": "cpu", "dtype": "float32", "cores": 2, "free_disk_bytes": 80_000_000_000, "home": "/data/cairn",
            "model": {"name": "cairn-small", "layers": 12, "heads": 9, "block_size": 64},
            "memory": {"documents": len(documents), "blocks": sum(one.blocks for one in documents),
                       "size_bytes": sum(one.size_bytes for one in documents)},
            "versions": {"python": "3.11", "torch": "2.13.0"},
            "problems": [],
        }  # fmt: skip

    def close(self) -> None:
        pass
