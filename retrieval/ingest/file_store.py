"""Files on their way in: what they would cost, and the copy that is kept.

- A file is copied under a temporary name, committed to the catalogue, then renamed: a crash leaves a name that says
  whose it was.
- The same content made by the same model is stored once.
- Of a locked PDF an unlocked copy is kept, and never the password: so work on it goes on after a restart, and it can be
  read again. Such a copy carries its own hash in its name, as it is not what was handed in byte for byte.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from retrieval.engine.workspace import LoadedModel, Workspace
from retrieval.errors import ExtractError, InvalidRequest, NotEnoughSpace, NotFound
from retrieval.extraction.extract import extract, unlock
from retrieval.extraction.formats import PDF, format_of
from retrieval.types.records import Estimate
from storage.errors import NotFound as NoRow
from storage.kv.shard import sync_folder
from storage.records import Job, NewDocument, Submitted
from storage.workers import is_alive, this_worker

INCOMING = ".incoming-"
# Characters whose tokens stand for a whole long text's when its cost is guessed.
_SAMPLE_CHARACTERS = 40_000
# Never fill a disk to the last byte: the catalogue must still be able to write.
RESERVED_BYTES = 64 << 20
_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class _Copy:
    path: Path
    stored_file: str  # the name it gets once its row is committed
    sha256: str


def free_bytes(workspace: Workspace) -> int:
    return shutil.disk_usage(workspace.home).free


def stored_bytes(loaded: LoadedModel, num_tokens: int) -> int:
    """What the memory of so many tokens takes on disk."""
    return num_blocks(loaded, num_tokens) * loaded.layout.block_bytes


def num_blocks(loaded: LoadedModel, num_tokens: int) -> int:
    return -(-num_tokens // loaded.model.config.tokens_per_block)


def check_space(workspace: Workspace, source: str, needed_bytes: int) -> None:
    """Raises `NotEnoughSpace`."""
    free = free_bytes(workspace)
    if needed_bytes + RESERVED_BYTES > free:
        raise NotEnoughSpace(source, needed_bytes, free)


def estimate(workspace: Workspace, path: Path, password: str | None) -> Estimate:
    """Reads the file (in its limited process) and counts. Raises `ExtractError`."""
    extracted = extract(path, password=password)
    loaded = workspace.loaded()
    sample = extracted.text[:_SAMPLE_CHARACTERS]
    tokens = len(loaded.model.tokenize(sample).ids)
    exact = len(sample) == len(extracted.text)
    if not exact:
        tokens = int(tokens * len(extracted.text) / len(sample))
    known = workspace.catalogue.find_document(_sha256(path), loaded.fingerprint.digest)
    return Estimate(
        source=path.name,
        pages=len(extracted.pages),
        tokens=tokens,
        blocks=num_blocks(loaded, tokens),
        size_bytes=stored_bytes(loaded, tokens) + path.stat().st_size,
        seconds=tokens / usual_speed(workspace),
        free_bytes=free_bytes(workspace),
        already_stored=known is not None,
        exact=exact,
    )


def usual_speed(workspace: Workspace) -> float:
    """Tokens per second of the last finished ingestion; before the first, a cautious guess."""
    for job in workspace.catalogue.jobs(limit=50):
        if job.state == "done" and job.progress.tokens_per_second > 0:
            return job.progress.tokens_per_second
    return 20_000.0 if workspace.loaded(any_memory=True).model.device.type == "cuda" else 1_000.0


def submit(
    workspace: Workspace, path: Path, *, collection: str | None, source: str | None, password: str | None
) -> Submitted:
    """Keep a copy and queue it. Raises `ExtractError`, `InvalidRequest`, `NotEnoughSpace`, `MemoryMismatch`."""
    if not path.is_file():
        raise ExtractError(f"There is no file {path}.")
    kind = format_of(path).kind
    check_space(workspace, path.name, path.stat().st_size)
    digest = workspace.catalogue.put_fingerprint(workspace.loaded().fingerprint)
    document_id = uuid4().hex
    copies = [_copy_in(workspace, path, f"{document_id}.{kind}")]
    try:
        if password is not None and kind == PDF.kind:
            copies += _unlocked(workspace, copies[0].path, document_id, password)
        kept = copies[-1]
        shown = (source or path.name).strip()
        new = NewDocument(
            id=document_id,
            source=shown,
            title=Path(shown).stem,
            kind=kind,
            content_sha256=copies[0].sha256,
            fingerprint=digest,
            stored_file=kept.stored_file,
        )
        try:
            submitted = workspace.catalogue.add_document(new, collection=collection)
        except ValueError as error:
            raise InvalidRequest(str(error)) from error
        if not submitted.already_stored:
            _keep(workspace, kept)
    finally:
        for copy in copies:
            copy.path.unlink(missing_ok=True)
    return submitted


def unlock_original(workspace: Workspace, job: Job, password: str) -> None:
    """Before a job is tried again: put an unlocked copy in the place of the document's locked file.

    Nothing happens where the file needs no password, or the job is not waiting to be tried again. Raises
    `ExtractError`, `NotFound`.
    """
    document = workspace.catalogue.document(job.document_id)
    if job.state not in ("failed", "cancelled") or document.kind != PDF.kind:
        return
    locked = original_of(workspace, document.id)
    check_space(workspace, document.source, locked.stat().st_size)
    for copy in _unlocked(workspace, locked, document.id, password):
        try:
            workspace.catalogue.replace_original(document.id, copy.stored_file)
            _keep(workspace, copy)
        finally:
            copy.path.unlink(missing_ok=True)
        locked.unlink(missing_ok=True)


def stored_sha256(stored_file: str, content_sha256: str) -> str:
    """Hash of a kept file: that of what was handed in, or of the unlocked copy that stands for it."""
    parts = stored_file.split(".")
    return parts[1] if len(parts) == 3 else content_sha256


def _unlocked(workspace: Workspace, locked: Path, document_id: str, password: str) -> list[_Copy]:
    """One unlocked copy beside a locked PDF; none if it needs no password. Raises `ExtractError`."""
    bare = _incoming(workspace, f"{document_id}.unlocked")
    try:
        if not unlock(locked, bare, password=password):
            return []
        digest = _sha256(bare)
        stored_file = f"{document_id}.{digest}.{PDF.kind}"
        path = _incoming(workspace, stored_file)
        os.rename(bare, path)
    finally:
        bare.unlink(missing_ok=True)
    sync_folder(workspace.files_folder)
    return [_Copy(path, stored_file, digest)]


def _keep(workspace: Workspace, copy: _Copy) -> None:
    """Its row is committed: give it its name. Raises `NotFound` if the document was deleted since."""
    try:
        os.rename(copy.path, workspace.original(copy.stored_file))
    except FileNotFoundError as error:
        raise NotFound("document", copy.stored_file.split(".")[0]) from error
    sync_folder(workspace.files_folder)


def _copy_in(workspace: Workspace, path: Path, stored_file: str) -> _Copy:
    incoming = _incoming(workspace, stored_file)
    hasher = hashlib.sha256()
    try:
        with open(path, "rb") as read, open(incoming, "xb", opener=_private) as written:
            while piece := read.read(_COPY_BYTES):
                hasher.update(piece)
                written.write(piece)
            written.flush()
            os.fsync(written.fileno())
    except OSError as error:
        incoming.unlink(missing_ok=True)
        raise ExtractError(f"{path.name} could not be copied into the library: {error.strerror}.") from error
    return _Copy(incoming, stored_file, hasher.hexdigest())


def _incoming(workspace: Workspace, stored_file: str) -> Path:
    return workspace.files_folder / f"{INCOMING}{this_worker().replace('/', '~')}-{stored_file}"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def original_of(workspace: Workspace, document_id: str) -> Path:
    """The kept copy of a document's file. Raises `NotFound` when it is gone."""
    try:
        stored_file = workspace.catalogue.document(document_id).stored_file
    except NoRow as error:
        raise NotFound("document", document_id) from error
    if stored_file is None:
        raise NotFound("original file of document", document_id)
    path = workspace.original(stored_file)
    if not path.exists():
        # The process that copied it in died between its commit and its rename.
        for incoming in workspace.files_folder.glob(f"{INCOMING}*-{stored_file}"):
            os.rename(incoming, path)
    if not path.exists():
        raise NotFound("original file of document", document_id)
    return path


def abandoned_files(workspace: Workspace) -> list[Path]:
    """Files in the folder of originals that no document and no living process needs."""
    paths = sorted(workspace.files_folder.iterdir())  # before the rows: a file is renamed after its row is committed
    needed = {document.stored_file for document in workspace.catalogue.documents()}
    abandoned = []
    for path in paths:
        if path.name.startswith(INCOMING):
            worker, _, stored_file = path.name.removeprefix(INCOMING).rpartition("-")
            if is_alive(worker.replace("~", "/")) or stored_file in needed:
                continue
        elif path.name in needed:
            continue
        abandoned.append(path)
    return abandoned
