"""Import: documents out of the file of a bundle, without being read again.

- The whole file is checked before anything is changed: hashes, sizes, rows against text, memory against model.
- Each document is imported at once: files first, then all of its rows in one transaction. After a crash the same
  command goes on: it recognises imported documents by their content.
- The memory of another model is of no use here: such a bundle is refused, or its originals are read.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np

from retrieval.bundles.exporting import export_bundle
from retrieval.documents import Documents
from retrieval.engine.workspace import LoadedModel, Workspace
from retrieval.errors import CairnError, ForeignBundle, catalogue_errors
from retrieval.extraction.formats import FORMATS, OLDER
from retrieval.ingest.file_store import check_store_space, keep_arrived
from retrieval.jobs import Jobs
from retrieval.types.records import Exported, ImportedDocument, Job
from retrieval.view import View
from storage.bundle import BundledRows, BundleReader, unpacked
from storage.catalogue.collections import checked_name
from storage.errors import DamagedMemory, ForeignShard
from storage.fingerprint import MemoryFingerprint
from storage.kv.lock import require_fresh, uptime, writing
from storage.kv.whole_shards import renamed
from storage.names import TURNING, clean_name
from storage.records import NewDocument, ShardFile
from storage.recovery import write_sidecar

_MOST_TEXT_BYTES, _MOST_SHARD_BYTES = 64 << 20, 1 << 30
_SMALL_ROWS_BYTES, _ROWS_PART = 1 << 20, 4  # rows take much memory while they are checked; most are a tenth of the keys
_KINDS = frozenset(one.kind for one in (*FORMATS, *OLDER))


@dataclass(frozen=True)
class _Checked:
    """A document of the bundle whose rows and text were found right."""

    folder: str
    rows: BundledRows
    text: str

    @property
    def original(self) -> str:
        return f"{self.folder}/original.{self.rows.kind}"

    def shard(self, number: int) -> str:
        return f"{self.folder}/{number}.kv"


class Bundles:
    """Exports documents to bundles and imports them, in the view of one user."""

    def __init__(self, view: View):
        self.view, self._workspace, self._whole = view, view.workspace, view.whole

    @catalogue_errors()
    def export_to(self, path: Path, *, collection_id: str | None = None) -> Exported:
        """Write all documents that the user may read, or those of one collection, to a new file.

        Raises NotFound, InvalidRequest, DamagedMemory, NotEnoughSpace.
        """
        catalogue = self._workspace.catalogue
        if collection_id is not None:
            catalogue.collection(collection_id)
        chosen = catalogue.documents(collection_id=collection_id)
        return export_bundle(self._workspace, self._whole.catalogue, chosen, Path(path))

    def import_from(
        self,
        path: Path,
        *,
        collection: str | None = None,
        reingest: bool = False,
        on_checked: Callable[[int], None] = lambda documents: None,
        run_job: Callable[[Job], Job] | None = None,
    ) -> Iterator[ImportedDocument]:
        """Import every document of a bundle, without reading it again; yields one result each.

        `collection`: for all of them, instead of collections of their old names. `reingest`: read the originals with
        this model (`run_job` does a job). `on_checked` gets the number of documents once the whole file was found
        right. Raises ForeignBundle, InvalidRequest for a name that cannot be used, NotEnoughSpace and
        `storage.bundle.BadBundle`: then nothing was changed.
        """
        with catalogue_errors():
            if collection is not None:
                checked_name(collection)
        with BundleReader(Path(path)) as bundle:
            if reingest:
                yield from self._read_originals(
                    bundle, collection, run_job or (lambda job: Jobs(self.view).run(job.id))
                )
            else:
                with catalogue_errors():
                    yield from self._import(bundle, collection, on_checked)

    def _import(
        self, bundle: BundleReader, collection: str | None, on_checked: Callable[[int], None]
    ) -> Iterator[ImportedDocument]:
        # The model's libraries take seconds to import.
        from retrieval.index.inverted_index import index_terms
        from retrieval.index.vectors import index_vectors

        workspace, folders = self._workspace, _folders(bundle)
        loaded = workspace.loaded()
        if fields := loaded.fingerprint.differences(_fingerprint_of(bundle)):
            raise ForeignBundle(bundle.name, fields)
        for folder in folders:
            _check_whole(bundle, loaded, folder)
        check_store_space(workspace, bundle.name, sum(map(bundle.size, bundle.names())))
        workspace.catalogue.put_fingerprint(loaded.fingerprint)
        on_checked(len(folders))
        for folder in folders:
            imported = _take_in(workspace, loaded, bundle, _rows_of(bundle, loaded, folder), collection)
            if imported.document_id is not None:
                index_terms(self._whole, imported.document_id)
                index_vectors(self._whole, imported.document_id)
            yield imported

    def _read_originals(
        self, bundle: BundleReader, collection: str | None, run: Callable[[Job], Job]
    ) -> Iterator[ImportedDocument]:
        """With the model in use."""
        for folder in _folders(bundle):
            found = _rows_of(bundle, None, folder)
            rows = found.rows
            with tempfile.TemporaryDirectory(dir=self._workspace.home, prefix="import-") as place:
                file = Path(place) / f"original.{rows.kind}"
                with open(file, "wb") as written:
                    written.writelines(bundle.pieces(found.original))
                try:
                    into = collection or rows.collection
                    job = Documents(self.view).submit(file, source=rows.source, collection=into)
                    if job.active:
                        job = run(job)
                except CairnError as error:
                    yield ImportedDocument(rows.source, None, "failed", error=str(error))
                    continue
            status = "failed" if job.state != "done" else "already stored" if job.note else "read again"
            yield ImportedDocument(rows.source, job.document_id, status, job.blocks, job.error)


def _fingerprint_of(bundle: BundleReader) -> MemoryFingerprint:
    """The fingerprint of the model that made the bundle's memory."""
    fields = bundle.manifest.get("fingerprint")
    try:
        return MemoryFingerprint(fields if isinstance(fields, dict) else {})
    except ValueError as error:
        raise bundle.bad(str(error)) from error


def _folders(bundle: BundleReader) -> list[str]:
    listed = bundle.manifest.get("documents")
    if not isinstance(listed, list) or not listed:
        raise bundle.bad("it lists no documents")
    folders = [f"documents/{number}" for number in range(len(listed))]
    if set(folders) != {name.rpartition("/")[0] for name in bundle.names()}:
        raise bundle.bad("it holds other documents than it lists")
    return folders


def _rows_of(bundle: BundleReader, loaded: LoadedModel | None, folder: str) -> _Checked:
    """`loaded` None: only the original will be used."""
    text = bundle.read(f"{folder}/text.txt", most_bytes=_MOST_TEXT_BYTES)
    memory = sum(
        map(bundle.size, (name for name in bundle.names() if name.startswith(f"{folder}/") and name.endswith(".kv")))
    )
    packed = bundle.read(f"{folder}/rows.json", most_bytes=_SMALL_ROWS_BYTES + memory // _ROWS_PART)
    vocabulary = 1 << 32 if loaded is None else int(loaded.model.backbone.config.vocab_size)
    block_tokens = 1 << 20 if loaded is None else loaded.model.config.tokens_per_block
    try:
        decoded = text.decode("utf-8", "surrogatepass").translate(dict.fromkeys(TURNING, " "))  # every place stays
        rows = unpacked(packed, decoded, vocabulary=vocabulary, block_tokens=block_tokens)
    except ValueError as error:
        raise bundle.bad(f"{folder}: {error}") from error
    if rows.kind not in _KINDS:
        raise bundle.bad(f"{folder} is of a kind that this release cannot read ({rows.kind[:16]!r})")
    found = _Checked(folder, rows, decoded)
    bundle.size(found.original)
    return found


def _check_whole(bundle: BundleReader, loaded: LoadedModel, folder: str) -> None:
    """Everything of one document, without keeping it. Raises `BadBundle`."""
    found = _rows_of(bundle, loaded, folder)
    names = {f"{folder}/rows.json", f"{folder}/text.txt", found.original}
    names |= {found.shard(number) for number in range(len(found.rows.shard_blocks))}
    if names != {name for name in bundle.names() if name.rpartition("/")[0] == folder}:
        raise bundle.bad(f"{folder} has other files than it should have")
    hasher = hashlib.sha256()
    for piece in bundle.pieces(found.original):
        hasher.update(piece)
    if hasher.hexdigest() != found.rows.original_sha256:
        raise bundle.bad(f"{folder}: its original is not the file that its rows name")
    _check_title(bundle, loaded, found)
    first = 0
    for number, count in enumerate(found.rows.shard_blocks):
        _, _, lengths = _memory(bundle, loaded, found.shard(number), "check")
        if lengths != [len(tokens) for _, _, tokens, _ in found.rows.blocks[first : first + count]]:
            raise bundle.bad(f"{found.shard(number)} holds other blocks than it should")
        first += count


def _check_title(bundle: BundleReader, loaded: LoadedModel, found: _Checked) -> None:
    try:
        keys = np.frombuffer(found.rows.title_bytes(), "<f2")
    except ValueError as error:
        raise bundle.bad(f"{found.folder}: the keys of its title are damaged") from error
    width = len(loaded.model.searched_layers) * loaded.layout.kv_heads * loaded.layout.head_dim
    if len(keys) % width or not np.isfinite(keys).all():
        raise bundle.bad(f"{found.folder}: the keys of its title are not this model's")


def _memory(bundle: BundleReader, loaded: LoadedModel, member: str, name: str) -> tuple[bytes, bytes, list[int]]:
    """A memory file under another name: its front, its pieces, and the tokens in each block."""
    contents = bundle.read(member, most_bytes=_MOST_SHARD_BYTES)
    try:
        return renamed(contents, name, fingerprint=loaded.fingerprint.digest, layout=loaded.layout)
    except (DamagedMemory, ForeignShard) as error:
        raise bundle.bad(f"{member}: {error}") from error


def _take_in(
    workspace: Workspace, loaded: LoadedModel, bundle: BundleReader, found: _Checked, collection: str | None
) -> ImportedDocument:
    """Files first, then the rows: a crash in between leaves files that `gc` removes."""
    rows, document_id, catalogue = found.rows, uuid4().hex, workspace.catalogue
    digest = loaded.fingerprint.digest
    name = collection or clean_name(rows.collection or "") or None
    known = catalogue.find_document(rows.original_sha256, digest)
    if known is not None:
        return ImportedDocument(rows.source, known.id, "already stored", known.num_blocks)
    stored_file = f"{document_id}.{rows.kind}"
    # What the file was before it was unlocked only the bundle says: believed, a lie would make that file "stored".
    new = NewDocument(document_id, rows.source, rows.title, rows.kind, rows.original_sha256, digest, stored_file)
    with keep_arrived(workspace, bundle.pieces(found.original), stored_file, rows.original_sha256) as keep:
        written: list[ShardFile] = []
        try:
            with writing(workspace.kv_folder):
                began = uptime()
                for number in range(len(rows.shard_blocks)):
                    written.append(_write(loaded, bundle, found.shard(number), document_id))
                require_fresh(began, workspace.blobs.settle_seconds)
                submitted = catalogue.add_imported(new, rows, found.text, written, collection=name)
        except BaseException:
            workspace.store.delete([one.name for one in written])
            raise
        if submitted.already_stored:  # by somebody else meanwhile
            workspace.store.delete([one.name for one in written])
            return ImportedDocument(rows.source, submitted.document.id, "already stored", submitted.document.num_blocks)
        keep()
    write_sidecar(workspace.database, workspace.blobs, document_id)
    return ImportedDocument(rows.source, document_id, "imported", submitted.document.num_blocks)


def _write(loaded: LoadedModel, bundle: BundleReader, member: str, document_id: str) -> ShardFile:
    name = loaded.store.new_name(document_id)
    front, pieces, lengths = _memory(bundle, loaded, member, name)
    return loaded.store.write_encoded(name, front, pieces, len(lengths))
