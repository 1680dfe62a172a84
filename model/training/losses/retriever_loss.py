"""Training of the memory layer: a sentence encoder shows what each token means, questions show what they look for.

One loss of eight parts, all on rows that are encoded once:

- states: the key of every token comes near the encoder's state of the same characters (the encoder sees the block
  whole, the network only what stands before: it learns to guess).
- pooled: the key of every landmark comes near the mean of the encoder's states over its block.
- late: questions, encoded on their own, find their block among all blocks of the batch by late interaction over token
  keys (see `model.scoring.late_interaction`); landmarks: the same by the inner product of the mean query and the
  landmark.
- sentences: they find the sentence that holds the answer among all sentences of the batch, scored as quoting scores.
- span: the query of the answer token meets the key of the answer's first token, that of the end token behind it the
  last one's, among all tokens of the row.
- points: the pointing head finds where the answer stands, or that it does not, among the gold blocks and those of the
  batch that look most like them to the question; so the keys learn to hold what the head needs.
- text: the next token, on a sample of the positions.

The question never attends to a block: a question that has read the gold block learns to recognise what it just read.
Axes: R rows, T tokens, N blocks (R x W), L tokens in a block, Q questions, F tokens of all questions, S sentences,
E all heads' dimensions together.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, normalize
from transformers import DynamicCache

from model.attention.selection import SelectionPolicy
from model.checkpoint.landmark_model import LandmarkModel, cached
from model.training.losses.next_token import summed_cross_entropy
from model.training.losses.span_loss import SpanBatch, span_loss


@dataclass(frozen=True)
class DistillationBatch:
    """One micro-batch; every tensor on the block grid, padding on the right."""

    ids_RT: Tensor
    valid_RT: Tensor
    states_RTE: Tensor
    """The encoder's states by token; 0 where it has none (landmarks, blanks, padding)."""
    pooled_NE: Tensor
    """The encoder's mean state by block, 0 for empty blocks."""
    titles_RT: Tensor
    """The title of the row's document, behind an opening (`model.inference.titles`)."""
    titled_RT: Tensor
    """True at tokens of the title itself; nowhere if there is none."""
    asked_QT: Tensor
    asked_there_QT: Tensor
    """True at tokens of the question itself, False in the prompt around it and at padding."""
    asked_states_QTE: Tensor
    gold_QN: Tensor
    ignored_QN: Tensor
    """Blocks that are neither right nor wrong: empty, or perhaps an answer, too (see `TaughtRowMaker`)."""
    spans_Q2: Tensor
    """First and last token of the answer, as places in all blocks' raw tokens; -1 where unknown."""
    sentence_NJ: Tensor
    """Number of the sentence that a raw token belongs to; -1 in none that can be an answer."""
    elsewhere_QNJ: Tensor
    """True at raw tokens that say the answer in another place: neither right nor wrong."""
    silent_Q: Tensor
    """True where the answer stands nowhere: its passage does not say it."""
    withheld_Q: Tensor
    """True where the head shall not be shown the gold blocks, to learn what that looks like."""


@dataclass(frozen=True, kw_only=True)
class RetrieverLossWeights:
    """Weights of the parts of the loss."""

    states: float = 3.0
    pooled: float = 1.0
    late: float = 0.5
    landmarks: float = 0.3
    sentences: float = 0.5
    span: float = 0.1
    points: float = 0.8
    pointed_blocks: int = 6
    """Blocks that the head is shown for each question."""
    text: float = 0.1
    text_positions: int = 384


class RetrieverTrainer(nn.Module):
    """A landmark model, the frame in which its keys are compared with the encoder's states, and two temperatures."""

    frame_EE: Tensor

    def __init__(self, model: LandmarkModel, frame_EE: Tensor, shares: RetrieverLossWeights | None = None) -> None:
        super().__init__()
        self.model = model
        self.shares = shares or RetrieverLossWeights()
        self.register_buffer("frame_EE", frame_EE.detach().clone())
        self.log_scale_late = nn.Parameter(torch.tensor(3.4))
        self.log_scale_landmarks = nn.Parameter(torch.tensor(2.0))
        self.log_scale_sentences = nn.Parameter(torch.tensor(3.4))
        self.log_scale_span = nn.Parameter(torch.tensor(4.5))

    def save(self, folder: Any) -> None:
        self.model.save(folder)


def retriever_loss(taught: RetrieverTrainer, batch: DistillationBatch) -> tuple[Tensor, dict[str, float | Tensor], int]:
    """The loss in the form that `run_training` takes."""
    model, shares = taught.model, taught.shares
    device = model.device
    metrics: dict[str, float | Tensor] = {}
    batch = DistillationBatch(**{name: value.to(device) for name, value in vars(batch).items()})
    layer = model.memory_layers[-1]
    cache = DynamicCache()
    hidden_RTE = model.encode(batch.ids_RT, model.context(valid_BK=batch.valid_RT), cache)
    keys_RTE = cached(cache, layer)[0].transpose(1, 2).flatten(2).float()
    titles = DynamicCache()
    model.encode(batch.titles_RT, model.context(), titles)
    titles_RTE = cached(titles, layer)[0].transpose(1, 2).flatten(2).float()
    queries_QTE = question_queries(model, batch.asked_QT, layer)
    size = model.config.block_size
    keys_NLE = keys_RTE.unflatten(1, (-1, size)).flatten(0, 1)
    landmarks_NE = keys_NLE[:, -1]
    with torch.autocast(device.type, enabled=False):
        frame_EE = taught.frame_EE.T
        states = _unlike(keys_RTE, batch.states_RTE.float() @ frame_EE)
        asked = _unlike(queries_QTE, batch.asked_states_QTE.float() @ frame_EE)
        pooled = _unlike(landmarks_NE, batch.pooled_NE.float() @ frame_EE)
        raw_NL = batch.valid_RT.unflatten(1, (-1, size)).flatten(0, 1)[:, :-1]
        cosines = TokenCosines.of(queries_QTE, batch.asked_there_QT, keys_NLE[:, :-1])
        cosines = cosines.with_titles(queries_QTE, batch.asked_there_QT, titles_RTE, batch.titled_RT)
        late_QN = cosines.block_scores(raw_NL)
        mean_QE = (queries_QTE * batch.asked_there_QT[..., None]).sum(1) / batch.asked_there_QT.sum(1, keepdim=True)
        coarse_QN = mean_QE @ landmarks_NE.T
        late, late_hits = ranking(late_QN * taught.log_scale_late.exp(), batch.gold_QN, batch.ignored_QN)
        coarse, coarse_hits = ranking(coarse_QN * taught.log_scale_landmarks.exp(), batch.gold_QN, batch.ignored_QN)
        sentences_QS = cosines.sentence_scores(batch.sentence_NJ)
        right_QS, unsure_QS = answering_sentences(batch)
        sentences, sentence_hits = ranking(sentences_QS * taught.log_scale_sentences.exp(), right_QS, unsure_QS)
        pointers_Q2E = pointers(queries_QTE, batch.asked_there_QT) * taught.log_scale_span.exp()
        span, span_hits = _span_loss(pointers_Q2E, keys_NLE[:, :-1], raw_NL, batch, len(batch.ids_RT))
    text = torch.zeros((), device=device)
    if shares.text:
        text = _text_loss(model, batch, hidden_RTE, shares.text_positions)
    points = torch.zeros((), device=device)
    if model.span_head is not None and shares.points:
        ends_Q2E = pointers(queries_QTE, batch.asked_there_QT)
        shown = shown_rows(batch, queries_QTE, ends_Q2E, keys_NLE, late_QN, count=shares.pointed_blocks)
        if shown is not None:
            with torch.autocast(device.type, enabled=False):
                points, pointing_metrics, _ = span_loss(model.span_head, shown)
            metrics |= pointing_metrics
    loss = (
        shares.states * (states + 0.5 * asked)
        + shares.pooled * pooled
        + shares.late * late
        + shares.landmarks * coarse
        + shares.sentences * sentences
        + shares.span * span
        + shares.points * points
        + shares.text * text
    )
    metrics |= {
        "states": states.detach(),
        "asked": asked.detach(),
        "pooled": pooled.detach(),
        "late": late.detach(),
        "late_top1": late_hits,
        "landmarks": coarse.detach(),
        "landmarks_top1": coarse_hits,
        "sentences": sentences.detach(),
        "sentences_top1": sentence_hits,
        "span": span.detach(),
        "span_start_top1": span_hits,
        "points": points.detach(),
        "text": text.detach(),
    }
    return loss, metrics, int(batch.valid_RT.sum()) + int(batch.asked_there_QT.sum())


def question_queries(model: LandmarkModel, asked_QT: Tensor, layer: int) -> Tensor:
    """queries_QTE of one layer, in the frame of landmark keys, the question reading nothing."""
    context = model.context(policy=SelectionPolicy())
    context.search_queries = {}
    model.encode(asked_QT, context)
    return context.search_queries[layer].transpose(1, 2).flatten(2).float()


@dataclass(frozen=True)
class TokenCosines:
    """How alike the tokens of questions and the raw tokens of blocks are."""

    cosines_FNJ: Tensor
    share_F: Tensor
    """|q| as a share of the sum over the question."""
    owner_F: Tensor
    """The question of each token."""
    num_questions: int
    titles_FR: Tensor | None = None
    """The best cosine among the tokens of the title of each row, -1 without one. Rows have equally many blocks."""

    @classmethod
    def of(cls, queries_QTE: Tensor, there_QT: Tensor, keys_NJE: Tensor) -> "TokenCosines":
        length_QT = queries_QTE.norm(dim=-1) * there_QT
        share_QT = length_QT / length_QT.sum(-1, keepdim=True).clamp_min(1e-6)
        queries_FE = normalize(queries_QTE, dim=-1)[there_QT]  # all questions' tokens in one row
        cosines_FP = queries_FE @ normalize(keys_NJE, dim=-1).flatten(0, 1).T
        cosines_FNJ = cosines_FP.unflatten(1, keys_NJE.shape[:2])
        return cls(cosines_FNJ, share_QT[there_QT], there_QT.nonzero()[:, 0], len(queries_QTE))

    def with_titles(
        self, queries_QTE: Tensor, there_QT: Tensor, titles_RTE: Tensor, titled_RT: Tensor
    ) -> "TokenCosines":
        """The same, where a title counts as if it stood in every block and sentence of its row."""
        cosines_FRT = TokenCosines.of(queries_QTE, there_QT, titles_RTE).cosines_FNJ
        return replace(self, titles_FR=cosines_FRT.masked_fill(~titled_RT, -1.0).amax(-1))

    def block_scores(self, raw_NJ: Tensor) -> Tensor:
        """scores_QN: mean over the question's tokens, weighted by |q|, of the best cosine among a block's tokens."""
        best_FN = self.cosines_FNJ.masked_fill(~raw_NJ, -1.0).amax(-1)
        if self.titles_FR is not None:
            blocks_a_row = best_FN.shape[1] // self.titles_FR.shape[1]
            best_FN = best_FN.maximum(self.titles_FR.repeat_interleave(blocks_a_row, 1))
        return self._summed(best_FN)

    def sentence_scores(self, sentence_NJ: Tensor) -> Tensor:
        """scores_QS as `model.scoring.late_interaction.score` gives them to a sentence's tokens."""
        above_FP = self.cosines_FNJ.flatten(1).clamp_min(0)
        count = int(sentence_NJ.max()) + 1
        # Tokens of no sentence go into one more, which is dropped.
        index_FP = sentence_NJ.flatten().where(sentence_NJ.flatten() >= 0, count).expand_as(above_FP)
        best_FS = above_FP.new_zeros(len(above_FP), count + 1).scatter_reduce(1, index_FP, above_FP, "amax")[:, :-1]
        if self.titles_FR is not None:
            tokens_a_row = len(sentence_NJ.flatten()) // self.titles_FR.shape[1]
            row_P = torch.arange(len(sentence_NJ.flatten()), device=sentence_NJ.device) // tokens_a_row
            row_S = row_P.new_zeros(count + 1).scatter(0, index_FP[0], row_P)[:-1]
            best_FS = best_FS.maximum(self.titles_FR[:, row_S])
        # Of a sentence without any match the root would have an infinite gradient.
        return self._summed(best_FS.square()).clamp_min(1e-12).sqrt()

    def _summed(self, best_FX: Tensor) -> Tensor:
        sums_QX = best_FX.new_zeros(self.num_questions, best_FX.shape[1])
        return sums_QX.index_add(0, self.owner_F, best_FX * self.share_F[:, None])


def late_scores(queries_QTE: Tensor, there_QT: Tensor, keys_NJE: Tensor, raw_NJ: Tensor) -> Tensor:
    """scores_QN of blocks by late interaction: `TokenCosines.block_scores`."""
    return TokenCosines.of(queries_QTE, there_QT, keys_NJE).block_scores(raw_NJ)


def answering_sentences(batch: DistillationBatch) -> tuple[Tensor, Tensor]:
    """right_QS: the sentence in which a known answer begins. unsure_QS: others that say it, too."""
    sentence_P, elsewhere_QP = batch.sentence_NJ.flatten(), batch.elsewhere_QNJ.flatten(1)
    count = int(sentence_P.max()) + 1
    right_QS = torch.zeros(len(elsewhere_QP), count, dtype=torch.bool, device=sentence_P.device)
    known_Q = (batch.spans_Q2[:, 0] >= 0).nonzero()[:, 0]
    said_Q = sentence_P[batch.spans_Q2[known_Q, 0]]
    right_QS[known_Q[said_Q >= 0], said_Q[said_Q >= 0]] = True
    unsure_QS = torch.zeros_like(right_QS)
    asked, place = (elsewhere_QP & (sentence_P >= 0)).nonzero(as_tuple=True)
    unsure_QS[asked, sentence_P[place]] = True
    return right_QS, unsure_QS & ~right_QS


def pointers(queries_QTE: Tensor, there_QT: Tensor) -> Tensor:
    """queries_Q2E of the two tokens behind each question: answer and end."""
    last_Q = there_QT.shape[1] - 1 - there_QT.flip(1).float().argmax(1)
    rows = torch.arange(len(queries_QTE), device=queries_QTE.device)
    return torch.stack((queries_QTE[rows, last_Q + 1], queries_QTE[rows, last_Q + 2]), 1)


def shown_rows(
    batch: DistillationBatch,
    queries_QTE: Tensor,
    pointers_Q2E: Tensor,
    keys_NLE: Tensor,
    late_QN: Tensor,
    *,
    count: int,
) -> SpanBatch | None:
    """What the pointing head is shown: questions whose answer is known (or known to stand nowhere), each with `count`
    blocks, its gold ones and those that late interaction takes for the best others. None if there is no such
    question."""
    asked_Q = ((batch.spans_Q2[:, 0] >= 0) | batch.silent_Q).nonzero()[:, 0]
    if not len(asked_Q):
        return None
    gold_QN, withheld_Q1 = batch.gold_QN[asked_Q], batch.withheld_Q[asked_Q][:, None]
    order_QN = late_QN.detach()[asked_Q].masked_fill(batch.ignored_QN[asked_Q], -torch.inf)
    order_QN = order_QN.masked_fill(gold_QN & withheld_Q1, -torch.inf).masked_fill(gold_QN & ~withheld_Q1, torch.inf)
    order_QC, block_QC = order_QN.topk(min(count, order_QN.shape[1]))
    per_block = keys_NLE.shape[1] - 1
    there_QCL = batch.valid_RT.unflatten(1, (-1, per_block + 1)).flatten(0, 1)[block_QC]
    there_QCL = there_QCL & (order_QC > -torch.inf)[..., None]  # fewer blocks than asked for: the rest is not shown
    there_QCL[..., -1] = False  # landmarks
    # One column more than raw tokens, where the landmark stands.
    place_QCL = block_QC[..., None] * per_block + torch.arange(per_block + 1, device=block_QC.device)
    place_QCL[..., -1] = -2
    right_Q2CL = torch.stack([place_QCL == batch.spans_Q2[asked_Q, side, None, None] for side in (0, 1)], 1)
    right_Q2CL = right_Q2CL & there_QCL[:, None]
    nothing_Q = ~right_Q2CL.flatten(2).any(-1).all(-1)
    elsewhere_QCJ = batch.elsewhere_QNJ[asked_Q].gather(1, block_QC[..., None].expand(-1, -1, per_block))
    ignored_QCL = nn.functional.pad(elsewhere_QCJ, (0, 1)) | (right_Q2CL.any(1) & nothing_Q[:, None, None])
    return SpanBatch(
        keys_NLE[block_QC],
        there_QCL,
        queries_QTE[asked_Q],
        batch.asked_there_QT[asked_Q],
        pointers_Q2E[asked_Q],
        right_Q2CL & ~nothing_Q[:, None, None, None],
        ignored_QCL,
        nothing_Q,
    )


def _span_loss(
    pointers_Q2E: Tensor, keys_NLE: Tensor, raw_NL: Tensor, batch: DistillationBatch, num_rows: int
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of first and last token among the tokens of their row, and how often the first one is right."""
    known = batch.spans_Q2[:, 0] >= 0
    if not bool(known.any()):
        return pointers_Q2E.sum() * 0, torch.zeros((), device=raw_NL.device)
    keys_RPE = keys_NLE.flatten(0, 1).unflatten(0, (num_rows, -1))
    raw_RP = raw_NL.flatten().unflatten(0, (num_rows, -1))
    row_Q = batch.spans_Q2[known, 0] // raw_RP.shape[1]
    logits_Q2P = pointers_Q2E[known] @ keys_RPE[row_Q].transpose(1, 2) * keys_NLE.shape[-1] ** -0.5
    logits_Q2P = logits_Q2P.masked_fill(~raw_RP[row_Q][:, None], -torch.inf)
    targets_Q2 = batch.spans_Q2[known] % raw_RP.shape[1]
    loss = cross_entropy(logits_Q2P.flatten(0, 1), targets_Q2.flatten())
    return loss, (logits_Q2P[:, 0].argmax(-1) == targets_Q2[:, 0]).float().mean()


def _unlike(made: Tensor, shown: Tensor) -> Tensor:
    """Mean of 1 - cosine where there is something to compare with."""
    there = shown.abs().amax(-1) > 0
    return 1 - cosine_similarity(made[there], shown[there], dim=-1).mean()


def ranking(scores_QN: Tensor, gold_QN: Tensor, ignored_QN: Tensor) -> tuple[Tensor, Tensor]:
    """-log(share of the gold blocks in the softmax over the blocks that count), and how often one of them is first."""
    asked = gold_QN.any(-1)
    scores = scores_QN[asked].masked_fill(ignored_QN[asked], -torch.inf)
    gold = gold_QN[asked]
    if not len(scores):
        return scores_QN.sum() * 0, torch.zeros((), device=scores_QN.device)
    right = scores.masked_fill(~gold, -torch.inf)
    hits = gold.gather(1, scores.argmax(-1, keepdim=True)).float().mean()
    return (scores.logsumexp(-1) - right.logsumexp(-1)).mean(), hits


def _text_loss(model: LandmarkModel, batch: DistillationBatch, hidden_RTE: Tensor, positions: int) -> Tensor:
    """Next raw token at a sample of raw positions (landmarks neither predict nor are predicted)."""
    size, length = model.config.block_size, batch.ids_RT.shape[1]
    place = torch.arange(length, device=batch.ids_RT.device)
    following = torch.where(place % size == size - 2, place + 2, place + 1).clamp_max(length - 1)
    good = batch.valid_RT & batch.valid_RT[:, following] & (place % size != size - 1) & (place < length - 2)
    chosen = good.flatten().nonzero()[:, 0]
    chosen = chosen[torch.randperm(len(chosen), device=chosen.device)[:positions]]
    targets = batch.ids_RT[:, following].flatten()[chosen]
    return summed_cross_entropy(model.logits, hidden_RTE.flatten(0, 1)[chosen], targets) / max(1, len(chosen))
