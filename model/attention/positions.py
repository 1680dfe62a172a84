"""How a block gets its position: keys are stored before rotation and rotated to a slot when they are read.

Frames (docs/landmark-attention.md, section 5), in slots of one block each, one function for each:

    read_paper     slot 0, where all older blocks are scored | slots 1..k, the k newest at their distance | local window
    read_library   slot 0, where every block is scored and read | one empty slot | local window
    read_one_slot  the library's frame for the memory of one text
    read_true      slots 0..N-1, each block where it stood in the text | local window
    read_none      blocks without positions | local window, from slot 0 on

- Paper ("stingy" positions, section 3.2.3): the i-th chosen block in text order is read in slot i, or in slot i + 1 if
  it is among the k newest, so that an empty slot separates old from new. No distance exceeds those of training.
- Library: documents have no order among each other, so all chosen blocks share slot 0. The logit that chooses a block
  is then the logit that gates it, storage order cannot matter, and the context does not limit the blocks read.
- True: distances grow with the text; for networks trained with position jumps (appendix E), or rescaled frequencies.
- None: neither landmarks and keys of stored blocks nor the queries that meet them are rotated, which is what two
  tokens in the same place look like: content alone decides.
- Where the local window starts: `SelectionPolicy.local_slot`.

Axes: B batch, H query heads, G KV heads, X voter groups per KV head, R rows that vote together, P = X x R, Q queries, K
local keys, S slots, N stored blocks, U blocks fetched, L tokens in a block (landmark last), V = U x L, D head dim.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention.context import LandmarkContext
from model.attention.hierarchy import choose_in_groups
from model.attention.memory import in_text_order
from model.attention.rotary import rotate
from model.attention.scores import exact_scores
from model.attention.selection import Positions, choose_blocks, choose_by_several
from model.errors import ModelError


@dataclass(frozen=True, eq=False)
class SlottedBlocks:
    """The blocks that one layer reads, their keys rotated to the slots they are read in."""

    ids_BGXS: Tensor
    keys_BGXSLD: Tensor
    values_BGXSLD: Tensor
    lengths_BGXS: Tensor
    """Ordinary tokens of each block."""
    queries_BHQD: Tensor
    """The queries that meet these keys."""

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
    queries_BHQD: Tensor

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
    """Choose blocks by their landmarks, fetch them and rotate their keys, in the frame of the context's policy.

    query and rotated: the same queries, before rotation and at their positions; key: the keys of the local window.
    """
    return _FRAMES[context.memory[1].positions](context, layer, query_BHQD, rotated_BHQD, key_BGKD, scaling)


def read_library(
    context: LandmarkContext, layer: int, query_BHQD: Tensor, rotated_BHQD: Tensor, key_BGKD: Tensor, scaling: float
) -> ReadBlocks:
    """Every block is scored and read in slot 0, so any memory can search."""
    reader, policy = context.memory
    if not context.is_plain:
        raise ModelError("a library is read through landmarks at the end of their blocks, and no context-miss token.")
    searching_BHQD = context.search_frame(query_BHQD, key_BGKD.shape[2], scaling)
    queries_BGXRD = policy.voter_rows(searching_BHQD, key_BGKD.shape[1])
    ids = policy.forced_blocks(layer, queries_BGXRD.shape[:3], reader.num_blocks)
    if ids is None:
        ids = reader.search(layer, queries_BGXRD, policy.top_k)
    voters, chosen = ids.shape[2:]
    if voters > 1 and len(distinct_U := ids.unique()) <= min(_SHARED_MOST * chosen, voters * chosen // 2):
        fetched_BG1U = distinct_U.expand(*ids.shape[:2], 1, -1)
        keys, values, lengths = (each.squeeze(2) for each in reader.read(layer, fetched_BG1U))
        cos, sin = context.table(0, context.block_size, keys)
        place_BGXS = torch.searchsorted(distinct_U, ids.contiguous())
        lengths_BGXS = lengths.unsqueeze(2).expand(-1, -1, voters, -1).gather(3, place_BGXS)
        return SharedBlocks(ids, place_BGXS, rotate(keys, cos, sin), values, lengths_BGXS, rotated_BHQD)
    keys, values, lengths = reader.read(layer, ids)
    cos, sin = context.table(0, context.block_size, keys)
    return SlottedBlocks(ids, rotate(keys, cos, sin), values, lengths, rotated_BHQD)


def read_paper(
    context: LandmarkContext, layer: int, query_BHQD: Tensor, rotated_BHQD: Tensor, key_BGKD: Tensor, scaling: float
) -> SlottedBlocks:
    """The newest blocks are scored and read at their distance, which takes the memory of one text."""
    stored, top_k = context.memory[0].num_blocks, context.memory[1].top_k
    scored_N = paper_landmark_slots(stored, top_k, query_BHQD.device)
    return _read_in_slots(
        context, layer, rotated_BHQD, key_BGKD, scaling, scored_N, lambda ids: paper_read_slots(ids, stored, top_k)
    )


def read_one_slot(
    context: LandmarkContext, layer: int, query_BHQD: Tensor, rotated_BHQD: Tensor, key_BGKD: Tensor, scaling: float
) -> SlottedBlocks:
    """Every block of one text is scored and read in slot 0."""
    scored_N = torch.zeros(context.memory[0].num_blocks, dtype=torch.long, device=query_BHQD.device)
    return _read_in_slots(context, layer, rotated_BHQD, key_BGKD, scaling, scored_N, torch.zeros_like)


def read_true(
    context: LandmarkContext, layer: int, query_BHQD: Tensor, rotated_BHQD: Tensor, key_BGKD: Tensor, scaling: float
) -> SlottedBlocks:
    """Every block is scored and read at its distance in the text (of the blocks that are kept)."""
    scored_N = torch.arange(context.memory[0].num_blocks, device=query_BHQD.device)
    return _read_in_slots(context, layer, rotated_BHQD, key_BGKD, scaling, scored_N, lambda ids: ids)


def read_none(
    context: LandmarkContext, layer: int, query_BHQD: Tensor, rotated_BHQD: Tensor, key_BGKD: Tensor, scaling: float
) -> SlottedBlocks:
    """Nothing is rotated; YaRN's attention scaling is left out with it."""
    reader, policy = context.memory
    memory = in_text_order(reader)
    landmarks = [memory.landmarks(layer, back) for back in range(context.landmarks_of_block, 0, -1)]
    ids = _chosen(context, layer, query_BHQD, landmarks, key_BGKD.shape[1], scaling)
    keys, values, lengths = memory.read(layer, ids)
    return SlottedBlocks(ids, keys, values, lengths, query_BHQD)


def _read_in_slots(
    context: LandmarkContext,
    layer: int,
    rotated_BHQD: Tensor,
    key_BGKD: Tensor,
    scaling: float,
    scored_N: Tensor,
    read_slots: Callable[[Tensor], Tensor],
) -> SlottedBlocks:
    """Landmarks scored in slots scored_N; chosen blocks ids_BGXS read in slots read_slots(ids)."""
    memory, size = in_text_order(context.memory[0]), context.block_size
    cos, sin = context.table(0, context.local_start, rotated_BHQD)
    offset_NL = context.offsets(0, memory.num_blocks).to(scored_N.device)
    landmarks = []
    for back in range(context.landmarks_of_block, 0, -1):
        at_N = scored_N * size + offset_NL[:, -back]
        landmarks.append(rotate(memory.landmarks(layer, back), cos[at_N], sin[at_N]))
    ids = _chosen(context, layer, rotated_BHQD, landmarks, key_BGKD.shape[1], scaling)
    keys, values, lengths = memory.read(layer, ids)
    at_BGXSL = read_slots(ids)[..., None] * size + offset_NL[ids]
    return SlottedBlocks(ids, rotate(keys, cos[at_BGXSL], sin[at_BGXSL]), values, lengths, rotated_BHQD)


def _chosen(
    context: LandmarkContext, layer: int, queries_BHQD: Tensor, landmarks: list[Tensor], groups: int, scaling: float
) -> Tensor:
    """ids_BGXS that the policy forces, or that queries choose by landmarks_BGND in the same frame, of which a block has
    one or more."""
    landmarks_BGND = landmarks[-1]
    policy = context.memory[1]
    queries_BGXRD = policy.voter_rows(queries_BHQD, groups)
    ids = policy.forced_blocks(layer, queries_BGXRD.shape[:3], landmarks_BGND.shape[2])
    if ids is not None:
        return ids
    k, together = policy.top_k, policy.voters == "all_heads"
    if len(landmarks) > 1:
        return choose_by_several(queries_BGXRD, landmarks, k, scaling=scaling, all_heads=together)
    if policy.hierarchy is not None:
        return choose_in_groups(queries_BGXRD, landmarks_BGND, k, policy.hierarchy, scaling=scaling, all_heads=together)
    return choose_blocks(queries_BGXRD, landmarks_BGND, k, scaling=scaling, all_heads=together)


_FRAMES: dict[Positions, Callable[[LandmarkContext, int, Tensor, Tensor, Tensor, float], ReadBlocks]] = {
    "library": read_library,
    "paper": read_paper,
    "one_slot": read_one_slot,
    "true": read_true,
    "none": read_none,
}


def paper_landmark_slots(num_blocks: int, top_k: int, device: torch.device) -> Tensor:
    """Slot at which each stored block's landmark is scored: slot_N."""
    newest = min(top_k, num_blocks)
    return (torch.arange(num_blocks, device=device) - (num_blocks - newest) + 1).clamp_min(0)


def paper_read_slots(ids_BGXS: Tensor, num_blocks: int, top_k: int) -> Tensor:
    """Slot in which each chosen block is read: slot_BGXS, for ids in ascending order."""
    newest = min(top_k, num_blocks)
    order = torch.arange(ids_BGXS.shape[-1], device=ids_BGXS.device).expand_as(ids_BGXS)
    return order + (ids_BGXS >= num_blocks - newest)
