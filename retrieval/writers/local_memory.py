"""A local writer's memory of passages on disk: keys and values of segments, kept until room is needed.

writer/<start of the fingerprint>/<document>/<digest of the segment's tokens>.kv

- The files are those of the library's memory (docs/kv-file-format.md), in blocks of 64 tokens; the landmark's row is
  empty. Durable before they have their name, and checked when they are read.
- There is no catalogue: a file's name tells its contents, and a missing or damaged one is computed again from its text.
- One budget for all writers: the least recently used segments are removed. So are those of a deleted document.

Axes: N blocks, Y layers, G KV heads, T tokens, L rows of a block, D head dim.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from model.inference.stored_prefix import StoredSegment
from retrieval.engine.workspace import WRITER_FOLDER
from storage.blobs.files import TEMPORARY
from storage.errors import CannotWrite, DamagedMemory, ForeignShard, MissingShard
from storage.fingerprint import MemoryFingerprint
from storage.kv.format import KVLayout
from storage.kv.store import SUFFIX, KVBlockStore

if TYPE_CHECKING:
    from model.checkpoint.chat_model import ChatModel

DEFAULT_BUDGET_BYTES = 10_000_000_000
WEIGHTS = "writer-weights.json"
"""File in a library's home that keeps the digest of a writer's weights."""


def files_below(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """All files in a folder, those being written included."""
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            with contextlib.suppress(FileNotFoundError):
                found.append((path, path.stat()))
    return found


logger = logging.getLogger(__name__)

TOKENS_PER_BLOCK = 64
# A file that is still being written is younger than this.
_UNFINISHED_SECONDS = 3600.0


class WriterMemory:
    """Segments of one writer. Thread-safe; several processes may share the folder.

    `budget_bytes`: of all writers in `home`; 0 keeps nothing. Numbers have 16 bits: bfloat16 as it was computed, or
    float16, which loses least of float32.
    """

    def __init__(self, home: Path, model: ChatModel, budget_bytes: int) -> None:
        dtype = "bf16" if model.dtype == torch.bfloat16 else "fp16"
        layers = tuple(range(model.num_layers))
        self._layout = KVLayout(layers, model.num_kv_heads, TOKENS_PER_BLOCK + 1, model.head_dim, dtype)
        fields = {"kv_dtype": dtype, "format_version": str(self._layout.format_version)}
        self.fingerprint = MemoryFingerprint({**model.identity(home / WEIGHTS), **fields})
        self.budget_bytes = budget_bytes
        self._root = home / WRITER_FOLDER
        self.folder = self._root / self.fingerprint.digest.removeprefix("sha256:")[:16]
        self._store = KVBlockStore(self.folder, self._layout, self.fingerprint.digest)
        self._lock = threading.Lock()

    def as_stored(self, segment: StoredSegment) -> StoredSegment:
        """The segment as it will be read back, so that an answer does not depend on what was stored before it."""
        kept = self._layout.exact_dtype
        assert kept is not None, "a writer's memory is not rounded"
        return StoredSegment(segment.ids, segment.keys_YGTD.to(kept), segment.values_YGTD.to(kept))

    def load(self, document_id: str, ids: Sequence[int]) -> StoredSegment | None:
        """A segment in the store's dtype; None if it is not stored, or not intact any more."""
        name = _name(document_id, ids)
        path = self.folder / name
        blocks = -(-len(ids) // TOKENS_PER_BLOCK)
        try:
            refs = [(name, block) for block in range(blocks)]
            layers = [self._store.read_many(refs, layer) for layer in self._layout.layers]
            used = path.stat()
            os.utime(path, ns=(time.time_ns(), used.st_mtime_ns))  # the order in which segments leave
        except (MissingShard, FileNotFoundError):
            self._store.delete([name])  # closes it, where it was open when it left
            return None
        except (DamagedMemory, ForeignShard) as error:
            logger.warning("a stored passage of the writer is read again from its text: %s", error)
            self._store.delete([name])
            return None
        keys_YGTD, values_YGTD = (torch.stack([_joined(pair[which], len(ids)) for pair in layers]) for which in (0, 1))
        return StoredSegment(tuple(ids), keys_YGTD, values_YGTD)

    def save(self, document_id: str, segment: StoredSegment) -> bool:
        """Store a segment, durable when this returns. False if it is larger than the budget or the disk is full."""
        blocks = -(-len(segment.ids) // TOKENS_PER_BLOCK)
        if blocks * self._layout.block_bytes > self.budget_bytes:
            return False
        lengths_N = torch.full((blocks,), TOKENS_PER_BLOCK)
        lengths_N[-1] = len(segment.ids) - (blocks - 1) * TOKENS_PER_BLOCK
        with self._lock:
            self._make_room(blocks * self._layout.block_bytes)
            try:
                self._store.write(
                    _in_blocks(segment.keys_YGTD, blocks),
                    _in_blocks(segment.values_YGTD, blocks),
                    lengths_N,
                    fixed_name=_name(document_id, segment.ids),
                )
            except CannotWrite as error:
                logger.warning("a passage that the writer read is not kept: %s", error)
                return False
        return True

    def _make_room(self, needed_bytes: int) -> None:
        """Delete the segments used least recently, of any writer, until `needed_bytes` more fit."""
        found = sorted(files_below(self._root), key=lambda file: file[1].st_atime)
        total = sum(state.st_size for _, state in found) + needed_bytes
        for path, state in found:
            abandoned = path.name.startswith(TEMPORARY) and time.time() - state.st_atime > _UNFINISHED_SECONDS
            if abandoned or (total > self.budget_bytes and path.suffix == SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
                total -= state.st_size


def _name(document_id: str, ids: Sequence[int]) -> str:
    """Of a segment's file."""
    return f"{document_id}/{hashlib.sha256(','.join(map(str, ids)).encode()).hexdigest()[:40]}{SUFFIX}"


def _in_blocks(rows_YGTD: Tensor, blocks: int) -> Tensor:
    """rows_NYGLD: padded, with an empty landmark row at the end of each block."""
    padded = nn.functional.pad(rows_YGTD, (0, 0, 0, blocks * TOKENS_PER_BLOCK - rows_YGTD.shape[2]))
    rows_YGNLD = nn.functional.pad(padded.unflatten(2, (blocks, TOKENS_PER_BLOCK)), (0, 0, 0, 1))
    return rows_YGNLD.permute(2, 0, 1, 3, 4)


def _joined(rows_NGLD: Tensor, tokens: int) -> Tensor:
    """rows_GTD of one layer, without landmark rows and padding."""
    return rows_NGLD[:, :, :TOKENS_PER_BLOCK].transpose(0, 1).flatten(1, 2)[:, :tokens]
