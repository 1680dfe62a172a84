"""Search: which blocks would the question's attention go to.

- Landmarks rank all blocks. Score of block n = sum over memory layers y, heads h and question tokens q of weight[y][h]
  * landmark logit[y, h, q, n] / Q. As the logarithm of a gate is its logit minus a term that is the same for all
  blocks, this ranks by the weighted mean log gate. It is one inner product: the weighted mean query, summed over the
  heads that share a KV head, with the block's landmark keys.
- Where the model says so (`LandmarkConfig.ranks_by_tokens`), landmarks only propose, and the keys of the proposed
  blocks' tokens decide (`model.scoring.late_interaction`); blocks that hold rare terms of the question are proposed as
  well (`retrieval.index.rare_terms`). Of the best of them those gain that hold a rare term of the
  question (`term_shares`).

Axes: W weighed memory layers, G KV heads, Q question tokens, D head dim, L tokens in a block, C blocks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.scoring.late_interaction import best_matches, block_scores, token_matches
from retrieval.engine.workspace import Workspace
from retrieval.index.blocks import MemorySnapshot
from retrieval.index.exact_text import blocks_holding
from retrieval.index.rare_terms import with_rare_terms
from retrieval.index.snapshot import MemoryIndex, naming_damage, scope_positions
from retrieval.index.terms import crossing_terms, described_name, may_be_cut, terms_of
from retrieval.index.title_keys import TitleMatches
from retrieval.query.decide import confidence_of
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.passage_spans import join_neighbours
from retrieval.query.question import EncodedQuestion, check_count, encode_question
from retrieval.query.sentences import Hit
from retrieval.query.spelling import corrected
from retrieval.types.answers import Passage, asks_for_a_survey
from retrieval.types.records import Scope
from storage.records import Block

RowsOf = Callable[[Sequence[int]], Mapping[int, Block]]

# Joining neighbours takes more blocks than passages come out.
_BLOCKS_PER_PASSAGE = 4
# Landmarks propose this many blocks for each one that tokens are to find, and never fewer than FEWEST_PROPOSED.
_PROPOSED_PER_BLOCK = 4
FEWEST_PROPOSED = 512
EXACT_SHARE = 0.1
"""Added to the score of a block that holds all rare terms of the question."""
MOST_EXACT = 32
"""Blocks with the very words of a query that come first; more of them would say nothing."""
RARE = 0.1
"""A term of the question is rare if at most this share of these blocks holds it, or a single one."""
EXACT_AMONG = 64
"""So many of the best blocks are looked through for them, or all that are to be found."""
_BLOCKS_AT_ONCE = 256
"""Whose keys are in memory at a time; fewer for a long question, whose matches with them take more than the keys."""
_PAIRS_AT_ONCE, _PAIRS_KEPT = 1 << 14, 1 << 16
"""Question tokens times blocks whose matches are in memory at a time, and kept: 4 and 16 MB with blocks of 64 tokens.
Of a question of a thousand words only those of few blocks are kept."""


class TokenMatches:
    """How well the tokens of blocks match a question; the keys of a block are fetched once, unless very many blocks are
    looked at. Raises `storage.errors.DamagedMemory`."""

    def __init__(self, snapshot: MemorySnapshot, queries_QWGD: Tensor):
        self._snapshot, self._queries = snapshot, queries_QWGD
        self._kept: dict[int, Tensor] = {}  # position -> matches_QL

    def block_scores(self, positions_C: Tensor, titles_QC: Tensor) -> Tensor:
        """scores_C (float32, CPU) of blocks by the keys of their tokens and of their titles'."""
        if not len(positions_C):
            return torch.zeros(0)
        keep = len(positions_C) * len(self._queries) <= _PAIRS_KEPT
        best_QC = torch.cat([best_matches(matches_QCL) for matches_QCL in self._fetch(positions_C, keep=keep)], 1)
        numbers = positions_C.numpy()
        place_C = self._snapshot.document_N[numbers].astype(np.int64) << 32 | self._snapshot.ordinal_N[numbers]
        return block_scores(best_QC.maximum(titles_QC), torch.from_numpy(place_C))

    def of(self, positions_C: Tensor) -> Tensor:
        """matches_QCL (CPU) of some blocks, at least one; see `late_interaction.token_matches`."""
        new = [position for position in positions_C.tolist() if position not in self._kept]
        for _ in self._fetch(torch.tensor(new, dtype=torch.long), keep=True):
            pass
        return torch.stack([self._kept[position] for position in positions_C.tolist()], 1)

    def _fetch(self, positions_C: Tensor, *, keep: bool) -> Iterator[Tensor]:
        at_once = min(_BLOCKS_AT_ONCE, max(1, _PAIRS_AT_ONCE // len(self._queries)))
        for some_C in positions_C.split(at_once) if len(positions_C) else ():
            matches_QCL = token_matches(self._queries, *self._snapshot.token_keys(some_C)).cpu()
            if keep:
                self._kept.update(zip(some_C.tolist(), matches_QCL.unbind(1), strict=True))
            yield matches_QCL


@dataclass(frozen=True, eq=False)
class Found:
    """Blocks found for a question, best first, by position in the snapshot.

    `scores_C`: gate mass (0..1, over all blocks in scope 1), or with `ranks_by_tokens` the late-interaction score
    and what exact terms add to it (together at most 1). `matched`: without what they add, best first; doubt is
    calibrated with these.
    """

    question: EncodedQuestion
    titles: TitleMatches
    positions_C: Tensor
    scores_C: Tensor
    matched: tuple[float, ...]
    confidence: float
    """0..1, see `confidence_of`; with `ranks_by_tokens` the best score."""
    in_scope: int
    joined: Callable[[Iterable[float]], float]
    """Score of neighbouring blocks together: gate mass adds up, of late-interaction scores the best counts."""
    unmatched: float = 0.0
    """With `ranks_by_tokens`, see `unmatched_share`, of the blocks found."""
    matches: TokenMatches | None = None
    """With `ranks_by_tokens`."""


def find_blocks(
    workspace: Workspace,
    snapshot: MemorySnapshot,
    text: str,
    count: int,
    scope: Scope | None,
    rows: RowsOf | None = None,
    *,
    without: Sequence[int] = (),
) -> Found:
    """The `count` best blocks in scope. Takes its own turn at the model.

    `without`: ids of blocks that are left out. `rows`: how rows of blocks are looked up, where others look them up too
    (`PassageBuilder.blocks`).

    Raises `InvalidRequest` for a question that cannot be encoded, `storage.errors.DamagedMemory` if keys that must be
    read are damaged.
    """
    within = scope_positions(workspace, snapshot, scope, without)
    in_scope = snapshot.num_blocks if within is None else len(within)
    model = workspace.opened.model
    by_tokens = model.config.ranks_by_tokens
    with workspace.scheduler.for_question():
        question = encode_question(model, text)
        titles = TitleMatches(workspace.catalogue, question.queries_QWGD, model.device)
        proposed = max(FEWEST_PROPOSED, _PROPOSED_PER_BLOCK * count) if by_tokens else count
        ranking = snapshot.landmarks.rank(question.mean_query_YGD, proposed, within)
        if not by_tokens:
            confidence = confidence_of(ranking, in_scope)
            gates_C = ranking.gates
            return Found(
                question, titles, ranking.positions, gates_C, tuple(gates_C.tolist()), confidence, in_scope, sum
            )
        proposed_P = ranking.positions
        if len(proposed_P) < in_scope:
            proposed_P = with_rare_terms(workspace, snapshot, question.asked.terms, proposed_P, within)
        newest_first_C = proposed_P.sort(descending=True).values  # of equal scores the newest block wins
        titles_QC = titles.of(snapshot.documents_of(newest_first_C))
        matches = TokenMatches(snapshot, question.queries_QWGD)
        scores_C = matches.block_scores(newest_first_C, titles_QC)
    order = scores_C.argsort(descending=True, stable=True)
    matched = scores_C[order[:count]].tolist()
    confidence = min(1.0, max(0.0, matched[0])) if matched else 0.0
    looked = order[: max(count, EXACT_AMONG)]
    terms_C = block_terms(
        workspace, snapshot, newest_first_C[looked], question.asked.terms, rows or workspace.catalogue.blocks_by_id
    )
    document_ids = snapshot.documents_of(newest_first_C[looked])
    names = workspace.catalogue.names(set(document_ids))
    for terms, document_id in zip(terms_C, document_ids, strict=True):
        terms |= terms_of(described_name(*names.get(document_id, ("", ""))))
    ranked_C = scores_C[looked] + EXACT_SHARE * term_shares(question.asked.terms, terms_C)
    kept = ranked_C.argsort(descending=True, stable=True)[:count]
    unmatched = 0.0  # what a survey is asked for with ("summarise the report") need not stand in it
    if not asks_for_a_survey(text):
        unmatched = unmatched_share(question.asked.terms, [terms_C[number] for number in kept.tolist()])
    positions_C, ranked_C = newest_first_C[looked][kept], ranked_C[kept].clamp_max(1.0)
    return Found(question, titles, positions_C, ranked_C, tuple(matched), confidence, in_scope, max, unmatched, matches)


def with_exact(
    workspace: Workspace, snapshot: MemorySnapshot, query: str, found: Found, scope: Scope | None
) -> tuple[Tensor, Tensor]:
    """positions_C and scores_C of the blocks found, with those first in which the query stands word for word; these
    have the best score."""
    exact_P = snapshot.positions_of_blocks(blocks_holding(workspace.catalogue, query, most=MOST_EXACT))
    if (within := scope_positions(workspace, snapshot, scope)) is not None:
        exact_P = exact_P[torch.isin(exact_P, within)]
    is_exact_C = torch.isin(found.positions_C, exact_P)
    unfound_P = exact_P[~torch.isin(exact_P, found.positions_C)]
    positions_C = torch.cat((found.positions_C[is_exact_C], unfound_P, found.positions_C[~is_exact_C]))
    scores_C = torch.cat((found.scores_C[is_exact_C], torch.zeros(len(unfound_P)), found.scores_C[~is_exact_C]))
    scores_C[: len(exact_P)] = scores_C.amax() if len(scores_C) else 0.0
    return positions_C, scores_C


def block_terms(
    workspace: Workspace, snapshot: MemorySnapshot, positions_C: Tensor, asked: Set[str], rows: RowsOf
) -> list[set[str]]:
    """Terms of each block, and those of the question that it shares with the block before or behind; none for a block
    whose document was deleted meanwhile. `rows`: the catalogue's, by id; those beside each block are read with it."""
    around = {position + step for position in positions_C.tolist() for step in (-1, 0, 1)}
    rows(snapshot.blocks.ids_N[sorted(at for at in around if 0 <= at < snapshot.num_blocks)].tolist())
    texts = _texts(workspace, snapshot, positions_C, rows)
    terms_C = [terms_of(text) for text in texts]
    beside: list[tuple[int, int, int]] = []  # number of a block, position of the one beside it, and on which side
    for number, (position, text) in enumerate(zip(positions_C.tolist(), texts, strict=True)):
        for step, may in zip((-1, 1), may_be_cut(text, asked - terms_C[number]), strict=True):
            if may and _continues(snapshot, position, step):
                beside.append((number, position + step, step))
    others = _texts(workspace, snapshot, torch.tensor([at for _, at, _ in beside], dtype=torch.long), rows)
    for (number, _, step), other in zip(beside, others, strict=True):
        left, right = (other, texts[number]) if step < 0 else (texts[number], other)
        terms_C[number] |= crossing_terms(left, right)
    return terms_C


def _continues(snapshot: MemorySnapshot, position: int, step: int) -> bool:
    """Whether the next position is the next block of the same document."""
    other = position + step
    return (
        0 <= other < snapshot.num_blocks
        and bool(snapshot.document_N[other] == snapshot.document_N[position])
        and int(snapshot.ordinal_N[other]) == int(snapshot.ordinal_N[position]) + step
    )


def _texts(workspace: Workspace, snapshot: MemorySnapshot, positions_C: Tensor, rows: RowsOf) -> list[str]:
    """Of each block; a block whose document was deleted meanwhile has none."""
    if not len(positions_C):
        return []
    model, ids = workspace.opened.model, snapshot.blocks.ids_N[positions_C.numpy()].tolist()
    found = rows(ids)
    return [model.decode(found[id_].tokens) if id_ in found else "" for id_ in ids]


def term_shares(asked: Set[str], terms_C: Sequence[Set[str]]) -> Tensor:
    """shares_C: how many of the question's rare terms each text holds, by their rarity; 0 where there are none.
    `terms_C`: `terms_of` each text."""
    held = [terms & asked for terms in terms_C]
    counts = Counter(term for terms in held for term in terms)
    most = max(1.0, RARE * len(held))
    rarity = {term: math.log(len(held) / count) for term, count in counts.items() if count <= most}
    total = sum(rarity.values())
    if not total:
        return torch.zeros(len(held))
    return torch.tensor([sum(rarity[term] for term in terms & rarity.keys()) / total for terms in held])


def unmatched_share(asked: frozenset[str], terms: Sequence[Set[str]]) -> float:
    """How many of the question's words, small ones aside, stand in none of the texts; 0 for small words alone.
    `terms`: `terms_of` each text."""
    return len(asked.difference(*terms)) / max(1, len(asked))


def hits_of(snapshot: MemorySnapshot, positions_C: Tensor, scores_C: Tensor) -> list[Hit]:
    """Blocks by position with their scores, in the given order."""
    numbers = positions_C.numpy()
    columns = (
        snapshot.blocks.ids_N[numbers].tolist(),
        snapshot.documents_of(positions_C),
        snapshot.ordinal_N[numbers].tolist(),
        scores_C.tolist(),
    )
    return [Hit(*row) for row in zip(*columns, strict=True)]


def search(
    workspace: Workspace, index: MemoryIndex, passages: PassageBuilder, query: str, k: int, scope: Scope | None
) -> list[Passage]:
    """The k best passages, best first; fewer only where the scope holds fewer blocks. Where the words of the query
    stand as they are typed, at few places, comes first."""
    check_count(k)
    passages = passages.for_one_question()
    with workspace.scheduler.question_open(), index.open_snapshot(workspace.catalogue) as snapshot:
        with naming_damage(index):
            text = corrected(workspace.catalogue, workspace.opened.model, query)
            found = find_blocks(workspace, snapshot, text, _BLOCKS_PER_PASSAGE * k, scope, passages.blocks)
        positions_C, scores_C = with_exact(workspace, snapshot, text, found, scope)
        hits = hits_of(snapshot, positions_C, scores_C)
        return passages.passages(join_neighbours(hits, k, found.joined), found.joined)
