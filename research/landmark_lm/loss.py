"""The loss of a row: the answer's words, and which block the landmarks name.

- Words: cross-entropy of the answer's tokens, the question reading a few blocks of the row. Every second question reads
  what each layer and KV head chooses by its landmarks, as in the product; the others are given their right blocks and
  some drawn at random. A question that is given the right block in one layer names it easily in the next, which it
  cannot do in a library.
- Sums: a landmark's logit should be the log-sum-exp of its block's logits, which makes the grouped softmax an ordinary
  one: a teacher at every layer, head and token, which needs no answers (mean Huber distance; for the beginning).
- Choices: the votes by which a KV head chooses in the product (`SelectionPolicy`, voters "group") should name a right
  block, in every memory layer.
- Gates: at the prompt's last token and at every token of the answer, the probability of the right blocks under the
  mean, over memory layers and heads, of the softmax over landmarks (InfoNCE). Landmarks of some steps before compete.

What is counted is counted on the CPU (`prepare`), and every step has the same shapes: the rest can be replayed as a
CUDA graph, in which the host cannot wait for the device.

Axes: P passages, W blocks of a passage, N = P x W blocks, C blocks read, Q questions, F those that are taught sums, T
tokens, Z trained words, M positions of the gate loss, K landmarks kept from steps before, H query heads, G KV heads, R
rows that vote together, L tokens of a block, D head dim, V vocabulary.
"""

import random
from dataclasses import dataclass, field
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
WORDS = 12
"""Trained words a question, in the mean of a row at most; what is beyond that is left out."""
DOUBT = 0.01
"""Added to the probability of the right blocks in a choice: a head that finds nothing yet pulls less hard."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A row, what its questions read, and where its losses are. All steps of a run have the same shapes, but for C."""

    row: Row
    given_QC: Tensor
    """Blocks that are given, ascending; their number is also what a question may choose."""
    chooses_Q: Tensor
    """Which questions choose for themselves instead."""
    taught_F: Tensor
    """Questions whose blocks' landmarks are taught the log-sum-exp."""
    said_Z2: Tensor
    """Question and token of each trained word; those behind the first `num_said` are padding."""
    gated_M2: Tensor
    """The same for the gates: `GATED` places a question, of which the first is the prompt's last token."""
    real_M: Tensor
    sum_share: Tensor
    """Weight of the log-sum-exp teacher in this step."""
    num_said: Tensor

    def tensors(self) -> list[Tensor]:
        """All of them, in a fixed order."""
        return [*vars(self.row).values(), *(each for name, each in vars(self).items() if name != "row")]

    def to(self, device: torch.device) -> "Prepared":
        """The same on a device; a copy where it is there already."""
        rest = {name: each.to(device, copy=True) for name, each in vars(self).items() if name != "row"}
        return Prepared(row=Row(**{name: each.to(device, copy=True) for name, each in vars(self.row).items()}), **rest)


def prepare(row: Row, *, most_read: int, rng: random.Random, sum_share: float = 0.0) -> Prepared:
    """What a step needs besides the weights; all on the CPU. `most_read`: blocks that a question reads at most."""
    given_QC = draw_reads(row, most_read, rng)
    number_Q = torch.arange(len(row.kind_Q))
    trained_QT = row.targets_QT != IGNORED
    said_Z2 = trained_QT.nonzero()
    room = WORDS * len(number_Q)
    if len(said_Z2) > room:
        said_Z2 = said_Z2[sorted(rng.sample(range(len(said_Z2)), room))]
    order_QT = trained_QT.cumsum(1)
    gated_QT = trained_QT & row.gold_QN.any(1)[:, None] & (order_QT <= GATED)
    gated_M2 = torch.zeros(len(number_Q), GATED, 2, dtype=torch.long)
    gated_M2[..., 0] = number_Q[:, None]
    real_M = torch.zeros(len(number_Q), GATED, dtype=torch.bool)
    for question, token in gated_QT.nonzero().tolist():
        at = int(order_QT[question, token]) - 1
        gated_M2[question, at, 1], real_M[question, at] = token, True
    return Prepared(
        row=row,
        given_QC=given_QC,
        chooses_Q=number_Q % 2 == 1,
        taught_F=number_Q[::2][:TAUGHT],
        said_Z2=nn.functional.pad(said_Z2, (0, 0, 0, room - len(said_Z2))),
        gated_M2=gated_M2.flatten(0, 1),
        real_M=real_M.flatten(),
        sum_share=torch.tensor(sum_share),
        num_said=torch.tensor(len(said_Z2)),
    )


class ReadBlocks:
    """A `MemoryReader` over the blocks of a row. Some questions choose for themselves, as `SelectionPolicy` lets a KV
    head choose for the tokens of its prompt; the others read blocks that are given, in every layer and head."""

    def __init__(self, keys: dict[int, Tensor], values: dict[int, Tensor], step: Prepared, rotary: nn.Module) -> None:
        """keys_PGWLD and values_PGWLD by layer."""
        self._keys, self._values, self._step, self._row = keys, values, step, step.row
        self._rotary = rotary
        self.sums: list[Tensor] = []
        """Of every layer: how far landmarks are from what their blocks weigh."""
        self.choices: list[Tensor] = []
        """Of every layer: the loss of the votes, and how many of those that choose had a right block."""
        passages, self._groups, self._per_passage = next(iter(keys.values())).shape[:3]
        self.num_blocks = passages * self._per_passage
        self._asking_Q = (self._row.kind_Q >= 0) & self._row.gold_QN.any(1)

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(self._keys)

    def landmarks(self, layer: int) -> Tensor:
        """landmarks_GND."""
        return self._keys[layer][..., -1, :].transpose(0, 1).flatten(1, 2)

    def search(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        assert queries_BGXRD.shape[2] == 1, "the KV head is the voter"
        self.sums.append(self._distance(layer, queries_BGXRD[:, :, 0][self._step.taught_F]))
        votes_QGN = self._votes(layer, queries_BGXRD[:, :, 0])
        chosen_QGXS = top_blocks(votes_QGN.detach(), k)[:, :, None]
        self.choices.append(self._choice(votes_QGN, chosen_QGXS))
        given_QGXS = self._step.given_QC[:, None, None].expand_as(chosen_QGXS)
        return torch.where(self._step.chooses_Q[:, None, None, None], chosen_QGXS, given_QGXS)

    def _votes(self, layer: int, queries_QGRD: Tensor) -> Tensor:
        """votes_QGN: the largest log-probability that a token of the prompt gives a block, in any head of the group."""
        logits_QGRN = exact_scores(queries_QGRD, self.landmarks(layer))
        logits_QGRN = logits_QGRN.masked_fill(self._row.document_N < 0, -torch.inf).log_softmax(-1)
        voting_QT = self._row.voting_QT
        silent_QR = ~voting_QT.repeat(1, logits_QGRN.shape[2] // voting_QT.shape[1])
        return logits_QGRN.masked_fill(silent_QR[:, None, :, None], -torch.inf).amax(-2)

    def _choice(self, votes_QGN: Tensor, chosen_QGXS: Tensor) -> Tensor:
        """The mean, over questions and KV heads, of -log of the share of the right blocks in the votes; and the share
        of those questions that choose, and their KV heads, that have a right block among the chosen."""
        gold_QGN = self._row.gold_QN[:, None].expand_as(votes_QGN)
        share_QG = (votes_QGN.softmax(-1) * gold_QGN).sum(-1)
        loss = _mean(-(share_QG + DOUBT).log().mean(1), self._asking_Q)
        found_QG = gold_QGN.gather(2, chosen_QGXS[:, :, 0]).any(-1)
        return torch.stack((loss, _mean(found_QG.float().mean(1), self._asking_Q & self._step.chooses_Q)))

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

    def _distance(self, layer: int, queries_FGRD: Tensor) -> Tensor:
        """Mean Huber distance of landmark logits from the log-sum-exp of their blocks, for queries in the frame of
        `MemoryReader.search`, in which the token i places before its landmark is rotated by -i."""
        few_F, row = self._step.taught_F, self._row
        reads_FC = self._step.given_QC[few_F]
        real_FT = row.voting_QT[few_F] | (row.targets_QT[few_F] != IGNORED)
        real_FT &= (row.kind_Q[few_F] >= 0)[:, None]
        real_FR = real_FT.repeat(1, queries_FGRD.shape[2] // real_FT.shape[1])
        ids_FG1C = reads_FC[:, None, None].expand(-1, self._groups, -1, -1)
        keys_FGCLD = self._blocks(self._keys[layer], ids_FG1C)[:, :, 0]
        size = keys_FGCLD.shape[3]
        cos, sin = (
            x[0].to(keys_FGCLD.dtype)
            for x in self._rotary(keys_FGCLD.float(), torch.arange(1 - size, 1, device=keys_FGCLD.device)[None])
        )
        with torch.no_grad():
            turned = rotate(keys_FGCLD[:, :, :, :-1], cos[:-1], sin[:-1]).flatten(2, 3)
            scores_FGRCJ = (queries_FGRD.to(turned.dtype) @ turned.mT).float().unflatten(-1, (-1, size - 1))
            hidden_FCJ = torch.arange(size - 1, device=keys_FGCLD.device) >= row.lengths_N[reads_FC][..., None]
            sums_FGRC = scores_FGRCJ.masked_fill(hidden_FCJ[:, None, None], -torch.inf).logsumexp(-1)
        logits_FGRC = (queries_FGRD.to(turned.dtype) @ keys_FGCLD[:, :, :, -1].mT).float()
        distance_FGRC = nn.functional.smooth_l1_loss(logits_FGRC, sums_FGRC, reduction="none")
        return _mean(distance_FGRC.mean((1, 3)), real_FR)


@dataclass
class LandmarkCache:
    """Landmarks of the last steps, as further wrong blocks; without gradient."""

    steps: int
    _landmarks: dict[int, Tensor] = field(default_factory=dict)
    _documents: Tensor | None = None

    def add(self, landmarks: dict[int, Tensor], document_N: Tensor) -> None:
        """landmarks_NGD by layer, and the document of each block. In place, so that a graph can do it."""
        if not self.steps:
            return
        if self._documents is None:
            self._documents = document_N.new_full((self.steps * len(document_N),), -1)
            self._landmarks = {y: x.detach().repeat(self.steps, 1, 1) for y, x in landmarks.items()}
        for kept, new in ((self._documents, document_N), *((self._landmarks[y], x) for y, x in landmarks.items())):
            kept.copy_(torch.cat((kept[len(new) :], new.detach())))

    def of(self, layer: int) -> Tensor | None:
        """landmarks_KGD."""
        return self._landmarks.get(layer)

    def documents(self) -> Tensor | None:
        """document_K; -1 where there is none yet."""
        return self._documents


def step_loss(
    model: LandmarkModel, step: Prepared, kept: LandmarkCache, *, gate_share: float, choice_share: float
) -> tuple[Tensor, Tensor]:
    """Loss of a step whose tensors are on the model's device, and what `told_lines` reads. No host synchronisation."""
    row, cache = step.row, DynamicCache()
    model.fill_cache(row.ids_PT, model.context(valid_BK=row.valid_PT), cache)
    keys, values = (
        {y: cached(cache, y)[part].unflatten(2, (-1, model.config.block_size)) for y in model.memory_layers}
        for part in (0, 1)
    )
    reader = ReadBlocks(keys, values, step, model.backbone.model.rotary_emb.rotary)
    context = model.context(reader=reader, policy=SelectionPolicy(top_k=step.given_QC.shape[1], voters="group"))
    context.search_queries = {}
    hidden_QTE = model.encode(row.windows_QT, context)
    question_Z, token_Z = step.said_Z2.unbind(1)
    said_Z = torch.arange(len(question_Z), device=question_Z.device) < step.num_said
    logits_ZV = word_logits(model, hidden_QTE[question_Z, token_Z])
    right_Z = row.targets_QT[question_Z, token_Z]
    losses_Z = nn.functional.cross_entropy(logits_ZV, right_Z, reduction="none", ignore_index=IGNORED)
    words, sums = _mean(losses_Z, said_Z), torch.stack(reader.sums).mean()
    choices, found = torch.stack(reader.choices).mean(0).unbind()
    gates, first_Q = _gate_loss(context.search_queries, reader, step, kept)
    kept.add({layer: reader.landmarks(layer).transpose(0, 1) for layer in keys}, row.document_N)
    loss = words + step.sum_share * sums + gate_share * gates + choice_share * choices
    whole = torch.stack((loss, sums, choices, found, gates)).detach()
    return loss, torch.cat((whole, first_Q, losses_Z.detach(), (logits_ZV.argmax(-1) == right_Z).float()))


def told_lines(step: Prepared, told: list[float]) -> tuple[float, list[dict[str, Any]]]:
    """The loss, and a line for the log for each kind of question in a step; `step` as it was prepared."""
    loss, *rest = told[:5]
    whole = dict(zip(("sums", "choices", "found", "gates"), rest, strict=True))
    first, words = told[5 : 5 + len(step.chooses_Q)], told[5 + len(step.chooses_Q) :]
    right, count = words[len(words) // 2 :], int(step.num_said)
    kind_Z = step.row.kind_Q[step.said_Z2[:count, 0]].tolist()
    lines = []
    for number, kind in enumerate(KINDS):
        mine = [word for word, k in enumerate(kind_Z) if k == number]
        if mine:
            line: dict[str, Any] = {"kind": kind, "words": fmean(words[word] for word in mine)}
            line["right"] = fmean(right[word] for word in mine)
            asked = [each for each, k in zip(first, step.row.kind_Q.tolist(), strict=True) if k == number and each >= 0]
            lines.append(line | ({"first": fmean(asked)} if asked else {}) | whole)
    return loss, lines


def _mean(x: Tensor, real: Tensor) -> Tensor:
    """Mean of those that are real; 0 of none."""
    return torch.where(real, x, 0.0).sum() / real.sum().clamp_min(1)


def word_logits(model: LandmarkModel, hidden: Tensor) -> Tensor:
    """float32 logits of the vocabulary without the landmark, which is never said."""
    logits = model.logits(hidden).float()
    vocabulary = torch.arange(logits.shape[-1], device=logits.device)
    return logits.masked_fill(vocabulary == model.config.landmark_token_id, -torch.inf)


def draw_reads(row: Row, most: int, rng: random.Random) -> Tensor:
    """given_QC: for each question its right blocks (at most half) and others drawn at random. C is a power of two,
    drawn uniformly from those up to `most`; of fewer blocks all are given."""
    there = (row.document_N >= 0).nonzero()[:, 0].tolist()
    count = min(len(there), 1 << rng.randrange(most.bit_length()))
    given = []
    for gold_N in row.gold_QN:
        gold = gold_N.nonzero()[:, 0].tolist()
        chosen = rng.sample(gold, min(len(gold), max(1, count // 2)))
        others = rng.sample(there, min(len(there), count + len(gold)))
        others = [
            n for n in sorted(others, key=gold.__contains__) if n not in chosen
        ]  # right ones where no other is left
        given.append(sorted(chosen + others[: count - len(chosen)]))
    return torch.tensor(given)


def _gate_loss(
    queries: dict[int, Tensor], reader: ReadBlocks, step: Prepared, kept: LandmarkCache
) -> tuple[Tensor, Tensor]:
    """The loss at the places of the gates, and for each question that chooses whether one of its right blocks is the
    first of the row at its prompt's last token (first_Q; -1 for the others)."""
    row, (question_M, place_M) = step.row, step.gated_M2.unbind(1)
    hidden_MN = (row.document_N < 0)[None].expand(len(question_M), -1)
    old_documents = kept.documents()
    if old_documents is not None:
        own_M1 = torch.where(row.gold_QN, row.document_N, -1).amax(1)[question_M, None]
        hidden_MN = torch.cat((hidden_MN, (old_documents[None] == own_M1) | (old_documents < 0)), 1)
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
    loss = _mean(-((votes_MN[:, :num] * gold_MN).sum(1) + 1e-6).log(), step.real_M)
    best_Q = votes_MN[::GATED, :num].argmax(1)
    first_Q = row.gold_QN.gather(1, best_Q[:, None])[:, 0].float()
    return loss, torch.where(step.real_M[::GATED] & step.chooses_Q, first_Q, -1.0)
