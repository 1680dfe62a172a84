"""Export: documents into the file of a bundle, each byte checked against the catalogue as it is copied."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from io import BufferedIOBase
from pathlib import Path

from retrieval.engine.workspace import Workspace
from retrieval.errors import CairnError, DamagedMemory, InvalidRequest, NotEnoughSpace, NotFound
from retrieval.ingest.file_store import copy_of_original, pieces_of, stored_sha256
from retrieval.types.records import Exported
from storage.blobs.files import sync_folder
from storage.bundle import BundledRows, BundleWriter
from storage.catalogue import Catalogue
from storage.errors import NotFound as NoRow
from storage.fingerprint import MemoryFingerprint
from storage.records import Document, Shard

_SPARE_BYTES = 64 << 20


def export_bundle(workspace: Workspace, whole: Catalogue, chosen: Sequence[Document], into: Path) -> Exported:
    """Write those of these documents that are ready to the new file `into`, which gets its name once it is complete.

    `whole`: the administrator's catalogue, which knows memory files; `workspace` acts for the exporting user. Raises
    `InvalidRequest`, `DamagedMemory`, `NotEnoughSpace`, `OSError`.
    """
    if into.exists():
        raise InvalidRequest(f"{into} exists already. Choose another name, or delete it first.")
    left_out = [(one.source, f"it is {one.state}") for one in chosen if one.state != "ready"]
    shards = {one.id: whole.shards(one.id) for one in chosen if one.state == "ready"}
    # In the order in which they were stored: among equal scores the newest block wins, there as here.
    documents = sorted((one for one in chosen if shards.get(one.id)), key=lambda one: shards[one.id][0].first_block_id)
    fingerprint = _fingerprint(whole, documents)
    _check_space(into, sum(one.size_bytes for one in documents))
    unfinished = into.with_name(f"{into.name}.unfinished")
    try:
        with open(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "wb+") as file:
            written: list[Document] = []
            with BundleWriter(file) as bundle:
                for document in documents:
                    try:
                        _add(bundle, f"documents/{len(written)}", workspace, document, shards[document.id])
                    except NoRow:
                        left_out.append((document.source, "it was deleted meanwhile"))
                    else:
                        written.append(document)
                listed = [{"source": one.source, "content_sha256": one.content_sha256} for one in written]
                bundle.close(fingerprint=dict(fingerprint.fields), documents=listed)
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished, into)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_folder(into.parent)
    blocks = sum(one.num_blocks for one in written)
    return Exported(str(into), len(written), blocks, into.stat().st_size, tuple(left_out))


def _fingerprint(whole: Catalogue, documents: Sequence[Document]) -> MemoryFingerprint:
    digests = {one.fingerprint for one in documents}
    if not digests:
        raise InvalidRequest("There is no document to export: none is ready.")
    if len(digests) > 1:
        raise InvalidRequest(
            "These documents were read by different models, and a bundle holds the memory of one. Read them again with "
            "one model first (`cairn repair --reingest`), or export one collection."
        )
    return next(one for one in whole.fingerprints() if one.digest in digests)


def _check_space(into: Path, needed_bytes: int) -> None:
    if not into.absolute().parent.is_dir():
        raise InvalidRequest(f"There is no folder {into.absolute().parent}.")
    free = shutil.disk_usage(into.absolute().parent).free
    if needed_bytes + _SPARE_BYTES > free:
        raise NotEnoughSpace(into.name, needed_bytes, free, _SPARE_BYTES)


def _add(bundle: BundleWriter, folder: str, workspace: Workspace, document: Document, shards: Sequence[Shard]) -> None:
    """All files are opened before anything is written, so that a deletion meanwhile does not affect the export."""
    with ExitStack() as opened:
        try:
            memory = [opened.enter_context(workspace.store.blobs.copy(one.name)) for one in shards]
        except FileNotFoundError as error:
            workspace.catalogue.document(document.id)  # deleted meanwhile?
            raise DamagedMemory(document.source, "a file of its memory is missing") from error
        original, original_sha256 = _open_original(opened, workspace, document)
        rows = _rows(workspace.catalogue, document, shards, original_sha256)
        text = workspace.catalogue.extracted_text(document.id).text
        bundle.add(f"{folder}/rows.json", [rows.packed()])
        bundle.add(f"{folder}/text.txt", [text.encode("utf-8", "surrogatepass")])
        copied = bundle.add(f"{folder}/original.{document.kind}", pieces_of(original))
        if copied != original_sha256:
            raise CairnError(
                f"The original of {document.source} has changed since it was added, so nothing was exported. `cairn "
                "verify` lists such files; delete the document and add it again."
            )
        for number, (shard, file) in enumerate(zip(shards, memory, strict=True)):
            if "sha256:" + bundle.add(f"{folder}/{number}.kv", pieces_of(file)) != shard.checksum:
                raise DamagedMemory(document.source, "a file of its memory has changed")


def _open_original(opened: ExitStack, workspace: Workspace, document: Document) -> tuple[BufferedIOBase, str]:
    try:
        name, file = copy_of_original(workspace, document.id)
    except NotFound as error:
        workspace.catalogue.document(document.id)  # deleted meanwhile?
        raise CairnError(
            f"The original of {document.source} is missing, so nothing was exported: a bundle could not be read again. "
            "Delete the document, or put its file back (`cairn verify`)."
        ) from error
    return opened.enter_context(file), stored_sha256(name, document.content_sha256)


def _rows(catalogue: Catalogue, document: Document, shards: Sequence[Shard], original_sha256: str) -> BundledRows:
    names = {one.id: one.name for one in catalogue.collections()}
    pages = catalogue.pages(document.id)
    keys = catalogue.title_keys([document.id]).get(document.id, b"")
    blocks = catalogue.blocks_of_document(document.id)
    properties = catalogue.properties_of([document.id]).get(document.id, [])
    return BundledRows(
        source=document.source,
        title=document.title,
        kind=document.kind,
        content_sha256=document.content_sha256,
        original_sha256=original_sha256,
        collection=names.get(document.collection_id or ""),
        num_tokens=document.num_tokens,
        notes=list(document.notes),
        extras=dict(catalogue.extracted_text(document.id).extras),
        pages=[(p.number, p.label, p.width, p.height, p.start, p.end, p.note) for p in pages],
        blocks=[(one.start, one.end, list(one.tokens), list(one.boxes)) for one in blocks],
        shard_blocks=[shard.num_blocks for shard in shards],
        properties=[(one.name, one.value, one.by_hand) for one in properties],
        title_keys=base64.b64encode(keys).decode(),
    )
