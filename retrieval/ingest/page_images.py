"""Pictures of pages, drawn once and kept."""

from __future__ import annotations

from retrieval.engine.workspace import Workspace
from retrieval.extraction.extract import render_page
from retrieval.ingest.file_store import original_of
from storage.kv.shard import sync_folder


def page_image(workspace: Workspace, document_id: str, page: int, width_px: int) -> bytes:
    """PNG of a page (from 0). Raises `NotFound`, `ExtractError`."""
    folder = workspace.pages_folder / document_id
    kept = folder / f"{page}-{width_px}.png"
    if kept.is_file():
        return kept.read_bytes()
    image = render_page(original_of(workspace, document_id), page, width_px=width_px, person=workspace.person)
    folder.mkdir(exist_ok=True, mode=0o700)
    unfinished = kept.with_name(f".{kept.name}")
    unfinished.write_bytes(image)
    unfinished.replace(kept)
    sync_folder(folder)
    return image
