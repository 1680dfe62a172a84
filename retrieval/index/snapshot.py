"""The part of the memory that stays in RAM: the landmarks of all ready documents, and where each block is stored.

- Loaded at the first question (or in the background), brought up to date by differences: a new document costs its own
  landmarks.
- A question works on a `MemorySnapshot`; files of deleted documents are unlinked only when no snapshot can need them.

Axes: N blocks of ready documents, ascending by block id.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from retrieval.engine.workspace import Workspace
from retrieval.errors import CairnError, DamagedMemory, InvalidRequest
from retrieval.index.block_cache import BlockCache, BlockShape
from retrieval.index.exact import ExactLandmarkIndex, LandmarkIndex, LandmarkSnapshot
from retrieval.index.faiss import FaissLandmarkIndex
from retrieval.index.stored_reader import StoredBlocks, StoredMemoryReader
from retrieval.index.visible_landmarks import VisibleLandmarks
from retrieval.types.records import Scope
from storage.catalogue import Catalogue
from storage.errors import DamagedMemory as DamagedFile
from storage.properties import condition
from storage.records import BlockRefs, Shard

# "auto" changes to FAISS here: an exact scan of this many blocks still takes well under a second
# (benchmarks/speed/landmark_search.py).
AUTO_FAISS_BLOCKS = 500_000
FAISS_FACTORY = "IVF1024,SQ8"
INDEX_KINDS = ("auto", "exact", "faiss")


@dataclass(frozen=True, eq=False)
class MemorySnapshot:
    """All ready documents at one moment."""

    landmarks: LandmarkSnapshot
    blocks: StoredBlocks
    document_ids: tuple[str, ...]
    document_N: np.ndarray
    ordinal_N: np.ndarray
    cache: BlockCache

    @property
    def num_blocks(self) -> int:
        return len(self.blocks.ids_N)

    def positions_of(self, document_ids: Sequence[str]) -> Tensor:
        """Positions of all blocks of some documents, ascending."""
        wanted = set(document_ids)
        numbers = [number for number, document_id in enumerate(self.document_ids) if document_id in wanted]
        return torch.from_numpy(np.flatnonzero(np.isin(self.document_N, numbers)))

    def positions_of_blocks(self, block_ids: Sequence[int]) -> Tensor:
        """Positions of blocks by id, ascending; ids that are gone are left out."""
        return torch.from_numpy(np.flatnonzero(np.isin(self.blocks.ids_N, np.asarray(block_ids, dtype=np.int64))))

    def documents_of(self, positions_C: Tensor) -> list[str]:
        """The document of each block."""
        return [self.document_ids[number] for number in self.document_N[positions_C.numpy()].tolist()]

    def restricted_to(self, document_ids: Collection[str]) -> MemorySnapshot:
        """The snapshot as if there were no other documents than these; positions count the remaining blocks.

        Nothing of another document can be read, ranked or counted, or shift a threshold.
        """
        kept = [number for number, document_id in enumerate(self.document_ids) if document_id in document_ids]
        new_number = np.full(len(self.document_ids), -1, dtype=np.int64)
        new_number[kept] = np.arange(len(kept))
        document_N = new_number[self.document_N]
        visible_M = np.flatnonzero(document_N >= 0)
        return MemorySnapshot(
            landmarks=VisibleLandmarks(self.landmarks, torch.from_numpy(visible_M), self.cache.shape.layers),
            blocks=StoredBlocks(
                ids_N=self.blocks.ids_N[visible_M],
                shard_names=self.blocks.shard_names,
                shard_N=self.blocks.shard_N[visible_M],
                row_N=self.blocks.row_N[visible_M],
                length_N=self.blocks.length_N[torch.from_numpy(visible_M)],
            ),
            document_ids=tuple(self.document_ids[number] for number in kept),
            document_N=document_N[visible_M],
            ordinal_N=self.ordinal_N[visible_M],
            cache=self.cache,
        )

    def reader(self, positions: Tensor | None = None) -> StoredMemoryReader:
        return StoredMemoryReader(self.landmarks, self.blocks, self.cache, positions)

    def token_keys(self, positions_C: Tensor) -> tuple[list[Tensor], Tensor]:
        """keys_CGLD of each layer that search weighs, and lengths_C (ordinary tokens), of distinct blocks.

        Raises `storage.errors.DamagedMemory`.
        """
        numbers = positions_C.numpy()
        ids, refs = self.blocks.ids_N[numbers], self.blocks.refs(numbers)
        keys_WCGLD = [self.cache.read_keys(layer, ids, refs) for layer in self.cache.key_layers]
        return keys_WCGLD, self.blocks.length_N[positions_C]


class MemoryIndex:
    """Keeps the snapshot up to date with the catalogue. Thread-safe."""

    def __init__(self, workspace: Workspace, *, index: str, hot_bytes: int, faiss_factory: str = FAISS_FACTORY):
        if index not in INDEX_KINDS:
            raise InvalidRequest(f"The index is one of {', '.join(INDEX_KINDS)}, not {index!r}.")
        self._workspace, self._kind, self._hot_bytes = workspace, index, hot_bytes
        self._faiss_factory = faiss_factory
        self._lock = threading.Lock()
        self._index: LandmarkIndex | None = None
        self._cache: BlockCache | None = None
        self._shards: dict[int, Shard] = {}  # by shard id: what the index holds
        self._lengths: dict[int, Tensor] = {}
        self._snapshot: MemorySnapshot | None = None
        self._version: int | None = None
        self._readers = 0
        self._when_unread: list[Callable[[], object]] = []

    @property
    def kind(self) -> str:
        """The kind of index in use now."""
        return "exact" if self._index is None else self._index.kind

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in (self._index, self._cache) if part is not None)

    @contextmanager
    def open_snapshot(self, catalogue: Catalogue) -> Iterator[MemorySnapshot]:
        """The memory as it is now, of the documents that the catalogue's principal may read.

        Stays readable until the block is left, whatever is deleted meanwhile.
        """
        readable = None if catalogue.principal.is_administrator else catalogue.document_ids()
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
            self._readers += 1
        try:
            yield snapshot if readable is None else snapshot.restricted_to(readable)
        finally:
            with self._lock:
                self._readers -= 1
                due, self._when_unread = (self._when_unread, []) if self._readers == 0 else ([], self._when_unread)
            for action in due:
                action()

    def when_unread(self, action: Callable[[], object]) -> None:
        """Run `action` (removing files) as soon as no open snapshot can need them; now, if there is none."""
        with self._lock:
            if self._readers:
                self._when_unread.append(action)
                return
        action()

    def forget_shards(self, names: Sequence[str]) -> None:
        """These files changed or vanished: read them anew with the next snapshot."""
        with self._lock:
            gone = [shard for shard in self._shards.values() if shard.name in set(names)]
            self._drop(gone)
            self._version = None

    def _current(self) -> MemorySnapshot:
        """Called with the lock held."""
        version = self._workspace.catalogue.memory_version()
        if self._snapshot is None or version != self._version:
            self._update()
            self._version = version
        assert self._snapshot is not None
        return self._snapshot

    def _update(self) -> None:
        loaded = self._workspace.loaded()
        refs = self._workspace.catalogue.all_block_refs(fingerprint=loaded.fingerprint.digest)
        if self._cache is None:
            layout, model = loaded.layout, loaded.model
            shape = BlockShape(
                layout.layers, layout.kv_heads, layout.block_size, layout.head_dim, model.dtype, model.device
            )
            self._cache = BlockCache(
                loaded.store,
                shape,
                self._hot_bytes,
                # Keys alone are read where tokens decide; elsewhere all the memory is for keys and values.
                key_layers=model.searched_layers
                if model.config.ranks_by_tokens or model.config.quotes_sentences
                else (),
                key_dtype=layout.landmark_dtype,
            )
        if self._index is None or (self._kind == "auto" and self.kind == "exact" and len(refs) > AUTO_FAISS_BLOCKS):
            self._new_index(faiss=self._kind == "faiss" or (self._kind == "auto" and len(refs) > AUTO_FAISS_BLOCKS))
        present = {shard_id: shard.name for shard_id, shard in self._shards.items()}
        self._drop([s for s in self._shards.values() if getattr(refs.shards.get(s.id), "name", None) != s.name])
        self._add([shard for shard in refs.shards.values() if present.get(shard.id) != shard.name])
        self._snapshot = self._make_snapshot(refs)

    def _new_index(self, *, faiss: bool) -> None:
        layout, model = self._workspace.loaded().layout, self._workspace.loaded().model
        self._shards, self._lengths = {}, {}
        shape = (layout.layers, layout.kv_heads, layout.head_dim)
        if faiss:
            self._index = FaissLandmarkIndex(
                *shape, factory=self._faiss_factory, dtype=model.dtype, device=model.device
            )
        else:
            self._index = ExactLandmarkIndex(*shape, dtype=model.dtype, device=model.device)

    def _drop(self, shards: Sequence[Shard]) -> None:
        if not shards:
            return
        assert self._index is not None and self._cache is not None
        ids = np.concatenate([np.arange(shard.block_ids.start, shard.block_ids.stop) for shard in shards])
        self._index.remove(ids)
        self._cache.forget(ids.tolist())
        for shard in shards:
            del self._shards[shard.id], self._lengths[shard.id]

    def _add(self, shards: Sequence[Shard]) -> None:
        if not shards:
            return
        assert self._index is not None
        store = self._workspace.loaded().store
        shards = sorted(shards, key=lambda shard: shard.first_block_id)
        try:
            store.expect([shard.name for shard in shards])
            landmarks = torch.cat([store.landmarks(shard.name) for shard in shards])
            lengths = [store.lengths(shard.name) for shard in shards]
        except DamagedFile as error:
            raise self.damaged(error) from error
        self._index.add(np.concatenate([np.arange(s.block_ids.start, s.block_ids.stop) for s in shards]), landmarks)
        for shard, length_N in zip(shards, lengths, strict=True):
            self._shards[shard.id], self._lengths[shard.id] = shard, length_N

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
        lengths = [self._lengths[shard.id] for shard in shards]
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


def scope_positions(workspace: Workspace, snapshot: MemorySnapshot, scope: Scope | None) -> Tensor | None:
    """Positions in scope, ascending; None for everything. Raises `NotFound` for unknown documents and collections."""
    if scope is None or scope == Scope():
        return None
    return snapshot.positions_of(list(scope_documents(workspace.catalogue, scope)))


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
