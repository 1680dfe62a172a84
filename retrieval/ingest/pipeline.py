"""Ingestion jobs: a kept file -> text -> tokens -> blocks -> shards, each committed before the next is begun.

- Durable: all state is in the catalogue. A job resumes at its last committed shard and makes the same blocks as an
  undisturbed run, because every shard starts from blocks read back from the store.
- Leased: whatever is written for a job is refused once another worker has it, and then this one goes on without it.
- Yielding: a question waits for one layer of a window at most, and while one is open no other work is done either (it
  would compete for processors and Python's lock). Between windows the job checks whether it was cancelled.
- Bounded: text, token ids and one shard are in RAM, never a document's keys and values.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model.attention.memory import KVBlock
from model.checkpoint.landmark_model import TokenizedText
from model.errors import ModelError
from retrieval.engine.workspace import LoadedModel, Workspace
from retrieval.errors import CairnError, Cancelled, ExtractError, ran_out_of_memory
from retrieval.extraction import character_places
from retrieval.extraction.document import aside_notes
from retrieval.extraction.extract import EXTRACTING, ExtractedDocument, ExtractProgress, extract
from retrieval.extraction.formats import VERSION
from retrieval.index.inverted_index import index_terms
from retrieval.index.title_keys import keep_title
from retrieval.index.vectors import ShardVectors, index_vectors
from retrieval.ingest.estimate import Forecast, num_blocks, stored_bytes
from retrieval.ingest.file_store import check_store_space, original_of
from retrieval.ingest.shard_writer import make_blocks, store_shard
from storage.catalogue import Catalogue
from storage.errors import CatalogueUnavailable, LeaseLost, StorageError
from storage.errors import NotFound as NoRow
from storage.properties import stated_properties
from storage.records import Job, JobProgress, NewBlock, Page, Shard, ShardFile
from storage.recovery import write_sidecar
from storage.workers import this_worker

RENEWALS = 3  # in the seconds of a lease: two of them may fail


@contextlib.contextmanager
def kept_lease(catalogue: Catalogue, job: Job) -> Iterator[None]:
    """Renew the job's lease from a thread until the end of the block, or until it is lost.

    A renewal that fails is tried again: whether the job is still ours is asked once more when something is committed.
    """
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(catalogue.database.lease_seconds / RENEWALS):
            try:
                if not catalogue.renew_lease(job):
                    return
            except NoRow:
                return
            except StorageError as error:
                logger.warning("The lease of job %s could not be renewed: %s", job.id, error)

    thread = threading.Thread(target=renew, name="cairn-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.5  # a report is a durable write
TURN_SECONDS = 20.0  # of one person's document while others wait; the file's text is extracted anew for the next turn


class _GaveWay(Exception):
    """The job's time slice is over."""


@dataclass(frozen=True, eq=False)
class _Text:
    """A document ready to be read by the model."""

    extracted: ExtractedDocument
    tokens: TokenizedText

    def new_block(self, first: int, last: int) -> NewBlock:
        """The block of tokens first..last-1."""
        tokens = self.tokens
        start, end = int(tokens.starts[first]), int(tokens.ends[last - 1])
        return NewBlock(start, end, tuple(tokens.ids[first:last]), tuple(self.extracted.boxes(start, end)))

    def pages_before(self, token: int) -> int:
        """Pages whose text lies before a token."""
        if token >= len(self.tokens.ids):
            return len(self.extracted.pages)
        start = int(self.tokens.starts[token])
        return sum(page.end <= start for page in self.extracted.pages)


class Ingestion:
    """Runs one claimed job. `notify(job)` is called after every report.

    `gives_way`: after a turn, at the end of a shard, the job goes back into the queue if somebody else's waits there.
    """

    def __init__(
        self,
        workspace: Workspace,
        job: Job,
        notify: Callable[[Job], None] = lambda job: None,
        *,
        gives_way: bool = False,
    ):
        self._workspace, self._catalogue, self._job, self._notify = workspace, workspace.catalogue, job, notify
        self._gives_way = gives_way
        self._began = time.monotonic()
        self._reported = 0.0
        self._begun_tokens = 0

    def run(self) -> Job:
        """To its end: done, failed (with its reason), cancelled or queued again. What is stored stays for a retry.

        If the job was lost to another worker, it is returned as that worker has it.
        """
        try:
            try:
                return self._run()
            except LeaseLost as error:
                logger.warning("%s", error)
                return self._catalogue.job(self._job.id)
        except NoRow:  # the document was deleted during the job: its rows are gone, and files written since must go too
            store = self._workspace.store
            store.delete(sorted(store.files(self._job.document_id)))
            return replace(self._job, state="cancelled", note="the document was deleted")
        except CatalogueUnavailable:
            # Nothing can be recorded now: whoever claims a job next puts this one back into the queue first.
            self._workspace.stranded_jobs.add(self._job)
            raise

    def _run(self) -> Job:
        job = self._job
        try:
            with kept_lease(self._catalogue, job):
                self._work()
        except Cancelled:
            return self._catalogue.end_job(job, "cancelled", note="cancelled")
        except _GaveWay:
            self._catalogue.release_job(job)
        except (NoRow, LeaseLost, CatalogueUnavailable):
            raise
        except (CairnError, StorageError, ModelError, ValueError) as error:
            logger.info("job %s failed: %s", job.id, error)
            return self._catalogue.end_job(job, "failed", error=str(error))
        except (OSError, MemoryError, RuntimeError, SystemError) as error:
            logger.exception("job %s failed", job.id)
            return self._catalogue.end_job(job, "failed", error=_sentence(error))
        except BaseException:  # the process is told to stop: another one, or the next start, resumes the job
            self._catalogue.release_job(job)
            raise
        return self._catalogue.job(job.id)

    def _work(self) -> None:
        loaded = self._workspace.loaded()
        self._report(JobProgress(EXTRACTING), force=True)
        text = self._read_file(loaded)
        total = len(text.tokens.ids)
        shards = self._catalogue.shards(self._job.document_id)
        stored_blocks = sum(shard.num_blocks for shard in shards)
        document = self._catalogue.document(self._job.document_id)
        all_blocks = num_blocks(loaded, total)
        check_store_space(self._workspace, document.source, stored_bytes(loaded, total) - document.size_bytes)
        self._began, self._begun_tokens = time.monotonic(), stored_blocks * loaded.model.config.tokens_per_block
        per_shard = loaded.blocks_per_shard(self._workspace.shard_bytes)
        for first in range(stored_blocks, all_blocks, per_shard):
            self._shard(loaded, text, first, min(first + per_shard, all_blocks))
            if first + per_shard < all_blocks and self._turn_is_over():
                raise _GaveWay
        workspace = self._workspace
        index_terms(workspace, self._job.document_id)
        index_vectors(workspace, self._job.document_id)  # of a shard that was stored when it was interrupted
        write_sidecar(workspace.database, workspace.blobs, self._job.document_id, is_read=True)
        self._catalogue.finish_document(self._job.document_id, job=self._job, num_tokens=total)
        self._notify(self._catalogue.job(self._job.id))

    def _turn_is_over(self) -> bool:
        turn = time.monotonic() - self._began >= TURN_SECONDS
        return self._gives_way and turn and self._catalogue.others_wait(self._job.id)

    def _read_file(self, loaded: LoadedModel) -> _Text:
        """Text and tokens. If a newer extractor gives another text than is stored, the memory starts anew."""
        document_id = self._job.document_id
        path = original_of(self._workspace, document_id)
        owner = self._catalogue.document(document_id).owner_id or ""
        kept = self._workspace.pages_folder / document_id
        forecast = Forecast(self._workspace, loaded)

        def watch(told: ExtractProgress) -> None:
            left = forecast.seconds_left(told)
            self._report(JobProgress(told.stage, pages_done=told.done, pages_total=told.total, eta_seconds=left))

        extracted = extract(path, person=owner, kept=kept, watch=watch, check=self._go_on)
        tokens = loaded.model.tokenize(extracted.text)
        if not tokens.ids:
            raise ExtractError("The file holds no text.")
        if self._catalogue.shards(document_id) and self._catalogue.extracted_text(document_id).text != extracted.text:
            self._workspace.store.delete(self._catalogue.drop_shards(document_id, job=self._job))
        first_time = self._catalogue.document(document_id).num_characters == 0  # later the title may be the user's own
        pages = [Page(p.number, p.label, p.width, p.height, p.start, p.end, p.note) for p in extracted.pages]
        document = self._catalogue.save_extracted(
            document_id,
            text=extracted.text,
            pages_read=pages,
            title=_stated_title(extracted, path) if first_time else None,
            num_tokens=len(tokens.ids),
            notes=(*extracted.notes, *aside_notes(extracted.asides), *_page_notes(pages)),
            extras={
                "version": VERSION,
                "metadata": extracted.metadata,
                "outline": [[o.title, o.level, o.page, o.start] for o in extracted.outline],
                "asides": [[one.kind, one.page, one.text] for one in extracted.asides],
            },
            job=self._job,
        )
        self._catalogue.put_stated_properties(document_id, stated_properties(extracted.metadata))
        keep_title(self._workspace, document)
        character_places.keep(self._workspace.pages_folder / document_id, extracted)
        return _Text(extracted, tokens)

    def _shard(self, loaded: LoadedModel, text: _Text, first: int, last: int) -> None:
        """Blocks first..last-1: read, write, commit."""
        document_id, scheduler = self._job.document_id, self._workspace.scheduler
        per_block, total = loaded.model.config.tokens_per_block, len(text.tokens.ids)
        ids = text.tokens.ids[first * per_block : last * per_block]
        news = []
        for n in range(first, last):
            scheduler.wait_for_queries()
            news.append(text.new_block(n * per_block, min(total, (n + 1) * per_block)))
        vectors = ShardVectors(self._workspace, self._catalogue.document(document_id).title)
        blocks: list[KVBlock] = []
        for block, new in zip(make_blocks(self._workspace, loaded, document_id, first, ids), news, strict=True):
            blocks.append(block)
            vectors.add(text.extracted.text[new.start : new.end])
            if len(blocks) % loaded.model.config.window_blocks == 0:
                self._report(self._progress(text, min(total, (first + len(blocks)) * per_block)))
        progress = self._progress(text, min(total, last * per_block))

        def commit(file: ShardFile) -> Shard:
            return self._catalogue.commit_shard(document_id, file, news, job=self._job, progress=progress)

        scheduler.wait_for_queries()
        vectors.store(store_shard(loaded, blocks, document_id, commit).id)
        self._report(progress)

    def _progress(self, text: _Text, tokens_done: int) -> JobProgress:
        total = len(text.tokens.ids)
        seconds = time.monotonic() - self._began
        speed = (tokens_done - self._begun_tokens) / seconds if seconds > 0 else 0.0
        return JobProgress(
            stage="reading",
            pages_done=text.pages_before(tokens_done),
            pages_total=len(text.extracted.pages),
            tokens_done=tokens_done,
            tokens_total=total,
            tokens_per_second=speed,
            eta_seconds=(total - tokens_done) / speed if speed > 0 else None,
        )

    def _report(self, progress: JobProgress, *, force: bool = False) -> None:
        """Store progress now and then; check at every call whether to stop. Raises `Cancelled`, `LeaseLost`,
        `NoRow`."""
        if force or time.monotonic() - self._reported >= REPORT_SECONDS:
            self._reported = time.monotonic()
            self._catalogue.report_progress(self._job, progress)
        self._notify(self._go_on())

    def _go_on(self) -> Job:
        """The job as it stands, unless it is to stop. Raises `Cancelled`, `LeaseLost`, `NoRow`."""
        job = self._catalogue.job(self._job.id)
        if not job.is_same_claim(self._job):
            raise LeaseLost(job.id, job.worker)
        if job.cancel_requested:
            raise Cancelled("The job was cancelled.")
        return job


def _sentence(error: OSError | MemoryError | RuntimeError | SystemError) -> str:
    """What a person can do about an error of the machine."""
    if ran_out_of_memory(error):
        return "There was not enough memory to read it. Close other programs, or free the GPU, then retry."
    if isinstance(error, OSError) and error.strerror:
        where = f" on {error.filename}" if error.filename else ""
        return (
            f"The disk reported an error{where}: {error.strerror}. What was read so far is kept: retry once it works."
        )
    return f"Something unexpected went wrong ({type(error).__name__}: {error}). Retry; the log has the details."


def claim(workspace: Workspace, job_id: str) -> Job | None:
    """Take a job; None if another worker has it or it has ended. Jobs of workers that died or fell silent are taken
    over."""
    _recover(workspace)
    return workspace.catalogue.claim_job(job_id, this_worker())


def claim_next(workspace: Workspace, *, idle_owners_only: bool = False) -> Job | None:
    _recover(workspace)
    return workspace.catalogue.claim_next_job(this_worker(), idle_owners_only=idle_owners_only)


def _recover(workspace: Workspace) -> None:
    """Back into the queue: jobs whose worker died or fell silent, and those of this process whose end could not be
    recorded."""
    for job in list(workspace.stranded_jobs):
        try:
            workspace.stranded_jobs.remove(job)
        except KeyError:  # another thread has just released it, and may run it already
            continue
        try:
            workspace.catalogue.release_job(job)
        except BaseException:
            workspace.stranded_jobs.add(job)
            raise
    workspace.catalogue.recover_jobs()


def _stated_title(extracted: ExtractedDocument, path: Path) -> str | None:
    """None where extraction could only offer the file's name: ours is a number, the user's is in the catalogue."""
    return None if extracted.title == path.stem else extracted.title


def _page_notes(pages: Sequence[Page]) -> list[str]:
    """One note that lists the pages without text."""
    silent = [page.label or str(page.number + 1) for page in pages if page.note]
    if not silent:
        return []
    shown = ", ".join(silent[:20]) + (f" and {len(silent) - 20} more" if len(silent) > 20 else "")
    return [
        f"No text on {'page' if len(silent) == 1 else 'pages'} {shown}: perhaps pictures in which none was recognised."
    ]
