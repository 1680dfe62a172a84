"""The kept copies of the files that were added.

- A file is copied under a temporary name, committed to the catalogue, then renamed. After a crash the temporary name
  tells the process and the document. With a bucket, the copy is there before the commit.
- The same content made by the same model is stored once.
- Of a locked PDF an unlocked copy is kept, and never the password. So work on it continues after a restart, and it can
  be read again. Such a copy has its own hash in its name, as it differs from the file that was added.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from retrieval.engine.workspace import Workspace
from retrieval.errors import CairnError, ExtractError, FileChanged, InvalidRequest, NotEnoughSpace, NotFound
from retrieval.extraction.extract import unlock
from retrieval.extraction.formats import PDF, format_of
from storage.blobs.files import sync_folder
from storage.bundle import COPY_BYTES
from storage.errors import DamagedOriginal
from storage.errors import NotFound as NoRow
from storage.maintenance import settled
from storage.records import FolderFile, Job, NewDocument, Submitted
from storage.recovery import write_sidecar
from storage.workers import is_alive, this_worker

_T = TypeVar("_T")
INCOMING = ".incoming-"
_RESERVED_BYTES = 64 << 20  # the catalogue must be able to write when the disk is full
_KEPT_FREE_BYTES = 1 << 30  # by pictures of pages, which readers could otherwise fill the disk with
_SILENT_SECONDS = 3600.0  # after which a copy that a process of another machine makes counts as unfinished for good


@dataclass(frozen=True)
class _Copy:
    path: Path
    stored_file: str  # its name once its row is committed
    sha256: str


def free_bytes(workspace: Workspace) -> int:
    return shutil.disk_usage(workspace.home).free


def check_space(workspace: Workspace, source: str, needed_bytes: int) -> None:
    """Raises `NotEnoughSpace`."""
    free = free_bytes(workspace)
    if needed_bytes + _RESERVED_BYTES > free:
        raise NotEnoughSpace(source, needed_bytes, free, _RESERVED_BYTES)


def check_store_space(workspace: Workspace, source: str, needed_bytes: int) -> None:
    """`check_space`, where the store takes space of this disk. Raises `NotEnoughSpace`."""
    if workspace.blobs.on_this_disk:
        check_space(workspace, source, needed_bytes)


def has_room(workspace: Workspace, needed_bytes: int) -> bool:
    """Whether there is room for a file that can be made again; it must leave much more free than a document."""
    return free_bytes(workspace) >= needed_bytes + _KEPT_FREE_BYTES


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def submit(
    workspace: Workspace,
    path: Path,
    *,
    collection: str | None,
    source: str | None,
    password: str | None,
    content_sha256: str | None = None,
    of_folder: tuple[str, FolderFile] | None = None,
) -> Submitted:
    """Keep a copy and queue it; `of_folder` as in the catalogue's `add_document`.

    Raises `ExtractError`, `InvalidRequest`, `NotEnoughSpace`, `MemoryMismatch`, and `FileChanged` unless the content is
    the one expected.
    """
    if path.is_dir():
        raise ExtractError(f"The folder {path} cannot be read. Check who may read it, then add it again.")
    if not path.is_file():
        raise ExtractError(f"There is no file {path}.")
    kind = format_of(path).kind
    check_space(workspace, path.name, path.stat().st_size)
    digest = workspace.catalogue.put_fingerprint(workspace.loaded().fingerprint)
    document_id = uuid4().hex
    copies = [_copy_in(workspace, path, f"{document_id}.{kind}")]
    try:
        if content_sha256 not in (None, copies[0].sha256):
            raise FileChanged(path.name)
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
        with _brought(workspace, kept) as keep:
            try:
                submitted = workspace.catalogue.add_document(new, collection=collection, of_folder=of_folder)
            except ValueError as error:
                raise InvalidRequest(str(error)) from error
            if not submitted.already_stored:
                keep()
                write_sidecar(workspace.database, workspace.blobs, document_id)
    finally:
        for copy in copies:
            copy.path.unlink(missing_ok=True)
    return submitted


def unlock_original(workspace: Workspace, job: Job, password: str) -> None:
    """Before a job is retried: replace the document's locked file by an unlocked copy.

    Nothing happens if the file needs no password, or if the job has not failed. Raises `ExtractError`, `NotFound`.
    """
    document = workspace.catalogue.document(job.document_id)
    if job.state not in ("failed", "cancelled") or document.kind != PDF.kind:
        return
    locked, old = original_of(workspace, document.id), document.stored_file
    check_space(workspace, document.source, locked.stat().st_size)
    for copy in _unlocked(workspace, locked, document.id, password):
        try:
            with _brought(workspace, copy) as keep:
                workspace.catalogue.replace_original(document.id, copy.stored_file)
                keep()
        finally:
            copy.path.unlink(missing_ok=True)
        if old is not None:
            workspace.originals.delete([old])


def stored_sha256(stored_file: str, content_sha256: str) -> str:
    """Expected hash of a kept file: of what was handed in, or of the unlocked copy in its place."""
    parts = stored_file.split(".")
    return parts[1] if len(parts) == 3 else content_sha256


def _unlocked(workspace: Workspace, locked: Path, document_id: str, password: str) -> list[_Copy]:
    """One unlocked copy beside a locked PDF; none if it needs no password. Raises `ExtractError`."""
    bare = _incoming(workspace, f"{document_id}.unlocked")
    try:
        if not unlock(locked, bare, password=password, person=workspace.person):
            return []
        digest = sha256_of(bare)
        stored_file = f"{document_id}.{digest}.{PDF.kind}"
        path = _incoming(workspace, stored_file)
        os.rename(bare, path)
    finally:
        bare.unlink(missing_ok=True)
    sync_folder(workspace.files_folder)
    return [_Copy(path, stored_file, digest)]


@contextmanager
def _brought(workspace: Workspace, copy: _Copy) -> Iterator[Callable[[], None]]:
    """Put a copy where it can be committed. Call what is yielded once the row is committed: it gives the copy its final
    name; without that call the store keeps nothing. Raises `NotFound` if the document has been deleted since, and
    `StoreUnavailable`."""
    kept = False

    def keep() -> None:
        nonlocal kept
        kept = True
        try:
            workspace.originals.settle(copy.path, copy.stored_file)
        except FileNotFoundError as error:
            raise NotFound("document", copy.stored_file.split(".")[0]) from error

    workspace.originals.bring(copy.path, copy.stored_file)
    yield keep
    if not kept:  # after an error nobody knows whether it was committed: then `gc` decides
        workspace.originals.delete([copy.stored_file])


def _copy_in(workspace: Workspace, path: Path, stored_file: str) -> _Copy:
    incoming = _incoming(workspace, stored_file)
    try:
        with open(path, "rb") as file:
            return _Copy(incoming, stored_file, _write(incoming, pieces_of(file)))
    except OSError as error:
        incoming.unlink(missing_ok=True)
        raise ExtractError(f"{path.name} could not be copied into the library: {error.strerror}.") from error


def pieces_of(file: BufferedIOBase) -> Iterator[bytes]:
    while piece := file.read(COPY_BYTES):
        yield piece


def _write(incoming: Path, pieces: Iterable[bytes]) -> str:
    """A new file, durably. Returns its hash."""
    hasher = hashlib.sha256()
    with open(os.open(incoming, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for piece in pieces:
            hasher.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return hasher.hexdigest()


@contextmanager
def keep_arrived(
    workspace: Workspace, pieces: Iterable[bytes], stored_file: str, sha256: str
) -> Iterator[Callable[[], None]]:
    """Write an original that arrives with its memory; what is yielded gives it its name, once its row is committed.

    Raises `CairnError` if its content is not the one expected; without being named, it is removed at the end.
    """
    incoming = _incoming(workspace, stored_file)
    try:
        if _write(incoming, pieces) != sha256:
            raise CairnError(f"The original {stored_file} is not the file that was exported. It was not imported.")
        with _brought(workspace, _Copy(incoming, stored_file, sha256)) as keep:
            yield keep
    finally:
        incoming.unlink(missing_ok=True)


def _incoming(workspace: Workspace, stored_file: str) -> Path:
    return workspace.files_folder / f"{INCOMING}{this_worker().replace('/', '~')}-{stored_file}"


def original_of(workspace: Workspace, document_id: str) -> Path:
    """The kept copy of a document's file, on this machine. Raises `NotFound` when it is gone, `CairnError` if a bucket
    has another file."""
    stored_file, sha256 = _stored(workspace, document_id)
    try:
        return _found(workspace, stored_file, lambda: workspace.originals.local(stored_file, sha256))
    except DamagedOriginal as error:
        raise CairnError(str(error)) from error


def copy_of_original(workspace: Workspace, document_id: str) -> tuple[str, BufferedIOBase]:
    """Name and contents of the kept file as the store has it, whatever is cached here. Raises `NotFound`."""
    stored_file, _ = _stored(workspace, document_id)
    return stored_file, _found(workspace, stored_file, lambda: workspace.originals.copy(stored_file))


def _stored(workspace: Workspace, document_id: str) -> tuple[str, str]:
    """Name and expected hash of a document's kept file."""
    try:
        document = workspace.catalogue.document(document_id)
    except NoRow as error:
        raise NotFound("document", document_id) from error
    if document.stored_file is None:
        raise NotFound("original file of document", document_id)
    return document.stored_file, stored_sha256(document.stored_file, document.content_sha256)


def _found(workspace: Workspace, stored_file: str, get: Callable[[], _T]) -> _T:
    try:
        return get()
    except FileNotFoundError:
        # The process that copied it in is, or died, between its commit and its rename.
        for incoming in workspace.files_folder.glob(f"{INCOMING}*-{stored_file}"):
            with suppress(FileNotFoundError):
                workspace.originals.settle(incoming, stored_file)
    try:
        return get()
    except FileNotFoundError:
        raise NotFound("original file of document", stored_file.split(".")[0]) from None


def delete_original(workspace: Workspace, stored_file: str) -> None:
    """The kept copy, and what a crash may have left under its temporary name."""
    workspace.originals.delete([stored_file])
    for incoming in workspace.files_folder.glob(f"{INCOMING}*-{stored_file}"):
        incoming.unlink(missing_ok=True)


def abandoned_files(workspace: Workspace) -> tuple[list[str], list[Path]]:
    """Originals that no document needs, and unfinished copies that no living process needs either."""
    # Before the rows: a file has its name after its row is committed, or for less than `settle_seconds` before it.
    staged = [path for path in sorted(workspace.files_folder.glob(f"{INCOMING}*")) if _is_left_over(path)]
    kept = [name for name in settled(workspace.originals) if not name.startswith(INCOMING)]
    needed = {document.stored_file for document in workspace.catalogue.documents()}
    abandoned = [path for path in staged if path.name.rpartition("-")[2] not in needed]
    return [name for name in kept if name not in needed], abandoned


def _is_left_over(incoming: Path) -> bool:
    """Of a process of another machine nothing is known but when it last wrote."""
    worker = incoming.name.removeprefix(INCOMING).rpartition("-")[0].replace("~", "/")
    if (alive := is_alive(worker)) is not None:
        return not alive
    try:
        return time.time() - incoming.stat().st_mtime > _SILENT_SECONDS
    except FileNotFoundError:  # it has its name by now
        return False
