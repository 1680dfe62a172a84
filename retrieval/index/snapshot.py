"""The part of the memory that stays in RAM: the landmarks of all ready documents, and where each block is stored.

- Loaded at the first question (or in the background), brought up to date by differences: a new document costs its own
  landmarks.
- A question works on a `MemorySnapshot`; files of deleted documents are unlinked only when no snapshot can need them.

Axes: N blocks of ready documents, ascending by block id.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retrieval.engine.workspace import Workspace
from retrieval.errors import CairnError, DamagedMemory, InvalidRequest
from retrieval.index.blocks import BlockCache, BlockShape, MemorySnapshot, StoredBlocks
from retrieval.index.exact import ExactLandmarkIndex, LandmarkIndex
from retrieval.index.faiss import FaissLandmarkIndex
from retrieval.index.mapped import (
    DamagedLandmarkFile,
    HeldShard,
    LandmarkCache,
    MappedLandmarkIndex,
    held_shards,
    snapshot_of,
)
from retrieval.index.vectors import VectorIndex
from retrieval.types.records import Scope
from storage.catalogue import Catalogue
from storage.errors import DamagedMemory as DamagedFile
from storage.properties import condition
from storage.records import BlockRefs, Shard

# "auto" maps landmarks from here on: below, an exact scan takes less than a twentieth of a question
# (docs/decisions/0048-landmarks-are-mapped.md).
AUTO_MAPPED_BLOCKS = 32_768
FAISS_FACTORY = "IVF1024,SQ8"
INDEX_KINDS = ("auto", "exact", "mapped", "faiss")


class MemoryIndex:
    """Keeps the snapshot up to date with the catalogue. Thread-safe."""

    def __init__(self, workspace: Workspace, *, index: str, block_cache_bytes: int):
        if index not in INDEX_KINDS:
            raise InvalidRequest(f"The index is one of {', '.join(INDEX_KINDS)}, not {index!r}.")
        self._workspace, self._kind, self._block_cache_bytes = workspace, index, block_cache_bytes
        self._lock = threading.Lock()
        self._index: LandmarkIndex | None = None
        self._cache: BlockCache | None = None
        self._shards: dict[int, HeldShard] = {}  # by shard id: what the index holds
        self._landmark_cache = LandmarkCache(workspace)
        self._vectors = VectorIndex()
        self._snapshot: MemorySnapshot | None = None
        self._version: int | None = None
        self._readers: set[object] = set()
        self._when_unread: list[tuple[set[object], Callable[[], object]]] = []  # readers that it waits for

    @property
    def kind(self) -> str:
        """The kind of index in use now."""
        return "exact" if self._index is None else self._index.kind

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in (self._index, self._cache, self._vectors) if part is not None)

    def expected_bytes(self) -> dict[str, int]:
        """RAM that it may come to take: vectors and, as long as they are not mapped from a file, landmarks of a million
        tokens, and recently read blocks. Of their shape nothing is known before the model is loaded."""
        model = self._workspace.model_if_loaded
        expected = {"cached_blocks_bytes_at_most": self._block_cache_bytes}
        if model is not None:
            layout = self._workspace.loaded(any_memory=True).layout
            block_bytes = len(layout.layers) * layout.kv_heads * layout.head_dim * model.dtype.itemsize
            if (encoder := self._workspace.opened.encoder) is not None:
                block_bytes += encoder.width
            expected["bytes_per_million_tokens"] = round(1e6 / model.config.tokens_per_block) * block_bytes
        return expected

    @contextmanager
    def open_snapshot(self, catalogue: Catalogue) -> Iterator[MemorySnapshot]:
        """The memory as it is now, of the documents that the catalogue's principal may read.

        Stays readable until the block is left, whatever is deleted meanwhile.
        """
        readable = None if catalogue.principal.is_administrator else catalogue.document_ids()
        reader = object()
        with self._lock:
            try:
                snapshot = self._current()
            except DamagedMemory as error:
                if readable is None:
                    raise
                # It may be somebody else's document, whose name this user must not learn.
                raise CairnError(
                    "A part of the stored memory is damaged, so no question can be answered. The administrator of this "
                    "server repairs it with `cairn repair`."
                ) from error
            self._readers.add(reader)
        try:
            yield snapshot if readable is None else snapshot.restricted_to(readable)
        finally:
            with self._lock:
                self._readers.remove(reader)
                for waited_for, _ in self._when_unread:
                    waited_for.discard(reader)
                due = [action for waited_for, action in self._when_unread if not waited_for]
                self._when_unread = [(waited_for, action) for waited_for, action in self._when_unread if waited_for]
            for action in due:
                action()

    @contextmanager
    def open_for_question(self, catalogue: Catalogue) -> Iterator[MemorySnapshot]:
        """As `open_snapshot`; ingestion waits meanwhile."""
        with self._workspace.scheduler.question_open(), self.open_snapshot(catalogue) as snapshot:
            yield snapshot

    def when_unread(self, action: Callable[[], object]) -> None:
        """Run `action`, which removes files that no row names any more, once all snapshots that are open now are
        closed, or at once. Later snapshots do not know these files."""
        with self._lock:
            if self._readers:
                self._when_unread.append((set(self._readers), action))
                return
        action()

    def forget_shards(self, names: Sequence[str]) -> None:
        """These files changed or vanished: read them anew with the next snapshot."""
        with self._lock:
            gone = set(names)
            self._drop([id_ for id_, shard in self._shards.items() if shard.name in gone])
            self._version = None

    def make_again(self) -> None:
        """The file of landmarks is damaged: the next snapshot is made of what is stored."""
        with self._lock:
            self._landmark_cache.discard()
            self._index, self._snapshot, self._shards = None, None, {}

    def close(self) -> None:
        """Wait for a file of landmarks that is being written."""
        self._landmark_cache.close()

    def _current(self) -> MemorySnapshot:
        """Called with the lock held."""
        version = self._workspace.catalogue.memory_version()
        if self._snapshot is None or version != self._version or self._landmark_cache.is_new:
            self._update()
            assert self._snapshot is not None
            if (encoder := self._workspace.opened.encoder) is not None:
                vectors = self._vectors.current(self._workspace.catalogue, encoder)
                self._snapshot = replace(self._snapshot, vectors=vectors)
            self._version = version
        assert self._snapshot is not None
        return self._snapshot

    def _update(self) -> None:
        loaded = self._workspace.loaded()
        if self._cache is None:
            self._cache = self._new_cache()
        if self._landmark_cache.is_new:
            self._index, self._shards = None, {}
        mark = self._workspace.catalogue.memory_mark()  # before the rows: what comes in between is seen the next time
        if (
            self._index is None
            and self._kind in ("auto", "mapped")
            and (file := self._landmark_cache.open()) is not None
        ):
            self._index = MappedLandmarkIndex(*self._shape, file=file, dtype=loaded.model.dtype)
            self._shards = held_shards(file)
            if file.mark == mark:  # nothing of the catalogue needs to be read
                self._snapshot = snapshot_of(file, self._index.snapshot(), self._cache)
                return
        refs = self._workspace.catalogue.all_block_refs(fingerprint=loaded.fingerprint.digest)
        if self._index is None or (self._kind == "auto" and self.kind == "exact" and len(refs) > AUTO_MAPPED_BLOCKS):
            self._new_index(len(refs))
        names = {id_: shard.name for id_, shard in refs.shards.items()}
        self._drop([id_ for id_, held in self._shards.items() if names.get(id_) != held.name])
        self._add([shard for shard in refs.shards.values() if shard.id not in self._shards])
        self._snapshot = self._make_snapshot(refs)
        if isinstance(self._index, MappedLandmarkIndex):
            self._landmark_cache.keep(self._index, self._snapshot, refs, mark)

    @property
    def _shape(self) -> tuple[tuple[int, ...], int, int]:
        layout = self._workspace.loaded().layout
        return layout.layers, layout.kv_heads, layout.head_dim

    def _new_cache(self) -> BlockCache:
        loaded = self._workspace.loaded()
        layout, model = loaded.layout, loaded.model
        return BlockCache(
            loaded.store,
            BlockShape(layout.layers, layout.kv_heads, layout.block_size, layout.head_dim, model.dtype, model.device),
            self._block_cache_bytes,
            # Keys alone are read where tokens decide; elsewhere all the memory is for keys and values.
            key_layers=model.searched_layers if model.config.ranks_by_tokens or model.config.quotes_sentences else (),
            key_dtype=layout.landmark_dtype,
        )

    def _new_index(self, num_blocks: int) -> None:
        model = self._workspace.loaded().model
        self._shards = {}
        kind = self._kind
        if kind == "auto":
            kind = "mapped" if num_blocks > AUTO_MAPPED_BLOCKS else "exact"
        where: dict[str, Any] = {"dtype": model.dtype, "device": model.device}
        if kind == "faiss":
            self._index = FaissLandmarkIndex(*self._shape, factory=FAISS_FACTORY, **where)
        else:
            self._index = (MappedLandmarkIndex if kind == "mapped" else ExactLandmarkIndex)(*self._shape, **where)

    def _drop(self, shard_ids: Sequence[int]) -> None:
        if not shard_ids:
            return
        assert self._index is not None and self._cache is not None
        held = [self._shards[id_].block_ids for id_ in shard_ids]
        ids = np.concatenate([np.arange(block_ids.start, block_ids.stop) for block_ids in held])
        self._index.remove(ids)
        self._cache.forget(ids.tolist())
        for id_ in shard_ids:
            del self._shards[id_]

    def _add(self, shards: Sequence[Shard]) -> None:
        if not shards:
            return
        assert self._index is not None
        store = self._workspace.loaded().store
        shards = sorted(shards, key=lambda shard: shard.first_block_id)
        try:
            store.blobs.prefetch([shard.name for shard in shards])
            landmarks = torch.cat([store.landmarks(shard.name) for shard in shards])
            lengths = [store.lengths(shard.name) for shard in shards]
        except DamagedFile as error:
            raise self.damaged(error) from error
        self._index.add(np.concatenate([np.arange(s.block_ids.start, s.block_ids.stop) for s in shards]), landmarks)
        for shard, length_N in zip(shards, lengths, strict=True):
            self._shards[shard.id] = HeldShard(shard.name, shard.block_ids, length_N)

    def damaged(self, error: DamagedFile) -> DamagedMemory:
        """The package's error, naming the document, for one that names a file."""
        document_id = error.shard.split("/")[0]
        known = {document.id: document.source for document in self._workspace.catalogue.documents()}
        return DamagedMemory(known.get(document_id, document_id), str(error.damage))

    def _make_snapshot(self, refs: BlockRefs) -> MemorySnapshot:
        assert self._index is not None and self._cache is not None
        shards = list(refs.shards.values())
        number = {shard.id: index for index, shard in enumerate(shards)}
        documents = list(dict.fromkeys(shard.document_id for shard in shards))
        document_number = {document_id: index for index, document_id in enumerate(documents)}
        shard_N = np.array([number[shard_id] for shard_id in refs.shard_ids.tolist()], dtype=np.int64)
        document_of_shard = np.array([document_number[shard.document_id] for shard in shards], dtype=np.int64)
        first_ordinal = np.array([shard.first_ordinal for shard in shards], dtype=np.int64)
        assert np.array_equal(self._index.ids, refs.block_ids), "index and catalogue agree on the blocks"
        lengths = [self._shards[shard.id].length_N for shard in shards]
        blocks = StoredBlocks(
            refs.block_ids,
            tuple(shard.name for shard in shards),
            shard_N,
            refs.indices.astype(np.int64),
            torch.cat(lengths) if lengths else torch.zeros(0, dtype=torch.int64),
        )
        return MemorySnapshot(
            self._index.snapshot(),
            blocks,
            tuple(documents),
            document_of_shard[shard_N] if len(shards) else shard_N,
            (first_ordinal[shard_N] if len(shards) else shard_N) + refs.indices,
            self._cache,
        )


@contextmanager
def naming_damage(index: MemoryIndex) -> Iterator[None]:
    """Errors that name a damaged file come out as the package's, naming the document."""
    try:
        yield
    except DamagedFile as error:
        raise index.damaged(error) from error
    except DamagedLandmarkFile:
        index.make_again()
        raise


def scope_indices(
    workspace: Workspace, snapshot: MemorySnapshot, scope: Scope | None, without: Sequence[int] = ()
) -> Tensor | None:
    """Indices in scope, ascending; None for everything. `without`: ids of blocks that are left out. Raises `NotFound`
    for unknown documents and collections."""
    within = None
    if scope is not None and scope != Scope():
        within = snapshot.indices_of(list(scope_documents(workspace.catalogue, scope)))
    if not without:
        return within
    within = torch.arange(snapshot.num_blocks) if within is None else within
    return within[~torch.isin(within, snapshot.indices_of_blocks(list(without)))]


def scope_documents(catalogue: Catalogue, scope: Scope) -> set[str]:
    """Ids of the documents in a scope. Raises `NotFound` for unknown ones, `ValueError` for what is no condition."""
    conditions = [condition(text) for text in scope.where]
    if not (scope.document_ids or scope.collection_ids):
        return catalogue.documents_where(conditions)
    ids = list(scope.document_ids)
    for document_id in scope.document_ids:
        catalogue.document(document_id)
    for collection_id in scope.collection_ids:
        catalogue.collection(collection_id)
        ids += [document.id for document in catalogue.documents(collection_id=collection_id)]
    return set(ids) & catalogue.documents_where(conditions) if conditions else set(ids)
