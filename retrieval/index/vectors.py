"""What blocks are about, a vector for each: found by meaning, whatever the words and the language.

A passage encoder (`model.reading.passage_encoder`) gives the text of each block, under the title of its document, one
vector. A question's nearest blocks are proposed as landmarks propose theirs, and every proposed block gains by how near
it is. Vectors are made when a shard is stored, and in the background for what was stored without.

They are kept as codes of a byte a number, which FAISS scans without expanding them: 60 MB and 16 ms for ten million
tokens (float32: 240 MB and 39 ms).

Axes: M blocks with a vector, C blocks asked about, X texts, E width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retrieval.engine.workspace import Workspace
from storage.catalogue import Catalogue
from storage.errors import NotFound as NoRow
from storage.records import Document

if TYPE_CHECKING:
    from model.reading.passage_encoder import PassageEncoder

_BLOCKS_AT_ONCE = 16
"""A question waits for at most so many."""
_SHARDS_AT_ONCE = 64
MOST_AT_ONCE = 256
"""Blocks of a document that has new vectors as soon as it has a new title, which takes up to 5 s on two cores."""
STEPS, ZERO = 508, 128
"""Steps in 1, and the code of 0: the largest of 8 million numbers was 0.18, a code reaches to 0.25."""


def index_vectors(
    workspace: Workspace, document_id: str | None = None, *, go_on: Callable[[], bool] = lambda: True
) -> int:
    """Make the vectors of all shards that have none, or of one document's, as long as `go_on`; then questions see them.
    Returns for how many shards. Questions go first. Without effect where the checkpoint has no passage encoder."""
    encoder = workspace.loaded(any_memory=True).encoder
    if encoder is None:
        return 0
    catalogue, indexed = workspace.catalogue, 0
    try:
        while shards := catalogue.shards_without_vectors(
            encoder=encoder.digest, document_id=document_id, most=_SHARDS_AT_ONCE
        ):
            for shard_id, of_document, title in shards:
                vectors = ShardVectors(workspace, title)
                for text in _texts_of(catalogue, shard_id, of_document):
                    if not go_on():
                        return indexed
                    vectors.add(text)
                vectors.store(shard_id)
                indexed += 1
    finally:
        if indexed:
            catalogue.show_vectors()
    return indexed


class ShardVectors:
    """Those of one shard, made as its blocks come: under the title of its document. Without effect where the checkpoint
    has no passage encoder."""

    def __init__(self, workspace: Workspace, title: str) -> None:
        self._workspace, self._title = workspace, title
        self._encoder = workspace.loaded(any_memory=True).encoder
        self._texts: list[str] = []
        self._made: list[Tensor] = []

    def add(self, text: str) -> None:
        """The text of the next block. Takes its own slots at the model."""
        self._texts.append(f"{self._title}\n{text}")
        if len(self._texts) == _BLOCKS_AT_ONCE:
            self._make()

    def _make(self) -> None:
        if self._encoder is not None and self._texts:
            with self._workspace.scheduler.for_ingestion():
                self._made.append(self._encoder.passages(self._texts))
        self._texts = []

    def store(self, shard_id: int) -> None:
        self._make()
        if (encoder := self._encoder) is not None:
            codes_XE = _codes(torch.cat([torch.zeros(0, encoder.width), *self._made]))
            self._workspace.catalogue.put_vectors(
                shard_id, codes_XE.tobytes(), encoder=encoder.digest, title=self._title
            )


def take_title(workspace: Workspace, document: Document) -> None:
    """Make the vectors of a small document anew, with its title; those of a larger one when a server next opens the
    library."""
    if document.num_blocks <= MOST_AT_ONCE:
        index_vectors(workspace, document.id)


def _texts_of(catalogue: Catalogue, shard_id: int, document_id: str) -> list[str]:
    rows = catalogue.blocks_of_shard(shard_id)
    try:
        text = catalogue.extracted_text(document_id).text
    except NoRow:  # it was deleted meanwhile
        return []
    return [text[row.start : row.end] for row in rows]


def _codes(vectors_XE: Tensor) -> NDArray[np.uint8]:
    """codes_XE: steps of 1 / STEPS, and ZERO for 0."""
    steps_XE = (vectors_XE * STEPS).round().clamp(1 - ZERO, ZERO - 1)
    return (steps_XE + ZERO).to(torch.uint8).numpy()


@dataclass(frozen=True, eq=False)
class BlockVectors:
    """Of all blocks that have one. `ids_M`: their ids, ascending, in the order of the index."""

    ids_M: NDArray[np.int64]
    index: faiss.IndexScalarQuantizer

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of each block in the index; -1 for one without a vector."""
        if not len(self.ids_M):
            return np.full(len(ids), -1)
        rows = np.searchsorted(self.ids_M, ids).clip(max=len(self.ids_M) - 1)
        return np.where(self.ids_M[rows] == ids, rows, -1)

    def nearest(self, question_E: Tensor, rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """The rows, of some, whose vectors are nearest, nearest first; `count` of them, or fewer."""
        allowed = None
        if len(rows) < len(self.ids_M):
            allowed = faiss.SearchParameters(sel=faiss.IDSelectorBatch(rows))  # type: ignore[call-arg]
        _, found = self.index.search(question_E[None].numpy(), count, params=allowed)
        return np.asarray(found[0][found[0] >= 0])

    def cosines(self, question_E: Tensor, rows_C: NDArray[np.int64]) -> Tensor:
        """cosines_C (float32) with a question; of one without a vector, the mean of the others."""
        known_C = torch.from_numpy(rows_C >= 0)
        cosine_C = torch.zeros(len(rows_C))
        if known_C.any():
            steps_XE = torch.from_numpy(self.index.reconstruct_batch(rows_C[rows_C >= 0]))
            cosine_C[known_C] = steps_XE @ question_E / STEPS
            cosine_C[~known_C] = cosine_C[known_C].mean()
        return cosine_C


class VectorIndex:
    """Keeps the vectors of a library in memory. Not thread-safe."""

    def __init__(self) -> None:
        self._shards: dict[int, tuple[int, str]] = {}  # those held: first block, and title
        self._vectors: BlockVectors | None = None

    @property
    def size_bytes(self) -> int:
        return 0 if self._vectors is None else self._vectors.index.codes.size()

    def current(self, catalogue: Catalogue, encoder: PassageEncoder) -> BlockVectors:
        """As the catalogue has them now."""
        there, old = catalogue.vectors_held(encoder=encoder.digest), self._vectors
        if old is not None and there == self._shards:
            return old
        kept = {shard_id for shard_id, shard in self._shards.items() if there.get(shard_id) == shard}
        stored = catalogue.vectors([shard_id for shard_id in there if shard_id not in kept], encoder=encoder.digest)
        ids, codes = [np.zeros(0, np.int64)], [np.zeros((0, encoder.width), np.uint8)]
        for shard_id, each in stored.items():
            codes.append(np.frombuffer(each, np.uint8).reshape(-1, encoder.width))
            ids.append(np.arange(len(codes[-1])) + there[shard_id][0])
        if old is not None and kept:
            starts_S = np.sort([first for first, _ in self._shards.values()])
            start_M = starts_S[np.searchsorted(starts_S, old.ids_M, "right") - 1]
            kept_M = np.isin(start_M, [self._shards[shard_id][0] for shard_id in kept])
            ids.append(old.ids_M[kept_M])
            codes.append(faiss.vector_to_array(old.index.codes).reshape(-1, encoder.width)[kept_M])
        ids_M = np.concatenate(ids)
        order_M = np.argsort(ids_M)
        index = faiss.IndexScalarQuantizer(
            encoder.width, faiss.ScalarQuantizer.QT_8bit_direct_signed, faiss.METRIC_INNER_PRODUCT
        )
        index.add_sa_codes(np.concatenate(codes)[order_M], None)
        self._vectors = BlockVectors(ids_M[order_M], index)
        self._shards = {shard_id: shard for shard_id, shard in there.items() if shard_id in kept or shard_id in stored}
        return self._vectors
