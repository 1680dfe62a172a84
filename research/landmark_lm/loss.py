"""The loss of a row: the answer's words, and which block the landmarks name.

- Words: cross-entropy of the answer's tokens, the question reading a few blocks of the row. Every second question reads
  what each layer and KV head chooses by its landmarks, as in the product; the others are given their right blocks and
  some drawn at random. A question that is given the right block in one layer names it easily in the next, which it
  cannot do in a library.
- Sums: a landmark's logit should be the log-sum-exp of its block's logits, which makes the grouped softmax an ordinary
  one: a teacher at every layer, head and token, which needs no answers (mean Huber distance; for the beginning).
- Gates: at the prompt's last token and at every token of the answer, the probability of the right blocks under the
  mean, over memory layers and heads, of the softmax over landmarks (InfoNCE). Landmarks of some rows before compete.

Axes: P passages, W blocks of a passage, N = P x W blocks, C blocks read, Q questions, A those that choose, F those that
are taught sums, T tokens, Z trained words, M positions of the gate loss, K landmarks kept from rows before, H query
heads, G KV heads, R rows that vote together, L tokens of a block, D head dim, V vocabulary.
"""

import math
import random
from collections import deque
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from model.attention.rotary import exact_scores, rotate
from model.attention.selection import SelectionPolicy, top_blocks
from model.checkpoint.backbones import DynamicCache
from model.checkpoint.landmark_model import LandmarkModel, cached
from research.landmark_lm.rows import IGNORED, KINDS, Row

GATED = 8
"""Tokens of an answer, from the first on, at which landmarks are asked for the right block."""
TAUGHT = 32
"""Questions of a row, at most, for which landmarks are taught sums: their blocks are most of the row's."""


class ReadBlocks:
    """A `MemoryReader` over the blocks of a row. Some questions choose for themselves, as `SelectionPolicy` lets a KV
    head choose for the tokens of its prompt; the others read blocks that are given, in every layer and head."""

    def __init__(
        self, keys: dict[int, Tensor], values: dict[int, Tensor], row: Row, reads: "Reads", rotary: nn.Module | None
    ) -> None:
        """keys_PGWLD and values_PGWLD by layer. rotary: if given, `sums` receives the distance of every layer."""
        self._keys, self._values, self._row, self._reads = keys, values, row, reads
        self._rotary = rotary
        self.sums: list[Tensor] = []
        passages, self._groups, self._per_passage = next(iter(keys.values())).shape[:3]
        self.num_blocks = passages * self._per_passage

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(self._keys)

    def landmarks(self, layer: int) -> Tensor:
        """landmarks_GND."""
        return self._keys[layer][..., -1, :].transpose(0, 1).flatten(1, 2)

    def search(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        assert queries_BGXRD.shape[2] == 1, "the KV head is the voter"
        if self._rotary is not None:
            few_F = self._reads.taught_F
            self.sums.append(self._distance(layer, queries_BGXRD[:, :, 0][few_F], self._reads.given_QC[few_F]))
        ids_QGXS = self._reads.given_QC[:, None, None].repeat(1, self._groups, 1, 1)
        if len(choosing_A := self._reads.choosing_A):
            with torch.no_grad():
                ids_QGXS[choosing_A] = self._choose(layer, queries_BGXRD[:, :, 0][choosing_A], k)
        return ids_QGXS

    def _choose(self, layer: int, queries_AGRD: Tensor, k: int) -> Tensor:
        logits_AGRN = exact_scores(queries_AGRD, self.landmarks(layer))
        logits_AGRN = logits_AGRN.masked_fill(self._row.document_N < 0, -torch.inf).log_softmax(-1)
        silent_AR = ~self._row.voting_QT[self._reads.choosing_A].repeat(1, logits_AGRN.shape[2] // self._tokens)
        votes_AGN = logits_AGRN.masked_fill(silent_AR[:, None, :, None], -torch.inf).amax(-2)
        return top_blocks(votes_AGN, k)[:, :, None]

    @property
    def _tokens(self) -> int:
        return self._row.voting_QT.shape[1]

    def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keys, values = (self._blocks(held[layer], ids_BGXS) for held in (self._keys, self._values))
        return keys, values, self._row.lengths_N[ids_BGXS]

    def _blocks(self, kv_PGWLD: Tensor, ids_BGXS: Tensor) -> Tensor:
        """kv_BGXSLD, by one gather: blocks are the rows of an embedding."""
        head_G11 = torch.arange(self._groups, device=ids_BGXS.device)[:, None, None]
        place = (ids_BGXS // self._per_passage * self._groups + head_G11) * self._per_passage
        place = place + ids_BGXS % self._per_passage
        flat = nn.functional.embedding(place, kv_PGWLD.flatten(0, 2).flatten(1))
        kv_BGXSLD: Tensor = flat.unflatten(-1, kv_PGWLD.shape[-2:])
        return kv_BGXSLD

    def _distance(self, layer: int, queries_QGRD: Tensor, reads_QC: Tensor) -> Tensor:
        """Mean Huber distance of landmark logits from the log-sum-exp of their blocks, for queries in the frame of
        `MemoryReader.search`, in which the token i places before its landmark is rotated by -i."""
        ids_QG1C = reads_QC[:, None, None].expand(-1, self._groups, -1, -1)
        keys_QGCLD = self._blocks(self._keys[layer], ids_QG1C)[:, :, 0]
        size = keys_QGCLD.shape[3]
        assert self._rotary is not None
        cos, sin = (
            x[0].to(keys_QGCLD.dtype)
            for x in self._rotary(keys_QGCLD.float(), torch.arange(1 - size, 1, device=keys_QGCLD.device)[None])
        )
        with torch.no_grad():
            turned = rotate(keys_QGCLD[:, :, :, :-1], cos[:-1], sin[:-1]).flatten(2, 3)
            scores_QGRCJ = (queries_QGRD.to(turned.dtype) @ turned.mT).float().unflatten(-1, (-1, size - 1))
            hidden_QCJ = torch.arange(size - 1, device=keys_QGCLD.device) >= self._row.lengths_N[reads_QC][..., None]
            sums_QGRC = scores_QGRCJ.masked_fill(hidden_QCJ[:, None, None], -torch.inf).logsumexp(-1)
        logits_QGRC = (queries_QGRD.to(turned.dtype) @ keys_QGCLD[:, :, :, -1].mT).float()
        return nn.functional.smooth_l1_loss(logits_QGRC, sums_QGRC)


@dataclass(frozen=True, eq=False)
class Reads:
    """What the questions of a row read."""

    given_QC: Tensor
    """Blocks that are given, ascending; their number is also what a question may choose."""
    choosing_A: Tensor
    """Questions that choose for themselves instead."""
    taught_F: Tensor
    """Questions whose blocks' landmarks are taught the log-sum-exp."""

    def to(self, device: torch.device) -> "Reads":
        return Reads(*(each.to(device, non_blocking=True) for each in vars(self).values()))


@dataclass
class LandmarkCache:
    """Landmarks of the last rows, as further wrong blocks; without gradient."""

    rows: int
    _kept: deque[tuple[dict[int, Tensor], Tensor]] | None = None

    def add(self, landmarks: dict[int, Tensor], document_N: Tensor) -> None:
        """landmarks_NGD by layer, and the document of each block."""
        if self._kept is None:
            self._kept = deque(maxlen=self.rows)
        there = document_N >= 0
        self._kept.append(({y: x.detach()[there] for y, x in landmarks.items()}, document_N[there]))

    def of(self, layer: int) -> Tensor | None:
        """landmarks_KGD."""
        return torch.cat([landmarks[layer] for landmarks, _ in self._kept]) if self._kept else None

    def documents(self) -> Tensor | None:
        return torch.cat([documents for _, documents in self._kept]) if self._kept else None


def row_loss(
    model: LandmarkModel,
    row: Row,
    kept: LandmarkCache,
    *,
    gate_share: float,
    sum_share: float,
    most_read: int,
    rng: random.Random,
) -> tuple[Tensor, list[dict[str, Any]]]:
    """Mean loss of a row, and a line for the log for each kind of question in it. `row` is on the CPU, where all is
    counted that the device would be waited for. `most_read`: blocks that a question reads at most."""
    reads, padded = draw_reads(row, most_read, rng), not bool(row.valid_PT.all())
    trained_QT = row.targets_QT != IGNORED
    said_at = trained_QT.nonzero(as_tuple=True)
    gated_QT = trained_QT & row.gold_QN.any(1)[:, None] & (trained_QT.cumsum(1) <= GATED)
    gated_at = gated_QT.nonzero(as_tuple=True)
    kind_of_said, kind_of_asked = row.kind_Q[said_at[0]], row.kind_Q
    row, reads = row.to(model.device), reads.to(model.device)

    cache = DynamicCache()
    model.fill_cache(row.ids_PT, model.context(valid_BK=row.valid_PT if padded else None), cache)
    keys, values = (
        {y: cached(cache, y)[part].unflatten(2, (-1, model.config.block_size)) for y in model.memory_layers}
        for part in (0, 1)
    )
    rotary = model.backbone.model.rotary_emb.rotary if sum_share else None
    reader = ReadBlocks(keys, values, row, reads, rotary)
    context = model.context(reader=reader, policy=SelectionPolicy(top_k=reads.given_QC.shape[1], voters="group"))
    context.search_queries = {}
    hidden_QTE = model.encode(row.windows_QT, context)
    question_Z, token_Z = (each.to(model.device) for each in said_at)
    logits_ZV, right_Z = word_logits(model, hidden_QTE[question_Z, token_Z]), row.targets_QT[question_Z, token_Z]
    losses_Z = nn.functional.cross_entropy(logits_ZV, right_Z, reduction="none")
    loss, told = losses_Z.mean(), [losses_Z.detach(), (logits_ZV.argmax(-1) == right_Z).float()]
    if sum_share:
        sums = torch.stack(reader.sums).mean()
        loss = loss + sum_share * sums
        told.append(sums.detach()[None])
    if len(gated_at[0]) and gate_share:
        gates, first_Q = _gate_loss(context.search_queries, reader, row, gated_at, kept)
        loss = loss + gate_share * gates
        told += [gates.detach()[None], first_Q]
    kept.add({layer: reader.landmarks(layer).transpose(0, 1) for layer in keys}, row.document_N)
    lines = _lines(torch.cat(told).tolist(), kind_of_said, kind_of_asked, sums=bool(sum_share))
    return loss, lines


def _lines(told: list[float], kind_Z: Tensor, kind_Q: Tensor, *, sums: bool) -> list[dict[str, Any]]:
    """`told`: loss and whether right of every word, the distance if `sums`, and where there are gates their loss and
    for each question whether a right block is first; -1 where none is right."""
    words, right, rest = told[: len(kind_Z)], told[len(kind_Z) : 2 * len(kind_Z)], told[2 * len(kind_Z) :]
    whole = {"sums": rest.pop(0)} if sums else {}
    if rest:
        whole["gates"] = rest.pop(0)
    lines = []
    for number, kind in enumerate(KINDS):
        mine = [word for word, k in enumerate(kind_Z.tolist()) if k == number]
        if mine:
            line: dict[str, Any] = {"kind": kind, "words": fmean(words[word] for word in mine)}
            line["right"] = fmean(right[word] for word in mine)
            first = [each for each, k in zip(rest, kind_Q.tolist(), strict=False) if k == number and each >= 0]
            lines.append(line | ({"first": fmean(first)} if first else {}) | whole)
    return lines


def word_logits(model: LandmarkModel, hidden: Tensor) -> Tensor:
    """float32 logits of the vocabulary without the landmark, which is never said."""
    landmark = torch.tensor([model.config.landmark_token_id], device=hidden.device)
    return model.logits(hidden).float().index_fill(-1, landmark, -torch.inf)


def draw_reads(row: Row, most: int, rng: random.Random) -> Reads:
    """For each question its right blocks (at most half) and others drawn at random; every second one chooses. Their
    number is drawn log-uniformly from 1..most."""
    there = (row.document_N >= 0).nonzero()[:, 0].tolist()
    count = min(len(there), round(math.exp(rng.uniform(0, math.log(most)))))
    given = []
    for gold_N in row.gold_QN:
        gold = gold_N.nonzero()[:, 0].tolist()
        chosen = rng.sample(gold, min(len(gold), max(1, count // 2)))
        others = rng.sample(there, min(len(there), count + len(gold)))
        others = [
            n for n in sorted(others, key=gold.__contains__) if n not in chosen
        ]  # right ones where no other is left
        given.append(sorted(chosen + others[: count - len(chosen)]))
    numbers = torch.arange(len(given))
    return Reads(torch.tensor(given), numbers[1::2], numbers[::2][:TAUGHT])


def _gate_loss(
    queries: dict[int, Tensor],
    reader: ReadBlocks,
    row: Row,
    at: tuple[Tensor, ...],
    kept: LandmarkCache,
) -> tuple[Tensor, Tensor]:
    """The loss at these questions and tokens, and for each question whether one of its right blocks is the first of the
    row at its first token there (first_Q; -1 for questions without any)."""
    question_M, place_M = (each.to(row.gold_QN.device) for each in at)
    hidden_MN = (row.document_N < 0)[None].expand(len(question_M), -1)
    old_documents = kept.documents()
    if old_documents is not None:
        own_M1 = torch.where(row.gold_QN, row.document_N, -1).amax(1)[question_M, None]
        hidden_MN = torch.cat((hidden_MN, old_documents[None] == own_M1), 1)
    votes_MN = torch.zeros(hidden_MN.shape, device=hidden_MN.device)
    for layer in reader.layers:
        queries_MHD = queries[layer][question_M, :, place_M]
        landmarks_GND, old_KGD = reader.landmarks(layer), kept.of(layer)
        if old_KGD is not None:
            landmarks_GND = torch.cat((landmarks_GND, old_KGD.transpose(0, 1)), 1)
        queries_GMRD = queries_MHD.unflatten(1, (len(landmarks_GND), -1)).transpose(0, 1)
        logits_GMRN = (queries_GMRD.flatten(1, 2) @ landmarks_GND.mT).float().unflatten(1, queries_GMRD.shape[1:3])
        votes_MN = votes_MN + logits_GMRN.masked_fill(hidden_MN[:, None], -torch.inf).softmax(-1).mean((0, 2))
    votes_MN = votes_MN / len(reader.layers)
    num, gold_MN = row.gold_QN.shape[1], row.gold_QN[question_M]
    loss = -((votes_MN[:, :num] * gold_MN).sum(1) + 1e-6).log().mean()
    starts = [m for m, each in enumerate(at[0].tolist()) if m == 0 or each != int(at[0][m - 1])]
    starts_M = torch.tensor(starts, device=gold_MN.device)
    best_M = votes_MN[starts_M, :num].argmax(1)
    first_Q = torch.full((len(row.gold_QN),), -1.0, device=gold_MN.device)
    first_Q[question_M[starts_M]] = gold_MN[starts_M].gather(1, best_M[:, None])[:, 0].float()
    return loss, first_Q
