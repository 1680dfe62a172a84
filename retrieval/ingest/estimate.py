"""What storing a file costs: tokens, blocks, bytes on disk, seconds."""

from __future__ import annotations

from pathlib import Path

from retrieval.engine.workspace import LoadedModel, Workspace
from retrieval.extraction.extract import extract
from retrieval.ingest.file_store import free_bytes, sha256_of
from retrieval.types.records import Estimate

_SAMPLE_CHARACTERS = 40_000  # the tokens of a longer text are extrapolated from these


def num_blocks(loaded: LoadedModel, num_tokens: int) -> int:
    return -(-num_tokens // loaded.model.config.tokens_per_block)


def stored_bytes(loaded: LoadedModel, num_tokens: int) -> int:
    """What the memory of so many tokens takes on disk."""
    return num_blocks(loaded, num_tokens) * loaded.layout.block_bytes


def estimate(workspace: Workspace, path: Path, password: str | None) -> Estimate:
    """Extracts the file and counts. Raises `ExtractError`."""
    extracted = extract(path, password=password, person=workspace.person)
    loaded = workspace.loaded()
    sample = extracted.text[:_SAMPLE_CHARACTERS]
    tokens = len(loaded.model.tokenize(sample).ids)
    exact = len(sample) == len(extracted.text)
    if not exact:
        tokens = int(tokens * len(extracted.text) / len(sample))
    known = workspace.catalogue.find_document(sha256_of(path), loaded.fingerprint.digest)
    return Estimate(
        source=path.name,
        pages=len(extracted.pages),
        tokens=tokens,
        blocks=num_blocks(loaded, tokens),
        size_bytes=stored_bytes(loaded, tokens) + path.stat().st_size,
        seconds=tokens / _usual_speed(workspace, loaded),
        free_bytes=free_bytes(workspace),
        already_stored=known is not None,
        exact=exact,
    )


def _usual_speed(workspace: Workspace, loaded: LoadedModel) -> float:
    """Tokens per second of the last finished ingestion; before the first, a cautious guess."""
    for job in workspace.catalogue.jobs(limit=50):
        if job.state == "done" and job.progress.tokens_per_second > 0:
            return job.progress.tokens_per_second
    return 20_000.0 if loaded.model.device.type == "cuda" else 1_000.0
