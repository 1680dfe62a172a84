"""The job engine: a kept file -> text -> tokens -> blocks -> shards, each committed before the next is begun.

- Durable: everything needed to go on is in the catalogue; a job resumes at its last committed shard with the very
  blocks that an undisturbed run would have made, because every shard starts from blocks read back from the store.
- Polite: a layer of a window is the longest that a question waits, and while one is open no other work is done either
  (it would take processors and Python's lock from it); between windows the job looks whether it was cancelled.
- Bounded: text, token ids and one shard are in RAM, never a document's keys and values.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from model.attention.memory import KVBlock
from model.checkpoint.landmark_model import TokenizedText
from model.errors import ModelError
from model.inference.prefill import prefill
from retrieval.engine.workspace import LoadedModel, Workspace
from retrieval.errors import CairnError, Cancelled, ExtractError
from retrieval.extraction.extract import ExtractedDocument, extract
from retrieval.index.title_keys import keep_title
from retrieval.ingest.file_store import check_space, num_blocks, original_of, stored_bytes
from storage.errors import NotFound as NoRow
from storage.errors import StorageError
from storage.kv.lock import writing
from storage.kv.store import ShardFile
from storage.records import Block, Job, JobProgress, NewBlock, Page, Shard
from storage.workers import this_worker

logger = logging.getLogger(__name__)

_REPORT_SECONDS = 0.5  # a report is a durable write; more often would only cost


@dataclass(frozen=True, eq=False)
class _Text:
    """A document ready to be read by the model."""

    extracted: ExtractedDocument
    tokens: TokenizedText

    def new_block(self, first: int, last: int) -> NewBlock:
        """The block of tokens first..last-1."""
        tokens = self.tokens
        start, end = int(tokens.starts[first]), int(tokens.ends[last - 1])
        boxes = tuple((box.page, box.x0, box.y0, box.x1, box.y1) for box in self.extracted.boxes(start, end))
        return NewBlock(start, end, tuple(tokens.ids[first:last]), boxes)

    def pages_before(self, token: int) -> int:
        """Pages whose text lies before a token."""
        if token >= len(self.tokens.ids):
            return len(self.extracted.pages)
        position = int(self.tokens.starts[token])
        return sum(page.end <= position for page in self.extracted.pages)


class Ingestion:
    """Works one job off. `notify(job)` is called after every report."""

    def __init__(self, workspace: Workspace, job: Job, notify: Callable[[Job], None] = lambda job: None):
        self._workspace, self._catalogue, self._job, self._notify = workspace, workspace.catalogue, job, notify
        self._began = time.monotonic()
        self._reported = 0.0
        self._begun_tokens = 0

    def run(self) -> Job:
        """To the end: done, failed (with the reason in words) or cancelled. What is stored so far stays for a retry."""
        job = self._job
        try:
            self._work()
        except Cancelled:
            return self._end("cancelled", note="cancelled")
        except NoRow:
            return self._vanished()
        except (CairnError, StorageError, ModelError, ValueError) as error:
            logger.info("job %s failed: %s", job.id, error)
            return self._end("failed", error=str(error))
        except (OSError, MemoryError, RuntimeError) as error:
            logger.exception("job %s failed", job.id)
            return self._end("failed", error=f"Something unexpected went wrong ({type(error).__name__}: {error}).")
        except BaseException:  # the process is told to stop: somebody else, or the next start, goes on with the job
            self._catalogue.release_job(job.id)
            raise
        return self._catalogue.job(job.id)

    def _end(self, state: str, *, error: str = "", note: str = "") -> Job:
        try:
            return self._catalogue.end_job(
                self._job.id, "failed" if state == "failed" else "cancelled", error=error, note=note
            )
        except NoRow:
            return self._vanished()

    def _vanished(self) -> Job:
        """The document was deleted under the job: its rows are gone, and files written since must not stay."""
        self._workspace.store.delete(
            name for name in self._workspace.store.files() if name.startswith(f"{self._job.document_id}/")
        )
        return _without_row(self._job)

    def _work(self) -> None:
        loaded = self._workspace.loaded()
        self._report(JobProgress("extracting"), force=True)
        text = self._read_file(loaded)
        total = len(text.tokens.ids)
        shards = self._catalogue.shards(self._job.document_id)
        stored_blocks = sum(shard.num_blocks for shard in shards)
        document = self._catalogue.document(self._job.document_id)
        all_blocks = num_blocks(loaded, total)
        check_space(self._workspace, document.source, stored_bytes(loaded, total) - document.size_bytes)
        self._began, self._begun_tokens = time.monotonic(), stored_blocks * loaded.model.config.tokens_per_block
        per_shard = loaded.blocks_per_shard(self._workspace.shard_bytes)
        for first in range(stored_blocks, all_blocks, per_shard):
            self._shard(loaded, text, first, min(first + per_shard, all_blocks))
        self._catalogue.finish_document(self._job.document_id, job_id=self._job.id, num_tokens=total)
        self._notify(self._catalogue.job(self._job.id))

    def _read_file(self, loaded: LoadedModel) -> _Text:
        """Text and tokens. Extracting again gives the same text; if a newer extractor does not, the memory starts
        anew."""
        document_id = self._job.document_id
        path = original_of(self._workspace, document_id)
        extracted = extract(path)
        tokens = loaded.model.tokenize(extracted.text)
        if not tokens.ids:
            raise ExtractError(
                "The file holds no text. If it is a scan, make it searchable first (OCR) and add the result."
            )
        if self._catalogue.shards(document_id) and self._catalogue.extracted_text(document_id).text != extracted.text:
            self._workspace.store.delete(self._catalogue.drop_shards(document_id))
        first_time = self._catalogue.document(document_id).num_characters == 0  # later the title may be the user's own
        pages = [Page(p.number, p.label, p.width, p.height, p.start, p.end, p.note) for p in extracted.pages]
        document = self._catalogue.save_extracted(
            document_id,
            text=extracted.text,
            pages_read=pages,
            title=_stated_title(extracted, path) if first_time else None,
            num_tokens=len(tokens.ids),
            notes=(*extracted.notes, *_page_notes(pages)),
            extras={
                "metadata": extracted.metadata,
                "outline": [[o.title, o.level, o.page, o.start] for o in extracted.outline],
            },
        )
        keep_title(self._workspace, document)
        return _Text(extracted, tokens)

    def _shard(self, loaded: LoadedModel, text: _Text, first: int, last: int) -> None:
        """Blocks first..last-1: read, write, commit."""
        per_block, total = loaded.model.config.tokens_per_block, len(text.tokens.ids)
        ids = text.tokens.ids[first * per_block : last * per_block]
        blocks: list[KVBlock] = []
        for block in shard_blocks(self._workspace, loaded, ids, self._stored_before(loaded, first)):
            blocks.append(block)
            if len(blocks) % loaded.model.config.window_blocks == 0:
                self._report(self._progress(text, min(total, (first + len(blocks)) * per_block)))
        news = []
        for n in range(first, last):
            self._workspace.scheduler.wait_for_queries()
            news.append(text.new_block(n * per_block, min(total, (n + 1) * per_block)))
        progress = self._progress(text, min(total, last * per_block))
        document_id, job_id = self._job.document_id, self._job.id

        def commit(shard: ShardFile) -> None:
            self._catalogue.commit_shard(document_id, shard, news, job_id=job_id, progress=progress)

        self._workspace.scheduler.wait_for_queries()
        store_shard(loaded, blocks, document_id, commit)
        self._report(progress)

    def _stored_before(self, loaded: LoadedModel, first: int) -> list[KVBlock]:
        count = min(first, loaded.model.config.context_blocks)
        if not count:
            return []
        shards = self._catalogue.shards(self._job.document_id)
        return stored_blocks_before(loaded, shards, first, count)

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
        """Write progress down now and then; look at every call whether to stop. Raises `Cancelled`, `NoRow`."""
        if force or time.monotonic() - self._reported >= _REPORT_SECONDS:
            self._reported = time.monotonic()
            self._catalogue.report_progress(self._job.id, progress)
        job = self._catalogue.job(self._job.id)
        if job.cancel_requested:
            raise Cancelled("The job was cancelled.")
        self._notify(job)


def shard_blocks(
    workspace: Workspace, loaded: LoadedModel, ids: Sequence[int], recent: Sequence[KVBlock]
) -> Iterator[KVBlock]:
    """The blocks of one shard, each window in a turn of its own, in which questions go first between two layers."""
    yield_to_queries = workspace.scheduler.yield_to_queries
    blocks = prefill(loaded.model, ids, recent=recent, kv_dtype=loaded.prefill_dtype, between_layers=yield_to_queries)
    while True:
        with workspace.scheduler.for_ingestion():
            block = next(blocks, None)
        if block is None:
            return
        yield block


def store_shard(
    loaded: LoadedModel, blocks: Sequence[KVBlock], document_id: str, commit: Callable[[ShardFile], object]
) -> ShardFile:
    """Write a file and have it committed, under the lock that keeps it from being taken for garbage in between.

    If what it was made for is gone (`NoRow`), the file goes too.
    """
    with writing(loaded.store.folder):
        shard = loaded.store.write(
            torch.stack([block.keys_YGLD for block in blocks]),
            torch.stack([block.values_YGLD for block in blocks]),
            torch.tensor([block.num_tokens for block in blocks]),
            group=document_id,
        )
        try:
            commit(shard)
        except NoRow:
            loaded.store.delete([shard.name])
            raise
    return shard


def stored_blocks_before(loaded: LoadedModel, shards: Sequence[Shard], first: int, count: int) -> list[KVBlock]:
    """The `count` blocks of a document before block `first`, read back from the store."""
    refs = []
    for ordinal in range(first - count, first):
        shard = next(s for s in shards if s.first_ordinal <= ordinal < s.first_ordinal + s.num_blocks)
        refs.append((shard.name, ordinal - shard.first_ordinal))
    by_layer = [loaded.store.read_many(refs, layer) for layer in loaded.layout.layers]
    keys_YNGLD = torch.stack([keys for keys, _ in by_layer])
    values_YNGLD = torch.stack([values for _, values in by_layer])
    full = loaded.model.config.tokens_per_block  # only a document's last block is short, and nothing follows it
    return [KVBlock(keys_YNGLD[:, n], values_YNGLD[:, n], full) for n in range(count)]


def rebuild_shard(workspace: Workspace, loaded: LoadedModel, shard: Shard) -> None:
    """A damaged shard made again from the tokens in the catalogue and the blocks before it, in the old one's place.

    Raises `NoRow` if the document is gone or somebody else has replaced the shard.
    """
    shards = workspace.catalogue.shards(shard.document_id)
    stored: list[Block] = workspace.catalogue.blocks_of_document(shard.document_id)
    own = stored[shard.first_ordinal : shard.first_ordinal + shard.num_blocks]
    if shard not in shards or len(own) != shard.num_blocks:
        raise NoRow("shard", shard.name)
    ids = np.concatenate([block.tokens for block in own]).tolist()
    count = min(shard.first_ordinal, loaded.model.config.context_blocks)
    recent = stored_blocks_before(loaded, shards, shard.first_ordinal, count) if count else []
    blocks = list(shard_blocks(workspace, loaded, ids, recent))
    store_shard(loaded, blocks, shard.document_id, lambda made: workspace.catalogue.replace_shard(shard.name, made))


def claim(workspace: Workspace, job_id: str) -> Job | None:
    """Take a job; None if somebody else has it or it has ended. Jobs whose process died are taken over."""
    workspace.catalogue.recover_jobs()
    return workspace.catalogue.claim_job(job_id, this_worker())


def claim_next(workspace: Workspace) -> Job | None:
    workspace.catalogue.recover_jobs()
    return workspace.catalogue.claim_next_job(this_worker())


def _stated_title(extracted: ExtractedDocument, path: Path) -> str | None:
    """None where extraction could only offer the file's name: ours is a number, the user's is in the catalogue."""
    return None if extracted.title == path.stem else extracted.title


def _page_notes(pages: Sequence[Page]) -> list[str]:
    """Pages that gave no text, said once and by number."""
    silent = [page.label or str(page.number + 1) for page in pages if page.note]
    if not silent:
        return []
    shown = ", ".join(silent[:20]) + (f" and {len(silent) - 20} more" if len(silent) > 20 else "")
    return [
        f"No text on {'page' if len(silent) == 1 else 'pages'} {shown}: scanned? Reading scans (OCR) is not built in."
    ]


def _without_row(job: Job) -> Job:
    return Job(**{**vars(job), "state": "cancelled", "note": "the document was deleted"})
