"""The mapped file of a library's landmarks: how it is opened, brought up to date, and rewritten.

- `index/landmarks.map` in the home folder, even if memory lies in a bucket: it is a copy, and each machine has its own.
  It may be deleted at any time.
- A file that matches the catalogue's present state is used as it is, and no shard is opened; one of an earlier state is
  completed with the differences; a damaged one, or one of another model, is removed and made again.
- A thread of its own rewrites it from a snapshot once an eighth of the blocks have come or gone.

Axes: N blocks of the snapshot.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from retrieval.engine.workspace import Workspace
from retrieval.index.block_cache import BlockCache
from retrieval.index.landmark_file import Contents, DamagedLandmarkFile, LandmarkFile, write_landmark_file
from retrieval.index.mapped import MappedLandmarkIndex, MappedSnapshot
from retrieval.index.memory_snapshot import MemorySnapshot
from retrieval.index.stored_reader import StoredBlocks
from storage.records import BlockRefs

logger = logging.getLogger(__name__)

FEWEST_NEW = 4096
"""A file is written again when this many blocks came or went, or the share below of those in it, if that is more."""
SHARE_NEW = 1 / 8


class HeldShard(NamedTuple):
    """A shard whose landmarks the index holds."""

    name: str
    block_ids: range


def held_shards(file: LandmarkFile) -> Iterator[tuple[int, HeldShard, Tensor]]:
    """Id, name and blocks of each shard in a file, and length_N of its blocks."""
    columns = (file.tables[name].tolist() for name in ("shard_ids", "shard_first", "shard_blocks"))
    length_N = torch.from_numpy(file.tables["length"])
    starts = np.searchsorted(file.tables["ids"], file.tables["shard_first"]).tolist()
    for name, start, id_, first, count in zip(file.shard_names, starts, *columns, strict=True):
        yield id_, HeldShard(name, range(first, first + count)), length_N[start : start + count]


class KeptLandmarks:
    """One library's file. Used with the index's lock held; the thread that writes takes none of it."""

    def __init__(self, workspace: Workspace):
        self._workspace = workspace
        self._path = workspace.home / "index" / "landmarks.map"
        self._file: LandmarkFile | None = None
        self._taken: LandmarkFile | None = None
        self._thread: threading.Thread | None = None
        self._written = threading.Event()
        self._failed = False
        self.is_damaged = False

    @property
    def is_new(self) -> bool:
        """Whether a file was written that is not open yet."""
        return self._written.is_set()

    def open(self) -> LandmarkFile | None:
        """The file, if there is one of this model's memory that is right."""
        self._written.clear()
        try:
            file = LandmarkFile(self._path)
        except FileNotFoundError:
            return None
        except DamagedLandmarkFile as error:
            logger.warning("%s", error)
            self._path.unlink(missing_ok=True)
            return None
        if file.fingerprint != self._workspace.loaded().fingerprint.digest:
            return None
        self._file = self._taken = file
        return file

    def forget(self) -> None:
        """What was opened is not in use any more."""
        self._file, self._taken, self.is_damaged = None, None, False

    def discard(self) -> None:
        """Remove a file that turned out to be damaged."""
        self._path.unlink(missing_ok=True)
        self.is_damaged = True

    def taken(self) -> LandmarkFile | None:
        """The file, the first time that is asked since it was opened."""
        file, self._taken = self._taken, None
        return file

    def snapshot(self, landmarks: MappedSnapshot, cache: BlockCache) -> MemorySnapshot:
        """The memory as the file has it."""
        assert self._file is not None
        tables = self._file.tables
        blocks = StoredBlocks(
            tables["ids"], self._file.shard_names, tables["shard"], tables["row"], torch.from_numpy(tables["length"])
        )
        return MemorySnapshot(landmarks, blocks, self._file.document_ids, tables["document"], tables["ordinal"], cache)

    def keep(self, index: MappedLandmarkIndex, snapshot: MemorySnapshot, refs: BlockRefs, mark: str) -> None:
        """Write the file again in a thread, if enough has changed since."""
        enough = max(FEWEST_NEW, int(SHARE_NEW * index.in_file)) if index.in_file else 1
        if self._failed or index.not_in_file < enough or (self._thread is not None and self._thread.is_alive()):
            return
        contents = self._contents(snapshot, refs)
        self._thread = threading.Thread(target=self._write, args=(contents, mark), name="cairn-landmarks")
        self._thread.start()

    def _contents(self, snapshot: MemorySnapshot, refs: BlockRefs) -> Contents:
        loaded = self._workspace.loaded()
        layers, landmarks, blocks = loaded.layout.layers, snapshot.landmarks, snapshot.blocks

        def rows(start: int, stop: int) -> Tensor:
            positions = torch.arange(start, stop)
            of_layers = [landmarks.landmarks(layer, positions).transpose(0, 1).cpu() for layer in layers]
            return torch.stack(of_layers, 1).flatten(1)

        shards = list(refs.shards.values())
        tables = {
            "ids": blocks.ids_N,
            "shard": blocks.shard_N,
            "row": blocks.row_N,
            "length": blocks.length_N.numpy(),
            "document": snapshot.document_N,
            "ordinal": snapshot.ordinal_N,
            "shard_ids": np.array([shard.id for shard in shards], dtype=np.int64),
            "shard_first": np.array([shard.first_block_id for shard in shards], dtype=np.int64),
            "shard_blocks": np.array([shard.num_blocks for shard in shards], dtype=np.int64),
        }
        numbers = len(layers) * loaded.layout.kv_heads * loaded.layout.head_dim
        return Contents(
            len(blocks.ids_N),
            numbers,
            loaded.layout.landmark_dtype,
            rows,
            tables,
            blocks.shard_names,
            snapshot.document_ids,
        )

    def _write(self, contents: Contents, mark: str) -> None:
        try:
            fingerprint = self._workspace.loaded().fingerprint.digest
            write_landmark_file(self._path, contents, fingerprint=fingerprint, mark=mark)
        except (OSError, DamagedLandmarkFile) as error:
            self._failed = True
            logger.warning("landmarks stay in RAM, because %s could not be written: %s", self._path, error)
        else:
            self._written.set()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
