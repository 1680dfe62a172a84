"""Search: which blocks would the question's attention go to.

- Landmarks rank all blocks. Score of block n = sum over memory layers y, heads h and question tokens q of weight[y][h]
  * landmark logit[y, h, q, n] / Q. As the logarithm of a gate is its logit minus a term that is the same for all
  blocks, this ranks by the weighted mean log gate. It is one inner product: the weighted mean query, summed over the
  heads that share a KV head, with the block's landmark keys.
- Where the model says so (`LandmarkConfig.ranks_by_tokens`), landmarks only propose, and the keys of the proposed
  blocks' tokens decide (`model.scoring.late_interaction`).

Axes: Y memory layers, W weighed memory layers, H query heads, G KV heads, Q question tokens, D head dim, C candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.checkpoint.landmark_model import LandmarkModel
from model.errors import ContextTooLong
from model.inference.prompt import encode_prompt
from model.scoring.late_interaction import best_matches, block_scores, token_matches, token_queries
from retrieval.engine.workspace import Workspace
from retrieval.errors import InvalidRequest
from retrieval.index.exact import Ranking
from retrieval.index.snapshot import MemoryIndex, MemorySnapshot, naming_damage, scope_positions
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.passage_spans import Hit, join_neighbours
from retrieval.query.title_matching import title_matches
from retrieval.types.passages import Passage
from retrieval.types.records import Scope

# Joining neighbours takes more blocks than passages come out.
_BLOCKS_PER_PASSAGE = 4
# Landmarks propose so many blocks for each that tokens are to find, and never fewer than so many.
_PROPOSED_PER_BLOCK = 4
FEWEST_PROPOSED = 512
# Keys of so many blocks are in memory at a time.
_BLOCKS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Found:
    """Blocks found for a question, best first.

    `scores_C`: gate mass (0..1, over all blocks in scope 1), or with `ranks_by_tokens` the late-interaction score
    (0..1).
    """

    positions_C: Tensor
    scores_C: Tensor
    confidence: float
    """0..1, see `confidence_of`; with `ranks_by_tokens` the best score. `LandmarkConfig.answer_threshold` is compared
    with it."""
    in_scope: int
    queries_QWGD: Tensor
    """Of the question's tokens, see `late_interaction.token_queries`."""
    pointers_2WGD: Tensor
    """Queries that point at an answer, see `late_interaction.points`; empty if the model does not point."""
    joined: Callable[[Iterable[float]], float]
    """Score of neighbouring blocks together: gate mass adds up, of late-interaction scores the best counts."""


def confidence_of(ranking: Ranking, in_scope: int) -> float:
    """Chance that none of so many unrelated blocks would score as high as the best block does: near 1 for a real match.

    Unrelated scores are taken as normal, with the mean and spread of the whole memory; the calibrated threshold takes
    up what is wrong with that. 0 for an empty memory.
    """
    if not len(ranking.logits) or ranking.spread == 0:
        return 0.0
    z = (float(ranking.logits[0]) - ranking.mean) / ranking.spread
    return (0.5 * math.erfc(-z / math.sqrt(2))) ** in_scope


def asked_queries(model: LandmarkModel, question: str) -> Tensor:
    """queries_YHQD (float32, CPU) of the question's tokens. Raises `InvalidRequest` if it is empty or too long."""
    return _asked(model, question)[0]


def _asked(model: LandmarkModel, question: str) -> tuple[Tensor, Tensor]:
    """queries_YHQD of the question's tokens, pointers_YH2D (of no tokens if the model does not point)."""
    if not question.strip():
        raise InvalidRequest("The question is empty.")
    prompt = model.prompt(question.strip())
    pointing = [int(model.tokenizer.eos_token_id)] if model.config.points_at_answers else []
    try:
        queries_YHTD = encode_prompt(model, prompt.ids, end_ids=pointing).queries_YHQD.cpu()
        return queries_YHTD[:, :, prompt.question], queries_YHTD[:, :, -2:] if pointing else queries_YHTD[:, :, :0]
    except ContextTooLong as error:
        raise InvalidRequest(f"The question is too long for this model: {error}") from error


def search_query(model: LandmarkModel, question: str) -> Tensor:
    """query_YGD: the question's weighted mean query. Raises as `asked_queries`."""
    return mean_query(model, asked_queries(model, question))


def mean_query(model: LandmarkModel, queries_YHQD: Tensor) -> Tensor:
    """query_YGD: the mean over the question's tokens, weighted, summed over the heads that share keys."""
    mean_YHD = queries_YHQD.mean(2)
    return (mean_YHD * model.search_weights_YH[..., None]).unflatten(1, (model.num_kv_heads, -1)).sum(2)


def find_blocks(
    workspace: Workspace, snapshot: MemorySnapshot, question: str, count: int, scope: Scope | None
) -> Found:
    """The `count` best blocks in scope. Takes its own turn at the model.

    Raises `storage.errors.DamagedMemory` if keys must be read for it.
    """
    within = scope_positions(workspace, snapshot, scope)
    in_scope = snapshot.num_blocks if within is None else len(within)
    model = workspace.loaded().model
    by_tokens = model.config.ranks_by_tokens
    with workspace.scheduler.for_question():
        queries_YHQD, pointers_YH2D = _asked(model, question)
        queries_QWGD = token_queries(model, queries_YHQD)
        pointers_2WGD = token_queries(model, pointers_YH2D)
        proposed = max(FEWEST_PROPOSED, _PROPOSED_PER_BLOCK * count) if by_tokens else count
        ranking = snapshot.landmarks.rank(mean_query(model, queries_YHQD), proposed, within)
        if not by_tokens:
            confidence = confidence_of(ranking, in_scope)
            return Found(ranking.positions, ranking.gates, confidence, in_scope, queries_QWGD, pointers_2WGD, sum)
        newest_first_C = ranking.positions.sort(descending=True).values  # of equal scores the newest block wins
        titles_QC = titles_of(workspace, snapshot, queries_QWGD, newest_first_C)
        scores_C = token_scores(snapshot, queries_QWGD, newest_first_C, titles_QC)
    best = scores_C.argsort(descending=True, stable=True)[:count]
    confidence = max(0.0, float(scores_C[best[0]])) if len(best) else 0.0
    return Found(newest_first_C[best], scores_C[best], min(1.0, confidence), in_scope, queries_QWGD, pointers_2WGD, max)


def titles_of(workspace: Workspace, snapshot: MemorySnapshot, queries_QWGD: Tensor, positions_C: Tensor) -> Tensor:
    """matches_QC of the question's tokens in the titles of the blocks' documents, see `titles.title_matches`."""
    numbers, at_C = np.unique(snapshot.document_N[positions_C.numpy()], return_inverse=True)
    ids = [snapshot.document_ids[number] for number in numbers]
    return title_matches(workspace, workspace.loaded().model, queries_QWGD, ids)[:, torch.from_numpy(at_C)]


def token_scores(snapshot: MemorySnapshot, queries_QWGD: Tensor, positions_C: Tensor, titles_QC: Tensor) -> Tensor:
    """scores_C (float32, CPU) of blocks by the keys of their tokens and of their titles'. Raises
    `storage.errors.DamagedMemory`."""
    if not len(positions_C):
        return torch.zeros(0)
    best: list[Tensor] = []
    for start in range(0, len(positions_C), _BLOCKS_AT_ONCE):
        keys_WCGLD, lengths_C = snapshot.token_keys(positions_C[start : start + _BLOCKS_AT_ONCE])
        best.append(best_matches(token_matches(queries_QWGD, keys_WCGLD, lengths_C)).cpu())
    numbers = positions_C.numpy()
    place_C = snapshot.document_N[numbers].astype(np.int64) << 32 | snapshot.ordinal_N[numbers]
    return block_scores(torch.cat(best, 1).maximum(titles_QC), torch.from_numpy(place_C))


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
    workspace: Workspace, resident: MemoryIndex, sources: PassageBuilder, query: str, k: int, scope: Scope | None
) -> list[Passage]:
    """The k best passages, best first; fewer only where the scope holds fewer blocks."""
    check_count(k)
    with workspace.scheduler.question_open(), resident.open_snapshot(workspace.catalogue) as snapshot:
        with naming_damage(resident):
            found = find_blocks(workspace, snapshot, query, _BLOCKS_PER_PASSAGE * k, scope)
        hits = hits_of(snapshot, found.positions_C, found.scores_C)
        return sources.passages(join_neighbours(hits, k, found.joined), found.joined)
