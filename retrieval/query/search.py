"""Search: which blocks match a question.

- Landmarks rank all blocks. Score of block n = sum over memory layers y, heads h and question tokens q of weight[y][h]
  * landmark logit[y, h, q, n] / Q. As the logarithm of a gate is its logit minus a term that is the same for all
  blocks, this ranks by the weighted mean log gate. It is one inner product: the weighted mean query, summed over the
  heads that share a KV head, with the block's landmark keys.
- Where the model says so (`LandmarkConfig.ranks_by_tokens`), landmarks only propose, and the keys of the proposed
  blocks' tokens rank (`model.scoring.late_interaction`); blocks that hold rare terms of the question
  (`retrieval.index.inverted_index`) and those whose vectors are nearest to it (`retrieval.index.vectors`) are proposed
  as well. Blocks gain that hold terms of the question or stand under them, whose document is called by them, or whose
  vector is near.

Axes: W weighed memory layers, G KV heads, Q question tokens, D head dim, L tokens in a block, C blocks, P blocks
proposed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.scoring.late_interaction import best_matches, block_scores, token_matches
from retrieval.engine.workspace import Workspace
from retrieval.index.blocks import MemorySnapshot
from retrieval.index.exact_text import blocks_holding
from retrieval.index.inverted_index import Postings, postings_of
from retrieval.index.snapshot import MemoryIndex, naming_damage, scope_indices
from retrieval.index.terms import asked_terms, described_name, terms_of
from retrieval.index.title_keys import TitleMatches
from retrieval.query.decide import confidence_of
from retrieval.query.numbered import blocks_of_parts, named_parts
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.passage_spans import Hit, join_neighbours
from retrieval.query.question import EncodedQuestion, check_count, encode_question
from retrieval.types.answers import Passage, asks_for_a_survey
from retrieval.types.records import Scope

# Joining neighbours takes more blocks than passages come out.
_BLOCKS_PER_PASSAGE = 4
# Landmarks propose this many blocks for each one that tokens are to find, and never fewer than FEWEST_PROPOSED.
PROPOSED_PER_BLOCK = 4
FEWEST_PROPOSED = 512
TERM_WEIGHT = 0.15
"""Added to the late-interaction score of a block that holds all terms of the question, times the tokens that the model
needs for a word of it: the more, the less it knows of the language (1.3 in English, 2.9 in German, 9.5 in Russian). Of
168 questions in other languages than English 0.552 are answered so, with 0.2 for all of them 0.522; of 500 in English
0.759 and 0.755."""
NAME_WEIGHT = 0.2
"""Added where the name of its document holds all of them. With both, one of the first eight blocks holds the answer, or
is next to one that does, for 0.871 of 465 questions about files that nothing was made for; without them for 0.785."""
VECTORS_PROPOSED = 64
VECTOR_WEIGHT = 3.0
"""Times the cosine of a block's vector with the question's, added to its score. Of 478 questions about 86 documents
that nothing was made for 0.705 are answered without vectors, 0.723 with 1.5, 0.749 with 3, before any is refused."""
MOST_EXACT = 32
"""Blocks with the exact words of a query that come first; if more hold them, they tell nothing apart."""
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
        self._kept: dict[int, Tensor] = {}  # index -> matches_QL

    def block_scores(self, indices_C: Tensor, titles_QC: Tensor) -> Tensor:
        """scores_C (float32, CPU) of blocks by the keys of their tokens and of their titles'."""
        if not len(indices_C):
            return torch.zeros(0)
        keep = len(indices_C) * len(self._queries) <= _PAIRS_KEPT
        best_QC = torch.cat([best_matches(matches_QCL) for matches_QCL in self._fetch(indices_C, keep=keep)], 1)
        numbers = indices_C.numpy()
        place_C = self._snapshot.document_N[numbers].astype(np.int64) << 32 | self._snapshot.ordinal_N[numbers]
        return block_scores(best_QC.maximum(titles_QC), torch.from_numpy(place_C))

    def of(self, indices_C: Tensor) -> Tensor:
        """matches_QCL (CPU) of some blocks, at least one; see `late_interaction.token_matches`."""
        new = [index for index in indices_C.tolist() if index not in self._kept]
        for _ in self._fetch(torch.tensor(new, dtype=torch.long), keep=True):
            pass
        return torch.stack([self._kept[index] for index in indices_C.tolist()], 1)

    def _fetch(self, indices_C: Tensor, *, keep: bool) -> Iterator[Tensor]:
        at_once = min(_BLOCKS_AT_ONCE, max(1, _PAIRS_AT_ONCE // len(self._queries)))
        for some_C in indices_C.split(at_once) if len(indices_C) else ():
            matches_QCL = token_matches(self._queries, *self._snapshot.token_keys(some_C)).cpu()
            if keep:
                self._kept.update(zip(some_C.tolist(), matches_QCL.unbind(1), strict=True))
            yield matches_QCL


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Blocks found for a question, best first, by index in the snapshot.

    `scores_C`: gate mass (0..1, over all blocks in scope 1). With `ranks_by_tokens`: the late-interaction score and
    what terms, names and vectors add to it, divided by the highest possible sum. `matched`: late-interaction scores
    alone, best first; the decision is calibrated with these.
    """

    question: EncodedQuestion
    titles: TitleMatches
    indices_C: Tensor
    scores_C: Tensor
    matched: tuple[float, ...]
    confidence: float
    """0..1, see `confidence_of`; with `ranks_by_tokens` the best score."""
    in_scope: int
    joined: Callable[[Iterable[float]], float]
    """Score of neighbouring blocks together: gate mass adds up, of late-interaction scores the best counts."""
    unmatched: float = 0.0
    """With `ranks_by_tokens`: share of the question's terms that neither a block found nor the name of its document
    holds."""
    matches: TokenMatches | None = None
    """With `ranks_by_tokens`."""


def find_blocks(
    workspace: Workspace,
    snapshot: MemorySnapshot,
    text: str,
    count: int,
    scope: Scope | None,
    *,
    without: Sequence[int] = (),
) -> SearchResult:
    """The `count` best blocks in scope. Takes its own slot at the model. `without`: ids of blocks that are left out.

    Raises `InvalidRequest` for a question that cannot be encoded, `storage.errors.DamagedMemory` if keys that must be
    read are damaged.
    """
    within = scope_indices(workspace, snapshot, scope, without)
    in_scope = snapshot.num_blocks if within is None else len(within)
    model = workspace.opened.model
    by_tokens = model.config.ranks_by_tokens
    with workspace.scheduler.for_question():
        question = encode_question(model, text)
        titles = TitleMatches(workspace.catalogue, question.queries_QWGD, model.device)
        proposed = max(FEWEST_PROPOSED, PROPOSED_PER_BLOCK * count) if by_tokens else count
        ranking = snapshot.landmarks.rank(question.mean_query_YGD, proposed, within)
        if not by_tokens:
            confidence = confidence_of(ranking, in_scope)
            gates_C = ranking.gates
            return SearchResult(
                question, titles, ranking.indices, gates_C, tuple(gates_C.tolist()), confidence, in_scope, sum
            )
        held = postings_of(workspace, snapshot, question.asked.terms, within)
        vector_E = None if (encoder := workspace.opened.encoder) is None else encoder.question(text)
        parts_P = _blocks_of_named_parts(workspace, snapshot, text, question.asked.terms, held, ranking.indices)
        proposed_P = ranking.indices
        if len(proposed_P) < in_scope:
            near_P = snapshot.nearest(vector_E, VECTORS_PROPOSED, within)
            proposed_P = torch.cat([proposed_P, torch.from_numpy(held.proposed()), parts_P, near_P]).unique()
        newest_first_C = proposed_P.sort(descending=True).values  # of equal scores the newest block wins
        titles_QC = titles.of(snapshot.documents_of(newest_first_C))
        matches = TokenMatches(snapshot, question.queries_QWGD)
        scores_C = matches.block_scores(newest_first_C, titles_QC)
    matched = scores_C.sort(descending=True, stable=True).values[:count].tolist()
    confidence = min(1.0, max(0.0, matched[0])) if matched else 0.0
    asked, weight = question.asked, term_weight(len(question.queries_QWGD), text)
    ranked_C, missing_of = _with_words(workspace, snapshot, asked.terms, held, newest_first_C, scores_C, weight)
    near_C = VECTOR_WEIGHT * snapshot.lead(vector_E, newest_first_C)
    ranked_C, most = ranked_C + near_C, 1 + weight + NAME_WEIGHT + max(near_C.tolist(), default=0.0)
    for index in parts_P.flip(0):  # the best last, so that it comes first
        ranked_C[newest_first_C == index] = ranked_C.amax() + 1e-3
    kept = ranked_C.argsort(descending=True, stable=True)[:count]
    # what a survey is asked for with ("summarise the report") need not stand in it
    missing = missing_of(kept) - asked.dates  # which have stood in other words already
    unmatched = 0.0 if asks_for_a_survey(text) else len(missing) / max(1, len(asked.terms - asked.dates))
    indices_C, shares_C = newest_first_C[kept], (ranked_C[kept] / most).clamp(0.0, 1.0)
    return SearchResult(
        question, titles, indices_C, shares_C, tuple(matched), confidence, in_scope, max, unmatched, matches
    )


def term_weight(tokens: int, text: str) -> float:
    """Added to the score of a block that holds all terms of a question of so many tokens."""
    return TERM_WEIGHT * tokens / len(text.split())


def _blocks_of_named_parts(
    workspace: Workspace,
    snapshot: MemorySnapshot,
    text: str,
    question_terms: Set[str],
    held: Postings,
    proposed_P: Tensor,
) -> Tensor:
    """Indices of blocks that begin a part which the question names by its number, in documents that it calls by name
    before others, and of these in the one that landmarks propose first."""
    named = named_parts(text)
    terms = {term for _, number in named for term in asked_terms(number)}
    holding = [held.indices_of[term] for term in terms if term in held.indices_of]
    if not holding:
        return torch.zeros(0, dtype=torch.long)
    indices_P = torch.from_numpy(np.unique(np.concatenate(holding)))
    called = _named_terms(workspace, snapshot.documents_of(indices_P), question_terms)
    near = {one: at for at, one in enumerate(dict.fromkeys(snapshot.documents_of(proposed_P)))}
    documents = sorted(called, key=lambda one: (-len(called[one]), near.get(one, len(near)), one))
    return blocks_of_parts(workspace.catalogue, snapshot, named, indices_P, documents)


def _with_words(
    workspace: Workspace,
    snapshot: MemorySnapshot,
    question_terms: Set[str],
    held: Postings,
    indices_C: Tensor,
    scores_C: Tensor,
    weight: float,
) -> tuple[Tensor, Callable[[Tensor], Set[str]]]:
    """Scores with what words and names add, and a function that gives the terms which some of these blocks, given by
    number, neither hold nor are called by."""
    document_ids = snapshot.documents_of(indices_C)
    named = _named_terms(workspace, document_ids, question_terms)
    names_C = share_of_names(question_terms, [named[document_id] for document_id in document_ids])

    def missing(kept: Tensor) -> Set[str]:
        called = set().union(*(named[document_ids[number]] for number in kept.tolist()))
        return held.missing(indices_C[kept].numpy()) - called

    return scores_C + weight * held.shares(indices_C.numpy()) + NAME_WEIGHT * names_C, missing


def _named_terms(workspace: Workspace, document_ids: Sequence[str], question_terms: Set[str]) -> dict[str, Set[str]]:
    """By document: the question's terms that it is called by."""
    names = workspace.catalogue.names(set(document_ids))
    return {id_: terms_of(described_name(*names.get(id_, ("", "")))) & question_terms for id_ in set(document_ids)}


def share_of_names(question_terms: Set[str], named_C: Sequence[Set[str]]) -> Tensor:
    """shares_C: the share of a question's terms that the name of each block's document contains, weighed by how few of
    these names contain a term."""
    if not question_terms:
        return torch.zeros(len(named_C))
    counts = Counter(term for terms in named_C for term in terms)
    rarity = {term: math.log(1 + (len(named_C) - counts[term] + 0.5) / (counts[term] + 0.5)) for term in question_terms}
    total = sum(rarity.values()) or 1.0
    return torch.tensor([sum(rarity[term] for term in terms) / total for terms in named_C])


def with_exact(
    workspace: Workspace, snapshot: MemorySnapshot, query: str, found: SearchResult, scope: Scope | None
) -> tuple[Tensor, Tensor]:
    """indices_C and scores_C of the blocks found. Blocks that contain the query word for word come first, with the
    best score."""
    exact_P = snapshot.indices_of_blocks(blocks_holding(workspace.catalogue, query, most=MOST_EXACT))
    if (within := scope_indices(workspace, snapshot, scope)) is not None:
        exact_P = exact_P[torch.isin(exact_P, within)]
    is_exact_C = torch.isin(found.indices_C, exact_P)
    unfound_P = exact_P[~torch.isin(exact_P, found.indices_C)]
    indices_C = torch.cat((found.indices_C[is_exact_C], unfound_P, found.indices_C[~is_exact_C]))
    scores_C = torch.cat((found.scores_C[is_exact_C], torch.zeros(len(unfound_P)), found.scores_C[~is_exact_C]))
    scores_C[: len(exact_P)] = scores_C.amax() if len(scores_C) else 0.0
    return indices_C, scores_C


def hits_of(snapshot: MemorySnapshot, indices_C: Tensor, scores_C: Tensor) -> list[Hit]:
    """Blocks by index with their scores, in the given order."""
    numbers = indices_C.numpy()
    columns = (
        snapshot.blocks.ids_N[numbers].tolist(),
        snapshot.documents_of(indices_C),
        snapshot.ordinal_N[numbers].tolist(),
        scores_C.tolist(),
    )
    return [Hit(*row) for row in zip(*columns, strict=True)]


def search(
    workspace: Workspace, index: MemoryIndex, passages: PassageBuilder, query: str, k: int, scope: Scope | None
) -> list[Passage]:
    """The k best passages, best first; fewer only where the scope holds fewer blocks. Passages that contain the query
    as typed come first, if they are few."""
    check_count(k)
    passages = passages.for_one_question()
    with index.open_for_question(workspace.catalogue) as snapshot:
        with naming_damage(index):
            found = find_blocks(workspace, snapshot, query, _BLOCKS_PER_PASSAGE * k, scope)
        indices_C, scores_C = with_exact(workspace, snapshot, query, found, scope)
        hits = hits_of(snapshot, indices_C, scores_C)
        return passages.passages(join_neighbours(hits, k, found.joined), found.joined)
