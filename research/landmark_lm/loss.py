"""The loss of a row: the answer's words, and which block the landmarks name.

- Words: cross-entropy of the answer's tokens, the question reading a few blocks of the row, the right ones among them.
  Every second question is blind: it reads blocks drawn without regard to what is right, and only its gates are trained,
  unless it happened to read a right one. A question that has read the right block in one layer names it easily in the
  next, which it cannot do in a library.
- Sums: a landmark's logit should be the log-sum-exp of its block's logits, which makes the grouped softmax an ordinary
  one: a teacher at every layer, head and token, which needs no answers (mean Huber distance; for the beginning).
- Gates: at the prompt's last token and at every token of the answer, the probability of the right blocks under the
  mean, over memory layers and heads, of the softmax over landmarks (InfoNCE). Landmarks of some rows before compete.

Axes: P passages, N blocks, C blocks read, Q questions, T tokens, M positions of the gate loss, K landmarks kept from
rows before, H query heads, G KV heads, L tokens of a block, D head dim.
"""

import math
import random
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.attention.rotary import rotate
from model.attention.selection import SelectionPolicy
from model.checkpoint.backbones import DynamicCache
from model.checkpoint.landmark_model import LandmarkModel, cached
from research.landmark_lm.rows import IGNORED, Row


class ReadBlocks:
    """A `MemoryReader` over the blocks of a row: question q reads reads_QC[q] in every layer and head."""

    def __init__(
        self,
        keys: dict[int, Tensor],
        values: dict[int, Tensor],
        lengths_N: Tensor,
        reads_QC: Tensor,
        rotary: nn.Module | None = None,
    ) -> None:
        """keys_NGLD and values_NGLD by layer. rotary: if given, `sums` receives the distance of every layer."""
        self._keys, self._values, self._lengths_N, self._reads_QC = keys, values, lengths_N, reads_QC
        self._rotary = rotary
        self.sums: list[Tensor] = []

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(self._keys)

    @property
    def num_blocks(self) -> int:
        return len(self._lengths_N)

    def search(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        if self._rotary is not None:
            self.sums.append(self._distance(layer, queries_BGXRD[:, :, 0]))
        return self._reads_QC[:, None, None].expand(*queries_BGXRD.shape[:3], -1)

    def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keys, values = (x[layer][self._reads_QC].transpose(1, 2).unsqueeze(2) for x in (self._keys, self._values))
        return keys, values, self._lengths_N[ids_BGXS]

    def _distance(self, layer: int, queries_QGRD: Tensor) -> Tensor:
        """Mean Huber distance of landmark logits from the log-sum-exp of their blocks, for queries in the frame of
        `MemoryReader.search`, in which the token i places before its landmark is rotated by -i."""
        keys_QGCLD = self._keys[layer][self._reads_QC].transpose(1, 2)
        size = keys_QGCLD.shape[3]
        assert self._rotary is not None
        cos, sin = (
            x[0].to(keys_QGCLD.dtype)
            for x in self._rotary(keys_QGCLD.float(), torch.arange(1 - size, 1, device=keys_QGCLD.device)[None])
        )
        with torch.no_grad():
            turned = rotate(keys_QGCLD[:, :, :, :-1], cos[:-1], sin[:-1]).flatten(2, 3)
            scores_QGRCJ = (queries_QGRD.to(turned.dtype) @ turned.mT).float().unflatten(-1, (-1, size - 1))
            hidden_QCJ = torch.arange(size - 1, device=keys_QGCLD.device) >= self._lengths_N[self._reads_QC][..., None]
            sums_QGRC = scores_QGRCJ.masked_fill(hidden_QCJ[:, None, None], -torch.inf).logsumexp(-1)
        logits_QGRC = (queries_QGRD.to(turned.dtype) @ keys_QGCLD[:, :, :, -1].mT).float()
        return nn.functional.smooth_l1_loss(logits_QGRC, sums_QGRC)


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
) -> tuple[Tensor, dict[str, float]]:
    """Mean loss of a row and what the log says of it. `most_read`: blocks that a question reads at most."""
    cache = DynamicCache()
    model.fill_cache(row.ids_PT, model.context(valid_BK=None if row.valid_PT.all() else row.valid_PT), cache)
    per_row = row.ids_PT.shape[1] // model.config.block_size
    keys, values = (
        {layer: _blocks(cached(cache, layer)[part], per_row) for layer in model.memory_layers} for part in (0, 1)
    )
    reads_QC = draw_reads(row, most_read, rng)
    rotary = model.backbone.model.rotary_emb.rotary if sum_share else None
    reader = ReadBlocks(keys, values, row.lengths_N, reads_QC, rotary)
    context = model.context(reader=reader, policy=SelectionPolicy(top_k=reads_QC.shape[1]))
    context.search_queries = {}
    hidden_QTE = model.encode(row.windows_QT, context)
    has_gold_Q, read_gold_Q = row.gold_QN.any(1), row.gold_QN.gather(1, reads_QC).any(1)
    trained_QT = row.targets_QT != IGNORED
    worded_QT = trained_QT & (read_gold_Q | ~has_gold_Q)[:, None]
    logits = word_logits(model, hidden_QTE[worded_QT])
    words = nn.functional.cross_entropy(logits, row.targets_QT[worded_QT])
    right = (logits.argmax(-1) == row.targets_QT[worded_QT]).float().mean()
    said = {"words": words.item(), "right": right.item()}
    loss = words
    if sum_share:
        sums = torch.stack(reader.sums).mean()
        loss, said["sums"] = loss + sum_share * sums, sums.item()
    landmarks = {layer: keys[layer][:, :, -1] for layer in keys}
    if has_gold_Q.any() and gate_share:
        at_QT = trained_QT & has_gold_Q[:, None]
        gates, first_A = _gate_loss(context.search_queries, landmarks, row, at_QT, kept)
        loss = loss + gate_share * gates
        blind_A = ~read_gold_Q[at_QT.any(1)]
        said |= {"gates": gates.item(), "first": first_A[blind_A if blind_A.any() else ~blind_A].mean().item()}
    kept.add(landmarks, row.document_N)
    return loss, said


def word_logits(model: LandmarkModel, hidden: Tensor) -> Tensor:
    """float32 logits of the vocabulary without the landmark, which is never said."""
    landmark = torch.tensor([model.config.landmark_token_id], device=hidden.device)
    return model.logits(hidden).float().index_fill(-1, landmark, -torch.inf)


def draw_reads(row: Row, most: int, rng: random.Random) -> Tensor:
    """reads_QC: for each question its right blocks (at most half) and others drawn at random, ascending; for every
    second one, which is blind, any blocks. Their number is drawn log-uniformly from 1..most."""
    there = (row.document_N >= 0).nonzero()[:, 0].tolist()
    count = min(len(there), round(math.exp(rng.uniform(0, math.log(most)))))
    reads = []
    for number, gold_N in enumerate(row.gold_QN):
        if number % 2:
            reads.append(sorted(rng.sample(there, count)))
            continue
        gold = gold_N.nonzero()[:, 0].tolist()
        chosen = rng.sample(gold, min(len(gold), max(1, count // 2), count))
        others = [n for n in there if n not in set(gold)]
        chosen += rng.sample(others, min(len(others), count - len(chosen)))
        chosen += [n for n in there if n not in set(chosen)][: count - len(chosen)]
        reads.append(sorted(chosen))
    return torch.tensor(reads, device=row.ids_PT.device)


def _gate_loss(
    queries: dict[int, Tensor], landmarks: dict[int, Tensor], row: Row, at_QT: Tensor, kept: LandmarkCache
) -> tuple[Tensor, Tensor]:
    """The loss, and for each question that has a right block whether one is the first of the row at its first
    position (first_A)."""
    question_M, place_M = at_QT.nonzero(as_tuple=True)
    hidden_MN = (row.document_N < 0)[None].expand(len(question_M), -1)
    old_documents = kept.documents()
    if old_documents is not None:
        own_M1 = torch.where(row.gold_QN, row.document_N, -1).amax(1)[question_M, None]
        hidden_MN = torch.cat((hidden_MN, old_documents[None] == own_M1), 1)
    votes_MN = torch.zeros(hidden_MN.shape, device=at_QT.device)
    for layer, landmarks_NGD in landmarks.items():
        queries_MHD = queries[layer][question_M, :, place_M]
        queries_MGRD = queries_MHD.unflatten(1, (landmarks_NGD.shape[1], -1))
        old_KGD = kept.of(layer)
        all_NGD = landmarks_NGD if old_KGD is None else torch.cat((landmarks_NGD, old_KGD))
        logits_MGRN = torch.einsum("mgrd,ngd->mgrn", queries_MGRD, all_NGD).float()
        votes_MN = votes_MN + logits_MGRN.masked_fill(hidden_MN[:, None, None], -torch.inf).softmax(-1).mean((1, 2))
    votes_MN = votes_MN / len(landmarks)
    num, gold_MN = row.gold_QN.shape[1], row.gold_QN[question_M]
    loss = -((votes_MN[:, :num] * gold_MN).sum(1) + 1e-6).log().mean()
    starts_M = torch.ones_like(question_M, dtype=torch.bool)
    starts_M[1:] = question_M[1:] != question_M[:-1]
    best_M = votes_MN[:, :num].argmax(1)
    return loss, gold_MN.gather(1, best_M[:, None])[:, 0][starts_M].float()


def _blocks(kv_PGTD: Tensor, per_row: int) -> Tensor:
    kv_NGLD: Tensor = kv_PGTD.unflatten(2, (per_row, -1)).transpose(1, 2).flatten(0, 1)
    return kv_NGLD
