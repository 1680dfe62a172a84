"""One run over a followed folder: compare its files with what was read from it, and do what is needed.

- A file whose size and times are unchanged is not opened. Otherwise its content decides: the same content is the same
  document, also under another name.
- A changed file is read as a new document, which replaces the old one once it is complete.
- Each step is recorded before the next one: after a crash the next run goes on, and unfinished reading resumes.
- A file that changes while it is being checked is left for the next run.
- Hidden files and folders, symbolic links (which may lead in circles, or out of the folder), special files and other
  formats are not followed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from retrieval.bundles.exporting import export_bundle
from retrieval.documents import Documents
from retrieval.errors import ExtractError, FileChanged, InvalidRequest
from retrieval.extraction.formats import suffixes_here
from retrieval.ingest.file_store import sha256_of
from retrieval.types.records import ALREADY_STORED, FileChange, FollowOptions, Job
from retrieval.view import View
from storage.records import Document, Folder, FolderFile, Principal
from storage.trash import Trash


@dataclass(frozen=True)
class Scan:
    """`files`: stamp by source (the path below the folder), in order; `skipped`: sources with reasons; `unknown`:
    sources of folders that could not be listed, and of files that could not be looked at, though they are there."""

    files: Mapping[str, str]
    skipped: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]

    def knows_nothing_of(self, source: str) -> bool:
        """Whether the file, or a folder in which it lies, could not be looked at."""
        return any(f"{source}/".startswith(f"{one}/") for one in self.unknown)


def scan(root: Path, suffixes: tuple[str, ...]) -> Scan:
    """The files below a folder, as they are now. Raises `InvalidRequest` if the folder itself is not there or cannot be
    listed."""
    files: dict[str, str] = {}
    skipped: list[tuple[str, str]] = []
    unknown: list[str] = []

    def failed(error: OSError) -> None:
        if Path(error.filename) == root:
            raise InvalidRequest(f"The folder {root} cannot be listed: {error.strerror}. Nothing was changed.")
        unknown.append(_source(root, Path(error.filename)))
        skipped.append((unknown[-1], f"the folder cannot be listed: {error.strerror}"))

    if not root.is_dir():
        raise InvalidRequest(f"There is no folder {root}. Nothing was changed.")
    for at, folders, names in os.walk(root, onerror=failed):
        here = Path(at)
        followed = []
        for name in sorted(folders):
            reason = _bad_name(name)
            try:
                if not reason and (here / name).is_symlink():
                    reason = "a symbolic link, which is not followed"
            except OSError as error:
                reason = f"the folder cannot be looked at: {error.strerror}"
                unknown.append(_source(root, here / name))
            if reason:
                skipped.append((_source(root, here / name), reason))
            else:
                followed.append(name)
        folders[:] = followed
        for name in sorted(names):
            source = _source(root, here / name)
            try:
                found, reason = _look_at(here / name, suffixes)
            except OSError as error:
                found, reason = "", f"it cannot be looked at: {error.strerror}"
                if not isinstance(error, FileNotFoundError):
                    unknown.append(source)
            if reason:
                skipped.append((source, reason))
            else:
                files[source] = found
    return Scan(files, tuple(skipped), tuple(unknown))


def stamp_of(path: Path) -> str:
    """Size and times of a file: while they are unchanged, its content is taken to be unchanged. Raises `OSError`."""
    return _stamp(path.lstat())


def modified_at(stamp: str) -> float:
    """When the file was last written to, seconds since 1970; negative before."""
    _, _, times = stamp.partition("-")
    return int(times.rpartition("-")[0]) / 1e9


def _stamp(found: os.stat_result) -> str:
    # The time of the last change of its entry shows what tools that set the time of writing back would hide.
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"


def _look_at(path: Path, suffixes: tuple[str, ...]) -> tuple[str, str]:
    """The file's stamp, or why it is not followed. Raises `OSError`."""
    if reason := _bad_name(path.name):
        return "", reason
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return "", "a symbolic link, which is not followed"
    if not stat.S_ISREG(found.st_mode):
        return "", "not an ordinary file"
    if path.suffix.lower() not in suffixes:
        return "", f"{path.suffix.lower() or 'files without an ending'} cannot be read"
    return _stamp(found), ""


def _bad_name(name: str) -> str:
    """Why what has this name is not followed, if it is for the name."""
    if name.startswith("."):
        return "hidden"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not valid Unicode; rename it"
    return ""


def _source(root: Path, path: Path) -> str:
    return PurePosixPath(path.relative_to(root)).as_posix()


DELETED_BY_HAND = "its document was deleted in the library"


@dataclass(frozen=True)
class _Fresh:
    """A file whose content has to be compared."""

    source: str
    stamp: str
    known: FolderFile | None
    sha256: str = ""


class FolderRun:
    """`view`: the administrator's. `read` runs a job to its end; None leaves that to the queue."""

    def __init__(self, view: View, folder: Folder, *, read: Callable[[Job], Job] | None, options: FollowOptions):
        self._documents, self._catalogue, self._folder = Documents(view), view.catalogue, folder
        self._workspace, self._root, self._read, self._options = view.workspace, Path(folder.path), read, options
        self._mine = Documents(view.as_seen_by(Principal(folder.owner_id)))
        self._wanted: set[str] = set()  # contents that files have now
        self._waiting: list[FolderFile] = []  # read, but the old document has what another file needs

    def changes(self) -> Iterator[FileChange]:
        """One for each file, as they happen. Raises `InvalidRequest`, and what every further file would raise too."""
        found = scan(self._root, suffixes_here())
        known = {file.source: file for file in self._files()}
        self._refuse_emptied(found, known.values())
        yield from (FileChange(source, None, "skipped", reason=reason) for source, reason in found.skipped)
        unclear: list[tuple[str, str]] = []
        for source, stamp in found.files.items():
            change = self._known(known.get(source), stamp)
            if change is None:
                unclear.append((source, stamp))
            else:
                yield change
        known = {file.source: file for file in self._files()}  # what was being read may be complete by now
        fresh = [_Fresh(source, stamp, known.get(source)) for source, stamp in unclear]
        missing = [file for file in known.values() if file.source not in found.files]
        missing = [file for file in missing if not found.knows_nothing_of(file.source)]
        self._settle([one.stamp for one in fresh])
        yield from self._fresh(fresh, {file.content_sha256: file for file in missing})
        for file in self._waiting:
            self._wanted.clear()
            self._complete(file)
        moved = {file.source for file in missing} - {file.source for file in self._files()}
        yield from (self._removed(file) for file in missing if file.source not in moved)
        for document, source in self._catalogue.misnamed(self._folder.id):
            self._rename(document, source)

    def _files(self) -> list[FolderFile]:
        return self._catalogue.folder_files(self._folder.id)

    def _refuse_emptied(self, found: Scan, known: Collection[FolderFile]) -> None:
        """A disk that is not mounted looks like a folder from which everything was removed."""
        if known and not found.files and self._folder.removed != "keep" and not self._options.emptied:
            raise InvalidRequest(
                f"The folder {self._root} holds no documents any more. Is its disk mounted? Nothing was changed; "
                "--emptied says that all of its files were really removed."
            )

    # Files that are as they were

    def _known(self, file: FolderFile | None, stamp: str) -> FileChange | None:
        """The result where size and times tell it; None: the content has to be compared."""
        if file is None:
            return None
        if file.next_document_id is not None:
            return self._being_read(file, stamp)
        if file.next_sha256 and not file.error:  # the document was deleted while it was read
            file = FolderFile(file.source, file.document_id, file.next_sha256, file.next_stamp)
            self._put(file)
        if self._options.every_byte:
            return None
        if file.error:
            stale = self._read is not None or stamp != file.next_stamp  # a person who starts a run wants another try
            return None if stale else FileChange(file.source, file.document_id, "failed", reason=file.error)
        if stamp != file.stamp:
            return None
        if file.document_id is None:
            return None if self._options.again else FileChange(file.source, None, "skipped", reason=DELETED_BY_HAND)
        return FileChange(file.source, file.document_id, "same")

    def _being_read(self, file: FolderFile, stamp: str) -> FileChange | None:
        """Of an earlier run: completed if it is done, else left to whoever reads it, or taken up again."""
        assert file.next_document_id is not None
        document = self._catalogue.document(file.next_document_id)
        if document.state == "ready":
            change = self._complete(file)
            return change if stamp == file.next_stamp else None
        if document.state in ("failed", "cancelled"):
            job = self._catalogue.latest_job_of(document.id)
            return self._failed(file, job.error or job.note if job else "it could not be read")
        if self._read is None and stamp == file.next_stamp:
            return FileChange(file.source, document.id, "reading")
        return None

    # Files to be looked into

    def _settle(self, stamps: Sequence[str]) -> None:
        """Let a moment pass since the last writing, so that what is still being written shows."""
        if stamps:
            since = time.time() - max(map(modified_at, stamps))
            if since < self._options.settle_seconds:
                time.sleep(min(self._options.settle_seconds, self._options.settle_seconds - since))

    def _fresh(self, fresh: Sequence[_Fresh], missing: dict[str, FolderFile]) -> Iterator[FileChange]:
        hashed: list[_Fresh] = []
        for one in fresh:
            try:
                sha256 = self._content(one)
            except OSError as error:
                yield FileChange(one.source, None, "failed", reason=f"it cannot be read: {error.strerror}")
                continue
            if sha256:
                hashed.append(replace(one, sha256=sha256))
            else:
                yield self._later(one)
        self._wanted = {one.sha256 for one in hashed}
        for one in hashed:
            yield self._one(one, missing)

    def _content(self, one: _Fresh) -> str:
        """The hash of the file's content; "" if it is being written."""
        path = self._root / one.source
        if stamp_of(path) != one.stamp:
            return ""
        sha256 = sha256_of(path)
        return sha256 if stamp_of(path) == one.stamp else ""

    def _later(self, one: _Fresh) -> FileChange:
        document_id = one.known.document_id if one.known else None
        return FileChange(one.source, document_id, "later", reason="it is still being written")

    def _one(self, one: _Fresh, missing: dict[str, FolderFile]) -> FileChange:
        file = one.known
        if file is not None and file.content_sha256 == one.sha256 and file.document_id is not None:
            self._drop_next(file)
            self._put(FolderFile(one.source, file.document_id, one.sha256, one.stamp))
            return FileChange(one.source, file.document_id, "same")
        if file is not None and file.content_sha256 == one.sha256 and not (self._options.again or file.error):
            self._put(FolderFile(one.source, None, one.sha256, one.stamp))
            return FileChange(one.source, None, "skipped", reason=DELETED_BY_HAND)
        before = missing.pop(one.sha256, None)
        if before is not None and before.next_document_id is None:
            return self._moved(one, before)
        return self._new_content(one)

    def _moved(self, one: _Fresh, before: FolderFile) -> FileChange:
        if one.known is not None and one.known.document_id is not None and one.known.content_sha256 not in self._wanted:
            self._delete(one.known.document_id)
        if one.known is not None:
            self._drop_next(one.known)
        self._put(FolderFile(one.source, before.document_id, one.sha256, one.stamp), instead_of=before.source)
        return FileChange(one.source, before.document_id, "moved", previous=before.source)

    def _rename(self, document: Document, source: str) -> None:
        """After its file, which moved, also while it was read. A title that was the name of the file follows it."""
        self._catalogue.change_source(document.id, source)
        stem = PurePosixPath(source).stem
        if document.title == PurePosixPath(document.source).stem != stem:
            self._documents.rename(document.id, stem)

    def _new_content(self, one: _Fresh) -> FileChange:
        file = one.known or FolderFile(one.source)
        if file.next_sha256 != one.sha256:
            self._drop_next(file)
            file = replace(file, next_document_id=None)
        reading = replace(file, next_sha256=one.sha256, next_stamp=one.stamp, error="")
        try:
            job = self._mine.submit(
                self._root / one.source,
                collection=self._collection_for(file),
                source=one.source,
                content_sha256=one.sha256,
                of_folder=(self._folder.id, reading),
            )
        except FileChanged:
            return self._later(one)
        except (ExtractError, InvalidRequest) as error:
            return self._failed(reading, str(error))
        file = replace(reading, next_document_id=job.document_id)
        if job.active and self._read is not None:
            job = self._read(job)
        if job.active:
            return FileChange(one.source, job.document_id, "reading")
        if job.state != "done":
            return self._failed(file, job.error or job.note)
        change = self._complete(file)
        return replace(change, reason=ALREADY_STORED) if job.note.startswith(ALREADY_STORED) else change

    def _collection_for(self, file: FolderFile) -> str | None:
        """A new reading goes where the document before it is now."""
        if file.document_id is None:
            return self._folder.collection
        collection_id = self._catalogue.document(file.document_id).collection_id
        names = {one.id: one.name for one in self._catalogue.collections()}
        return names.get(collection_id or "")

    def _complete(self, file: FolderFile) -> FileChange:
        """The new reading takes the place of the old one, which goes first: so a crash in between is noticed."""
        assert file.next_document_id is not None
        change = FileChange(file.source, file.next_document_id, "changed" if file.document_id else "added")
        if file.document_id not in (None, file.next_document_id):
            if file.content_sha256 in self._wanted:
                self._waiting.append(file)
                return change
            self._catalogue.hand_over(file.document_id or "", file.next_document_id)
            self._delete(file.document_id or "")
        self._put(FolderFile(file.source, file.next_document_id, file.next_sha256, file.next_stamp))
        return change

    def _failed(self, file: FolderFile, reason: str) -> FileChange:
        """What was read before stays; of the attempt nothing is left but its reason."""
        self._drop_next(file)
        self._put(replace(file, next_document_id=None, error=reason or "it could not be read"))
        return FileChange(file.source, file.document_id, "failed", reason=reason)

    # Documents that go

    def _removed(self, file: FolderFile) -> FileChange:
        kept = self._folder.removed == "keep"
        if not kept:
            for document_id in {file.document_id, file.next_document_id} - {None}:
                assert document_id is not None
                self._delete(document_id, throw_away=self._folder.removed == "trash")
        self._catalogue.forget_folder_file(self._folder.id, file.source)
        what = {"keep": "its document stays", "trash": "its document is in the trash", "delete": ""}
        reason = what[self._folder.removed] if file.document_id else ""
        return FileChange(file.source, file.document_id, "removed", reason=reason)

    def _drop_next(self, file: FolderFile) -> None:
        """Delete a reading that is not wanted any more."""
        if file.next_document_id is not None and file.next_document_id != file.document_id:
            self._delete(file.next_document_id)

    def _delete(self, document_id: str, *, throw_away: bool = False) -> None:
        """Unless another file has the same content. `throw_away`: what was ready goes to the trash, as a bundle which
        can be imported until the trash is emptied."""
        if self._catalogue.num_files_of(document_id) <= 1:
            document = self._catalogue.document(document_id)
            if throw_away and document.state == "ready":
                name = f"{PurePosixPath(document.source).name[:100]}.cairn"
                into = Trash(self._workspace.home).place_for(name)
                export_bundle(self._workspace, self._catalogue, [document], into)
            self._documents.delete([document_id])

    def _put(self, file: FolderFile, *, instead_of: str | None = None) -> None:
        self._catalogue.put_folder_file(self._folder.id, file, instead_of=instead_of)
