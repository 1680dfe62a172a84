"""Search: which blocks would the question's attention go to.

Score of block n = sum over memory layers y, heads h and question tokens q of weight[y][h] * landmark logit[y, h, q, n]
/ Q. As the logarithm of a gate is its logit minus a term that is the same for all blocks, this ranks by the weighted
mean log gate. It is one inner product: the weighted mean query, summed over the heads that share a KV head, with the
block's landmark keys.

Axes: Y memory layers, H query heads, G KV heads, Q question tokens, D head dim, C candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from model.backbone import LandmarkModel
from model.errors import ContextTooLong
from model.generate import question_queries
from retrieval.errors import InvalidRequest
from retrieval.landmark_index import Ranking
from retrieval.passages import Passage
from retrieval.readable import Hit, join_neighbours
from retrieval.records import Scope
from retrieval.resident import MemorySnapshot, ResidentMemory, scope_positions
from retrieval.sources import Sources
from retrieval.workspace import Workspace

# Joining neighbours takes more blocks than passages come out.
_BLOCKS_PER_PASSAGE = 4


@dataclass(frozen=True, eq=False)
class Found:
    """Blocks found for a question, best first."""

    positions_C: Tensor
    gates_C: Tensor
    confidence: float
    """See `confidence_of`. `LandmarkConfig.answer_threshold` is compared with it."""
    in_scope: int


def confidence_of(ranking: Ranking, in_scope: int) -> float:
    """Chance that none of so many unrelated blocks would score as high as the best block does: near 1 for a real match.

    Unrelated scores are taken as normal, with the mean and spread of the whole memory; the calibrated threshold takes
    up what is wrong with that. 0 for an empty memory.
    """
    if not len(ranking.logits) or ranking.spread == 0:
        return 0.0
    z = (float(ranking.logits[0]) - ranking.mean) / ranking.spread
    return (0.5 * math.erfc(-z / math.sqrt(2))) ** in_scope


def search_query(model: LandmarkModel, question: str) -> Tensor:
    """query_YGD (float32, CPU): the question's weighted mean query. Raises `InvalidRequest` if it is empty or too
    long."""
    if not question.strip():
        raise InvalidRequest("The question is empty.")
    prompt = model.prompt(question.strip())
    try:
        queries_YHQD = question_queries(model, prompt.ids)[:, :, prompt.question].cpu()
    except ContextTooLong as error:
        raise InvalidRequest(f"The question is too long for this model: {error}") from error
    mean_YHD = queries_YHQD.mean(2)
    return (mean_YHD * search_weights(model)[..., None]).unflatten(1, (model.num_kv_heads, -1)).sum(2)


def search_weights(model: LandmarkModel) -> Tensor:
    """weights_YH of the checkpoint, or all 1."""
    shape = (len(model.memory_layers), model.num_heads)
    if model.config.search_weights is None:
        return torch.ones(shape)
    weights_YH = torch.tensor(model.config.search_weights)
    if weights_YH.shape != shape:
        raise InvalidRequest(
            f"The checkpoint's search_weights have shape {tuple(weights_YH.shape)}; the model has {shape[0]} memory "
            f"layers of {shape[1]} heads: calibrate it again."
        )
    return weights_YH


def find_blocks(
    workspace: Workspace, snapshot: MemorySnapshot, question: str, count: int, scope: Scope | None
) -> Found:
    """The `count` best blocks in scope. Takes its own turn at the model."""
    within = scope_positions(workspace, snapshot, scope)
    in_scope = snapshot.num_blocks if within is None else len(within)
    model = workspace.loaded().model
    with workspace.turns.for_question():
        query_YGD = search_query(model, question)
        ranking: Ranking = snapshot.landmarks.rank(query_YGD, count, within)
    return Found(ranking.positions, ranking.gates, confidence_of(ranking, in_scope), in_scope)


def hits_of(snapshot: MemorySnapshot, positions: Tensor, scores: Tensor) -> list[Hit]:
    """Blocks by position with their scores, in the given order."""
    numbers = positions.numpy()
    ids, documents = snapshot.blocks.ids_N[numbers], snapshot.document_N[numbers]
    ordinals = snapshot.ordinal_N[numbers]
    return [
        Hit(int(block_id), snapshot.document_ids[document], int(ordinal), float(score))
        for block_id, document, ordinal, score in zip(ids, documents, ordinals, scores, strict=True)
    ]


def check_count(k: int) -> None:
    """Raises `InvalidRequest` for a k that cannot be served."""
    if k < 1:
        raise InvalidRequest(f"k is {k}; ask for at least one passage.")


def search(
    workspace: Workspace, resident: ResidentMemory, sources: Sources, query: str, k: int, scope: Scope | None
) -> list[Passage]:
    """The k best passages, best first; fewer only where the scope holds fewer blocks."""
    check_count(k)
    with workspace.turns.question_open(), resident.open_snapshot() as snapshot:
        found = find_blocks(workspace, snapshot, query, _BLOCKS_PER_PASSAGE * k, scope)
        return sources.passages(join_neighbours(hits_of(snapshot, found.positions_C, found.gates_C), k))
