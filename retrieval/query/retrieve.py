"""Retrieve: search narrows the memory to the candidates, the blocks that an answer may read.

Inside a question a block is known by its index in the snapshot (`indices_*`; ascending block ids) as long as search
looks at all of them. From the choice of candidates on it is its number c in 0..C-1, in ascending order of these:
`Candidates.memory`, attention's selections, evidence and quotations all count so. Ids of the catalogue are for what is
stored or shown. None of these is a position in attention (`model.attention.positions`).

Axes: N blocks of the snapshot, C candidates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from model.checkpoint.config import LandmarkConfig
from model.checkpoint.landmark_model import LandmarkModel
from retrieval.engine.workspace import Workspace
from retrieval.index.blocks import MemorySnapshot, StoredMemoryReader
from retrieval.index.snapshot import MemoryIndex, naming_damage, scope_indices
from retrieval.query.decide import is_answerable
from retrieval.query.follow_up import TURNS, with_conversation
from retrieval.query.passage_spans import Hit
from retrieval.query.question import Question
from retrieval.query.search import SearchResult, find_blocks, hits_of
from retrieval.types.answers import Space
from retrieval.types.writer import Turn

CANDIDATES_PER_PASSAGE = 4
MORE_READ = 0.5
"""Further blocks behind the k best, as a share of k, that a sentence may be quoted from, without their neighbours. Of
388 questions the answer is in the eight best blocks for 0.869, in the twelve best for 0.895."""
MOST_LOGITS = 16_000_000
"""Layers x heads x blocks whose landmarks one token may compare (docs/landmark-attention.md, section 5)."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """`quotable_C`: whether a quotation may come from the block. `rank_C`: its rank in the search; neighbours of blocks
    found come last. `space`: "memory" where search left out nothing in scope. `apart`: whether some were left out on
    purpose, so that nothing of them is read."""

    snapshot: MemorySnapshot
    indices_C: Tensor
    quotable_C: Tensor
    rank_C: Sequence[int]
    space: Space = "candidates"
    apart: bool = False

    def __len__(self) -> int:
        return len(self.indices_C)

    @cached_property
    def block_ids(self) -> list[int]:
        ids: list[int] = self.snapshot.blocks.ids_N[self.indices_C.numpy()].tolist()
        return ids

    @cached_property
    def document_ids(self) -> list[str]:
        return self.snapshot.documents_of(self.indices_C)

    def retrieval_scores(self, scores_F: Tensor) -> Tensor:
        """scores_C of the candidates, from those of the blocks found (best first); 0 for neighbours of these."""
        padded = torch.cat((scores_F, torch.zeros(1)))
        return padded[torch.tensor(self.rank_C, dtype=torch.long).clamp_max(len(scores_F))]

    def without(self, indices: Tensor) -> Candidates:
        """Without some blocks of the snapshot."""
        kept_C = ~torch.isin(self.indices_C, indices)
        ranks = [rank for rank, kept in zip(self.rank_C, kept_C.tolist(), strict=True) if kept]
        quotable_C = self.quotable_C[kept_C]
        return replace(self, indices_C=self.indices_C[kept_C], quotable_C=quotable_C, rank_C=ranks, apart=True)

    @property
    def is_everything(self) -> bool:
        """Whether no block of the snapshot is left out."""
        return len(self) == self.snapshot.num_blocks

    @cached_property
    def memory(self) -> StoredMemoryReader:
        """What attention reads: the same for every pass of the question, since it may hold the blocks."""
        return self.snapshot.reader(None if self.is_everything else self.indices_C)

    def hits(self, order: Sequence[int], scores_C: Tensor) -> list[Hit]:
        """Some candidates with their scores, in the given order."""
        return hits_of(self.snapshot, self.indices_C[order], scores_C[order])


@dataclass(frozen=True, eq=False)
class Retrieved:
    """What search found for a question, and what an answer may read of it."""

    standalone_question: str
    """The question, made to stand alone with words of the conversation before it."""
    search_result: SearchResult
    candidates: Candidates
    quote: bool
    answerable: bool
    """Whether to look for an answer."""
    sure: bool
    """Whether search alone is confident that the memory holds one."""
    forced: bool
    """Whether one is given only because the user asked for the nearest (`Question.anyway`)."""
    finished_at: float
    """By `time.perf_counter`."""

    @property
    def block_ids(self) -> list[int]:
        """Ids of the blocks found and of those that may be quoted, so that their rows are read together."""
        indices = torch.cat((self.search_result.indices_C, self.candidates.indices_C[self.candidates.quotable_C]))
        ids: list[int] = self.candidates.snapshot.blocks.ids_N[indices.numpy()].tolist()
        return ids


def retrieve(
    workspace: Workspace,
    index: MemoryIndex,
    snapshot: MemorySnapshot,
    question: Question,
    asked: str | None = None,
) -> Retrieved:
    """Search, and choose the candidates. `asked`: what search is asked, unless it is the question made to stand alone.
    Raises as `find_blocks`, but `DamagedMemory` names the document."""
    config = workspace.opened.model.config
    standalone = with_conversation(question.text, earlier_questions(workspace, question)) if asked is None else asked
    with naming_damage(index):
        count = CANDIDATES_PER_PASSAGE * question.k
        found = find_blocks(workspace, snapshot, standalone, count, question.scope, without=question.without)
    finished_at = time.perf_counter()
    quote = config.quotes if question.quote is None else question.quote
    if not quote and chooses_from_all(workspace.opened.model, found.in_scope):
        candidates = whole_scope(snapshot, scope_indices(workspace, snapshot, question.scope))
    else:
        candidates = choose_candidates(
            snapshot, found, config, question.k, whole_sentences=quote and config.quotes_sentences
        )
    if question.without:  # they may be neighbours of blocks found
        candidates = candidates.without(snapshot.indices_of_blocks(question.without))
    ranker = workspace.opened.ranker
    sure = is_answerable(ranker.decision, found.confidence, found.in_scope, by_tokens=config.ranks_by_tokens)
    weighs = ranker.weighs_reading and quote and config.quotes_sentences
    answerable = len(candidates) > 0 and (sure or weighs or question.anyway)
    forced = answerable and not sure and not weighs
    return Retrieved(standalone, found, candidates, quote, answerable, sure, forced, finished_at)


def earlier_turns(workspace: Workspace, question: Question, most: int) -> list[Turn]:
    """The conversation's last turns, oldest first; at most so many of a stored one."""
    if question.conversation_id is None:
        return list(question.earlier)
    heads = workspace.catalogue.answers(conversation_id=question.conversation_id, limit=most)
    return [Turn(head.question, head.text) for head in reversed(heads)]


def earlier_questions(workspace: Workspace, question: Question) -> list[str]:
    """The conversation's last questions, oldest first."""
    return [turn.question for turn in earlier_turns(workspace, question, TURNS)]


def chooses_from_all(model: LandmarkModel, blocks: int) -> bool:
    """Whether a model that writes may let every layer and head choose from all of so many blocks."""
    return model.is_causal_lm and len(model.memory_layers) * model.num_heads * blocks <= MOST_LOGITS


def whole_scope(snapshot: MemorySnapshot, within: Tensor | None) -> Candidates:
    """Every block in scope, for attention to choose from; none of them is quoted."""
    indices_C = torch.arange(snapshot.num_blocks) if within is None else within
    return Candidates(snapshot, indices_C, torch.zeros_like(indices_C, dtype=torch.bool), (), "memory")


def choose_candidates(
    snapshot: MemorySnapshot, found: SearchResult, config: LandmarkConfig, k: int, *, whole_sentences: bool
) -> Candidates:
    """What an answer of at most k passages may read. `whole_sentences`: also the neighbours of the k best, so that a
    sentence that crosses blocks can be quoted whole; nothing else is quoted then."""
    # Every layer chooses again by landmarks, among many blocks; tokens that decided are not overruled.
    best_C = found.indices_C[:k] if config.ranks_by_tokens else found.indices_C
    quotable_C = best_C
    if whole_sentences:
        document_N, ordinal_N = torch.from_numpy(snapshot.document_N), torch.from_numpy(snapshot.ordinal_N)
        more_C = found.indices_C[k : k + int(MORE_READ * k)]
        quotable_C = _distinct(with_neighbours(found.indices_C[:k], document_N, ordinal_N), more_C)
    indices_C = _distinct(best_C, quotable_C)
    rank = {index: number for number, index in enumerate(found.indices_C.tolist())}
    ranks = [rank.get(index, len(rank)) for index in indices_C.tolist()]
    return Candidates(snapshot, indices_C, torch.isin(indices_C, quotable_C), ranks)


def with_neighbours(indices_C: Tensor, document_N: Tensor, ordinal_N: Tensor) -> Tensor:
    """Ascending indices, with the block before and after each in its document."""
    found = [indices_C]
    for step in (-1, 1):
        beside_C = (indices_C + step).clamp(0, len(document_N) - 1)
        same_C = document_N[beside_C] == document_N[indices_C]
        found.append(beside_C[same_C & ((ordinal_N[beside_C] - ordinal_N[indices_C]).abs() == 1)])
    return _distinct(*found)


def _distinct(*indices: Tensor) -> Tensor:
    """Ascending, each once."""
    return torch.from_numpy(np.unique(torch.cat(indices).numpy()))
