"""Token ids to blocks of keys and values, and blocks to committed shard files: for ingestion and for repair.

Every shard starts from blocks read back from the store, so it can be made again, bit for bit, at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from model.attention.memory import KVBlock
from model.inference.prefill import prefill
from retrieval.engine.workspace import LoadedModel, Workspace
from storage.errors import CannotWrite, LeaseLost
from storage.errors import NotFound as NoRow
from storage.kv.lock import require_fresh, uptime, writing
from storage.records import Shard, ShardFile
from storage.recovery import write_sidecar

Committed = TypeVar("Committed")


def make_blocks(
    workspace: Workspace, loaded: LoadedModel, document_id: str, first: int, ids: Sequence[int]
) -> Iterator[KVBlock]:
    """The blocks of a document from block `first` on, made of these token ids and of the stored blocks before them.

    Each window takes a turn at the model, in which questions go first between two layers.
    """
    count = min(first, loaded.model.config.context_blocks)
    recent = stored_blocks_before(loaded, workspace.catalogue.shards(document_id), first, count)
    yield_turn = workspace.scheduler.yield_to_queries
    blocks = prefill(loaded.model, ids, recent=recent, kv_dtype=loaded.prefill_dtype, between_layers=yield_turn)
    while True:
        with workspace.scheduler.for_ingestion():
            block = next(blocks, None)
        if block is None:
            return
        yield block


def store_shard(
    loaded: LoadedModel, blocks: Sequence[KVBlock], document_id: str, commit: Callable[[ShardFile], Committed]
) -> Committed:
    """Write a shard file and commit it, under the lock that keeps it from being collected as garbage in between.

    The file is removed again if what it was made for is gone (`NoRow`), or another worker makes it (`LeaseLost`).
    """
    with writing(loaded.store.folder):
        began = uptime()
        shard = loaded.store.write(
            torch.stack([block.keys_YGLD for block in blocks]),
            torch.stack([block.values_YGLD for block in blocks]),
            torch.tensor([block.num_tokens for block in blocks]),
            group=document_id,
        )
        try:
            require_fresh(began, loaded.store.blobs.settle_seconds)
            return commit(shard)
        except (NoRow, LeaseLost, CannotWrite):
            loaded.store.delete([shard.name])
            raise


def stored_blocks_before(loaded: LoadedModel, shards: Sequence[Shard], first: int, count: int) -> list[KVBlock]:
    """The `count` blocks of a document before block `first`, read back from the store."""
    if not count:
        return []
    refs = []
    for ordinal in range(first - count, first):
        shard = next(s for s in shards if s.first_ordinal <= ordinal < s.first_ordinal + s.num_blocks)
        refs.append((shard.name, ordinal - shard.first_ordinal))
    by_layer = [loaded.store.read_many(refs, layer) for layer in loaded.layout.layers]
    keys_YNGLD = torch.stack([keys for keys, _ in by_layer])
    values_YNGLD = torch.stack([values for _, values in by_layer])
    full = loaded.model.config.tokens_per_block  # only a document's last block is short, and nothing follows it
    return [KVBlock(keys_YNGLD[:, n], values_YNGLD[:, n], full) for n in range(count)]


def rebuild_shard(workspace: Workspace, loaded: LoadedModel, shard: Shard) -> None:
    """Make a damaged shard again from the tokens in the catalogue and the blocks before it, and replace it.

    Raises `NoRow` if the document is gone or somebody else has replaced the shard.
    """
    catalogue = workspace.catalogue
    own = catalogue.blocks_of_document(shard.document_id)[shard.first_ordinal :][: shard.num_blocks]
    if shard not in catalogue.shards(shard.document_id) or len(own) != shard.num_blocks:
        raise NoRow("shard", shard.name)
    ids = np.concatenate([block.tokens for block in own]).tolist()
    blocks = list(make_blocks(workspace, loaded, shard.document_id, shard.first_ordinal, ids))
    copy_rows = partial(write_sidecar, workspace.database, workspace.blobs, shard.document_id)

    def commit(made: ShardFile) -> None:
        copy_rows(replaced={shard.name: made})
        try:
            catalogue.replace_shard(shard.name, made)
        except BaseException:
            copy_rows()
            raise

    store_shard(loaded, blocks, shard.document_id, commit)
