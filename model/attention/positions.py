"""How a block gets its position: keys are stored before rotation and rotated to a slot when they are read.

Position schemes (docs/landmark-attention.md, section 5), in slots of one block each. The local window starts at
`SelectionPolicy.local_slot`, behind the slots:

    library   slot 0: every block is scored and read there | slot 1: empty | local window
    paper     slot 0: all older blocks are scored there | slots 1..k: the k newest are scored | local window

- Paper ("stingy" positions, section 3.2.3): blocks are not read where they are scored. The i-th chosen block in text
  order (i from 0) is read in slot i, or in slot i + 1 if it is among the k newest, so that an empty slot separates old
  from new. Distances are at most k + 1 slots and the window, however long the text is.
- Library: documents have no order among each other, so all chosen blocks share slot 0. The logit that chooses a block
  is then the logit that gates it, storage order cannot matter, and the context does not limit the blocks read.

Axes: B batch, H query heads, G KV heads, X voter groups per KV head, R rows that vote together, P = X x R, Q queries, K
local keys, S slots, N stored blocks, U blocks fetched, L tokens in a block (landmark last), V = U x L, D head dim.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention.context import LandmarkContext
from model.attention.memory import in_text_order
from model.attention.rotary import exact_scores, rotate
from model.attention.selection import choose_blocks


@dataclass(frozen=True, eq=False)
class SlottedBlocks:
    """The blocks that one layer reads, their keys rotated to the slots they are read in."""

    ids_BGXS: Tensor
    keys_BGXSLD: Tensor
    values_BGXSLD: Tensor
    lengths_BGXS: Tensor
    """Ordinary tokens of each block."""

    def scores(self, rows_BGXRD: Tensor) -> Tensor:
        """scores_BGXRSL (float32): products of queries with the keys of their blocks."""
        scores_BGXRV = exact_scores(rows_BGXRD, self.keys_BGXSLD.flatten(3, 4))
        scores_BGXRSL: Tensor = scores_BGXRV.unflatten(-1, self.keys_BGXSLD.shape[3:5])
        return scores_BGXRSL

    def weighted(self, weights_BGXRSL: Tensor) -> Tensor:
        """out_BGXRD: values of the blocks, weighted."""
        return torch.einsum("bgxrsl,bgxsld->bgxrd", weights_BGXRSL.to(self.values_BGXSLD.dtype), self.values_BGXSLD)


@dataclass(frozen=True, eq=False)
class SharedBlocks:
    """The same for many voter groups that choose among few blocks: each block is fetched and rotated once, and read by
    one matrix product. Twin of `SlottedBlocks`, which copies a block for every group that chose it."""

    ids_BGXS: Tensor
    place_BGXS: Tensor
    """Which of the fetched blocks each one is."""
    keys_BGULD: Tensor
    values_BGULD: Tensor
    lengths_BGXS: Tensor

    def scores(self, rows_BGXRD: Tensor) -> Tensor:
        scores_BGPV = exact_scores(rows_BGXRD.flatten(2, 3), self.keys_BGULD.flatten(2, 3))
        scores_BGXRUL: Tensor = scores_BGPV.unflatten(3, self.keys_BGULD.shape[2:4]).unflatten(2, rows_BGXRD.shape[2:4])
        return scores_BGXRUL.gather(4, self._at(rows_BGXRD.shape[3]))

    def weighted(self, weights_BGXRSL: Tensor) -> Tensor:
        fetched, length = self.values_BGULD.shape[2:4]
        weights_BGXRSL = weights_BGXRSL.to(self.values_BGULD.dtype)
        weights_BGXRUL = weights_BGXRSL.new_zeros(*weights_BGXRSL.shape[:4], fetched, length)
        weights_BGXRUL.scatter_(4, self._at(weights_BGXRSL.shape[3]), weights_BGXRSL)
        out_BGPD = weights_BGXRUL.flatten(4, 5).flatten(2, 3) @ self.values_BGULD.flatten(2, 3)
        out_BGXRD: Tensor = out_BGPD.unflatten(2, weights_BGXRSL.shape[2:4])
        return out_BGXRD

    def _at(self, rows: int) -> Tensor:
        place_BGX1S1 = self.place_BGXS[:, :, :, None, :, None]
        return place_BGX1S1.expand(-1, -1, -1, rows, -1, self.keys_BGULD.shape[3])


ReadBlocks = SlottedBlocks | SharedBlocks
_SHARED_MOST = 8
"""Times the blocks that one voter group reads: with more of them in all, fetching all for everyone costs more than it
saves."""


def read_blocks(
    context: LandmarkContext, layer: int, query_BHQD: Tensor, rotated_BHQD: Tensor, key_BGKD: Tensor, scaling: float
) -> ReadBlocks:
    """Choose blocks by their landmarks, fetch them and rotate their keys, by the policy's position scheme.

    query and rotated: the same queries, before rotation and at their positions; key: the keys of the local window.
    """
    if context.memory[1].positions == "paper":
        return read_at_paper_positions(context, layer, rotated_BHQD, key_BGKD.shape[1], scaling)
    return read_at_library_positions(context, layer, query_BHQD, key_BGKD, scaling)


def read_at_library_positions(
    context: LandmarkContext, layer: int, query_BHQD: Tensor, key_BGKD: Tensor, scaling: float
) -> ReadBlocks:
    """Every block is scored and read in slot 0, so any memory can search."""
    reader, policy = context.memory
    searching_BHQD = context.queries_for_search(query_BHQD, key_BGKD.shape[2], scaling)
    queries_BGXRD = policy.voter_rows(searching_BHQD, key_BGKD.shape[1])
    ids = reader.search(layer, queries_BGXRD, policy.top_k)
    voters, chosen = ids.shape[2:]
    # Of a single token, and a landmark behind it, few voters choose, and counting what they chose makes the host wait.
    few = min(_SHARED_MOST * chosen, voters * chosen // 2)
    if voters > 1 and query_BHQD.shape[2] > 2 and len(distinct_U := ids.unique()) <= few:
        fetched_BG1U = distinct_U.expand(*ids.shape[:2], 1, -1)
        keys, values, lengths = (each.squeeze(2) for each in reader.read(layer, fetched_BG1U))
        cos, sin = context.table(0, context.block_size, keys)
        place_BGXS = torch.searchsorted(distinct_U, ids.contiguous())
        lengths_BGXS = lengths.unsqueeze(2).expand(-1, -1, voters, -1).gather(3, place_BGXS)
        return SharedBlocks(ids, place_BGXS, rotate(keys, cos, sin), values, lengths_BGXS)
    keys, values, lengths = reader.read(layer, ids)
    cos, sin = context.table(0, context.block_size, keys)
    return SlottedBlocks(ids, rotate(keys, cos, sin), values, lengths)


def read_at_paper_positions(
    context: LandmarkContext, layer: int, rotated_BHQD: Tensor, groups: int, scaling: float
) -> SlottedBlocks:
    """The newest blocks are scored and read at their distance, which needs the memory of one text."""
    policy = context.memory[1]
    memory, size, stored = in_text_order(context.memory[0]), context.block_size, context.memory[0].num_blocks
    cos, sin = context.table(0, context.local_start, rotated_BHQD)
    at_N = paper_landmark_slots(stored, policy.top_k, rotated_BHQD.device) * size + size - 1
    queries_BGXRD = policy.voter_rows(rotated_BHQD, groups)
    landmarks_BGND = rotate(memory.landmarks(layer), cos[at_N], sin[at_N])
    together = policy.voters == "all_heads"
    ids = choose_blocks(queries_BGXRD, landmarks_BGND, policy.top_k, scaling=scaling, all_heads=together)
    keys, values, lengths = memory.read(layer, ids)
    at_BGXSL = paper_read_slots(ids, stored, policy.top_k)[..., None] * size + torch.arange(size, device=ids.device)
    return SlottedBlocks(ids, rotate(keys, cos[at_BGXSL], sin[at_BGXSL]), values, lengths)


def paper_landmark_slots(num_blocks: int, top_k: int, device: torch.device) -> Tensor:
    """Slot at which each stored block's landmark is scored: slot_N."""
    newest = min(top_k, num_blocks)
    return (torch.arange(num_blocks, device=device) - (num_blocks - newest) + 1).clamp_min(0)


def paper_read_slots(ids_BGXS: Tensor, num_blocks: int, top_k: int) -> Tensor:
    """Slot in which each chosen block is read: slot_BGXS, for ids in ascending order."""
    newest = min(top_k, num_blocks)
    order = torch.arange(ids_BGXS.shape[-1], device=ids_BGXS.device).expand_as(ids_BGXS)
    return order + (ids_BGXS >= num_blocks - newest)
