"""What storing a file costs: tokens, blocks, bytes on disk, seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

from retrieval.engine.workspace import LoadedModel, Workspace
from retrieval.errors import NothingToRead
from retrieval.extraction.extract import (
    RECOGNISING,
    ExtractProgress,
    extract,
    recognises_pictures,
    try_recognising,
)
from retrieval.ingest.file_store import free_bytes, sha256_of
from retrieval.types.records import Estimate

_SAMPLE_CHARACTERS = 40_000  # the tokens of a longer text are extrapolated from these
_TOKENS_A_PICTURE = 600  # of a page whose text is yet to be recognised
_CHARACTERS_A_TOKEN = 4.0  # of a text that is not known yet
_TELLING_SECONDS = 1.0  # of the pages read so far, which say how long the others take
_TELLING_PAGES = 3
_TELLING_TOKENS = 2_000  # what was read says how fast this machine is from so many tokens on
_measured: MutableMapping[LoadedModel, float] = WeakKeyDictionary()
"""Tokens per second, for as long as a model is loaded and little was read with it."""

Watch = Callable[[int, int], object]
"""Called now and then with the pages done and their number; what it raises ends the work."""


def num_blocks(loaded: LoadedModel, num_tokens: int) -> int:
    return -(-num_tokens // loaded.model.config.tokens_per_block)


def stored_bytes(loaded: LoadedModel, num_tokens: int) -> int:
    """What the memory of so many tokens takes on disk."""
    return num_blocks(loaded, num_tokens) * loaded.layout.block_bytes


def estimate(workspace: Workspace, path: Path, password: str | None, watch: Watch) -> Estimate:
    """Extracts the file and counts: storing it extracts it again, which takes as long; what is stored costs no time.

    Raises `ExtractError`."""
    loaded = workspace.loaded()
    stored = workspace.catalogue.find_document(sha256_of(path), loaded.fingerprint.digest)
    if stored is not None:
        return Estimate(
            source=path.name,
            pages=stored.num_pages,
            tokens=stored.num_tokens,
            blocks=stored.num_blocks,
            size_bytes=stored.size_bytes,
            seconds=0.0,
            free_bytes=free_bytes(workspace),
            already_stored=True,
        )

    def told(progress: ExtractProgress) -> None:
        watch(progress.done, progress.total)

    began = time.perf_counter()
    try:
        extracted = extract(path, password=password, person=workspace.person, ocr=False, watch=told)
        text, pages, scanned = extracted.text, len(extracted.pages), extracted.scanned
    except NothingToRead as error:
        if not recognises_pictures():
            raise
        text, pages, scanned = "", len(error.pages), error.pages
    extracting = time.perf_counter() - began
    pictures = len(scanned) if recognises_pictures() else 0
    recognising, tried = 0.0, list[str]()
    if pictures:
        recognising, tried = try_recognising(path, scanned, password=password, person=workspace.person)
    sample = text[:_SAMPLE_CHARACTERS]
    ids = loaded.model.tokenize(sample).ids
    tokens = len(ids)
    if len(sample) < len(text):
        tokens = int(tokens * len(text) / len(sample))
    tried_ids = loaded.model.tokenize("\n\n".join(tried)).ids
    tokens += pictures * len(tried_ids) // len(tried) if tried else pictures * _TOKENS_A_PICTURE
    return Estimate(
        source=path.name,
        pages=pages,
        tokens=tokens,
        blocks=num_blocks(loaded, tokens),
        size_bytes=stored_bytes(loaded, tokens) + path.stat().st_size,
        seconds=extracting + tokens / _usual_speed(workspace, loaded, ids or tried_ids) + recognising,
        free_bytes=free_bytes(workspace),
        exact=len(sample) == len(text) and not pictures,
    )


class Forecast:
    """How long a job will still take, estimated while the text of its file is extracted. Starts with the extraction."""

    def __init__(self, workspace: Workspace, loaded: LoadedModel):
        self._speed = known_speed(workspace, loaded)
        self._stage, self._steps = "", list[tuple[int, float]]()  # pages done, and when

    def seconds_left(self, progress: ExtractProgress) -> float | None:
        """Estimated from the pace of the later half of the pages so far and of recently read documents; None while too
        little is known.

        The first pages also pay for the start, and for whatever else the machine was doing then."""
        now = time.monotonic()
        if progress.stage != self._stage:
            self._stage, self._steps = progress.stage, [(progress.done, now)]
        if progress.done > self._steps[-1][0]:
            self._steps.append((progress.done, now))
        begun = self._steps[0]
        telling_pages = min(_TELLING_PAGES, -(-progress.total // 2))
        if self._speed is None or now - begun[1] < _TELLING_SECONDS or progress.done - begun[0] < telling_pages:
            return None
        half = begun[0] + (progress.done - begun[0]) / 2
        before, since = next(step for step in reversed(self._steps) if step[0] <= half)
        seconds, done = now - since, progress.done - before
        if progress.stage == RECOGNISING:
            tokens = float(progress.total * _TOKENS_A_PICTURE)
        else:
            tokens = progress.characters / progress.done * progress.total / _CHARACTERS_A_TOKEN
        return seconds / done * (progress.total - progress.done) + tokens / self._speed


def _usual_speed(workspace: Workspace, loaded: LoadedModel, ids: Sequence[int]) -> float:
    """Tokens per second: as far as it is known, else measured by reading the beginning of this text."""
    known = known_speed(workspace, loaded)
    if known is None and ids:
        known = _measured[loaded] = _measure(workspace, loaded, ids)
    return known or 1_000.0  # a text without tokens takes no time at any speed


def known_speed(workspace: Workspace, loaded: LoadedModel) -> float | None:
    """Tokens per second of what was read lately, else as it was measured."""
    progress = [job.progress for job in workspace.catalogue.jobs(limit=50) if job.state == "done"]
    read = [one for one in progress if one.tokens_per_second > 0]
    tokens = sum(one.tokens_done for one in read)
    if tokens >= _TELLING_TOKENS:
        return tokens / sum(one.tokens_done / one.tokens_per_second for one in read)
    return _measured.get(loaded)


def _measure(workspace: Workspace, loaded: LoadedModel, ids: Sequence[int]) -> float:
    """Tokens per second of one window, with a vector; of the second, if there is one, as the first also pays for what
    is made once."""
    from model.inference.prefill import prefill  # the library opens without it

    per_window = loaded.model.config.window_blocks * loaded.model.config.tokens_per_block
    seconds = 0.0
    for window in (ids[:per_window], ids[per_window : 2 * per_window]):
        if window:
            with workspace.scheduler.for_ingestion():
                began = time.perf_counter()
                for _block in prefill(loaded.model, window, kv_dtype=loaded.prefill_dtype):
                    pass
                if loaded.encoder is not None:
                    loaded.encoder.passages([loaded.model.decode(window)])
                seconds, tokens = time.perf_counter() - began, len(window)
    return tokens / seconds
