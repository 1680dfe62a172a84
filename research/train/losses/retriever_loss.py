"""Training of the memory layer: a sentence encoder shows what each token means, questions show what they look for.

One loss of several parts, all on rows that are encoded once:

- states: the key of every token comes near the encoder's state of the same characters (the encoder sees the block
  whole, the network only what stands before: it learns to guess). "asked": the same for queries.
- pooled: the key of every landmark comes near the mean of the encoder's states over its block.
- late: questions, encoded on their own, find their block among all blocks of the batch by late interaction over token
  keys (see `model.scoring.late_interaction`); landmarks: the same by the inner product of the mean query and the
  landmark.
- sentences: they find the sentence that holds the answer among all sentences of the batch, scored as in quotation.
- span: the query of the answer token meets the key of the answer's first token, that of the end token behind it the
  last one's, among all tokens of the row.
- text: the next token, on a sample of the positions.

The question never attends to a block: a question that has read the gold block learns to recognise what it just read.
Axes: R rows, T tokens, N blocks (R x W), L tokens in a block, J raw ones, Q questions, S sentences, E all heads'
dimensions together.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy
from transformers import DynamicCache

from model.checkpoint.landmark_model import LandmarkModel, cached
from research.landmark_models import search_queries
from research.train.data.batches.batch_types import DistillationBatch
from research.train.data.token_cosines import TokenCosines
from research.train.losses.next_token import sampled_token_loss
from research.train.losses.ranking_loss import ranking_loss


@dataclass(frozen=True, kw_only=True)
class RetrieverLossWeights:
    """Weights of the parts of the loss."""

    states: float = 3.0
    pooled: float = 1.0
    late: float = 0.5
    landmarks: float = 0.3
    sentences: float = 0.5
    span: float = 0.1
    text: float = 0.1
    text_positions: int = 384


class RetrieverTrainer(nn.Module):
    """A landmark model, the frame in which its keys are compared with the encoder's states, and two temperatures."""

    frame_EE: Tensor

    def __init__(self, model: LandmarkModel, frame_EE: Tensor, weights: RetrieverLossWeights | None = None) -> None:
        super().__init__()
        self.model = model
        self.weights = weights or RetrieverLossWeights()
        self.register_buffer("frame_EE", frame_EE.detach().clone())
        self.log_scale_late = nn.Parameter(torch.tensor(3.4))
        self.log_scale_landmarks = nn.Parameter(torch.tensor(2.0))
        self.log_scale_sentences = nn.Parameter(torch.tensor(3.4))
        self.log_scale_span = nn.Parameter(torch.tensor(4.5))

    def save(self, folder: Any) -> None:
        self.model.save(folder)


def retriever_loss(
    trainer: RetrieverTrainer, batch: DistillationBatch
) -> tuple[Tensor, dict[str, float | Tensor], int]:
    """The loss in the form that `run_training` takes."""
    model, weights = trainer.model, trainer.weights
    batch = batch.to(model.device)
    layer, size = model.memory_layers[-1], model.config.block_size
    cache, title_cache = DynamicCache(), DynamicCache()
    hidden_RTE = model.encode(batch.ids_RT, model.context(valid_BK=batch.valid_RT), cache)
    keys_NLE = _side_by_side(cached(cache, layer)[0]).unflatten(1, (-1, size)).flatten(0, 1)
    model.encode(batch.titles_RT, model.context(), title_cache)
    titles_RTE = _side_by_side(cached(title_cache, layer)[0])
    queries_QTE = _side_by_side(search_queries(model, batch.question_ids_QT)[layer])
    span_queries_Q2E = span_queries(queries_QTE, batch.question_mask_QT)
    with torch.autocast(model.device.type, enabled=False):
        cosines = TokenCosines.of(queries_QTE, batch.question_mask_QT, keys_NLE[:, :-1])
        cosines = cosines.with_titles(queries_QTE, batch.question_mask_QT, titles_RTE, batch.title_mask_RT)
        valid_NJ = batch.valid_RT.unflatten(1, (-1, size)).flatten(0, 1)[:, :-1]
        late_QN = cosines.block_scores(valid_NJ)
        parts = _distances(trainer, batch, keys_NLE, queries_QTE)
        ranks, hits = _rankings(trainer, batch, cosines, late_QN, queries_QTE, keys_NLE[:, -1])
        scaled_Q2E = span_queries_Q2E * trainer.log_scale_span.exp()
        span, hits["span_start_top1"] = _key_span_loss(scaled_Q2E, keys_NLE[:, :-1], valid_NJ, batch, len(batch.ids_RT))
    parts |= ranks | {"span": span, "text": torch.zeros(())}
    if weights.text:
        parts["text"] = sampled_token_loss(model, batch.ids_RT, batch.valid_RT, hidden_RTE, weights.text_positions)
    weight_of = vars(weights) | {"asked": 0.5 * weights.states}
    loss = torch.stack([weight_of[name] * part.to(model.device) for name, part in parts.items()]).sum()
    metrics: dict[str, float | Tensor] = {name: part.detach() for name, part in parts.items()}
    return loss, metrics | hits, int(batch.valid_RT.sum()) + int(batch.question_mask_QT.sum())


def _side_by_side(heads_BGTD: Tensor) -> Tensor:
    """x_BTE in float32, all heads laid end to end."""
    return heads_BGTD.transpose(1, 2).flatten(2).float()


def _distances(
    trainer: RetrieverTrainer, batch: DistillationBatch, keys_NLE: Tensor, queries_QTE: Tensor
) -> dict[str, Tensor]:
    """How far keys, queries and landmarks are from the encoder's states."""
    frame_EE = trainer.frame_EE.T
    keys_RTE = keys_NLE.flatten(0, 1).view(*batch.ids_RT.shape, -1)
    return {
        "states": cosine_distance(keys_RTE, batch.states_RTE.float() @ frame_EE),
        "asked": cosine_distance(queries_QTE, batch.question_states_QTE.float() @ frame_EE),
        "pooled": cosine_distance(keys_NLE[:, -1], batch.pooled_NE.float() @ frame_EE),
    }


def _rankings(
    trainer: RetrieverTrainer,
    batch: DistillationBatch,
    cosines: TokenCosines,
    late_QN: Tensor,
    queries_QTE: Tensor,
    landmarks_NE: Tensor,
) -> tuple[dict[str, Tensor], dict[str, float | Tensor]]:
    """Losses of finding blocks by tokens and by landmarks, and sentences; and how often each is first."""
    mask_QT = batch.question_mask_QT
    mean_QE = (queries_QTE * mask_QT[..., None]).sum(1) / mask_QT.sum(1, keepdim=True)
    ranked = {
        "late": (late_QN * trainer.log_scale_late.exp(), batch.gold_QN, batch.ignored_QN),
        "landmarks": (mean_QE @ landmarks_NE.T * trainer.log_scale_landmarks.exp(), batch.gold_QN, batch.ignored_QN),
        "sentences": (
            cosines.sentence_scores(batch.sentence_NJ) * trainer.log_scale_sentences.exp(),
            *answering_sentences(batch),
        ),
    }
    found = {name: ranking_loss(*each) for name, each in ranked.items()}
    return {name: loss for name, (loss, _) in found.items()}, {f"{name}_top1": hit for name, (_, hit) in found.items()}


def answering_sentences(batch: DistillationBatch) -> tuple[Tensor, Tensor]:
    """target_mask_QS: the sentence in which a known answer begins. unsure_QS: others that say it, too."""
    sentence_P, elsewhere_QP = batch.sentence_NJ.flatten(), batch.elsewhere_QNJ.flatten(1)
    count = int(sentence_P.max()) + 1
    target_mask_QS = torch.zeros(len(elsewhere_QP), count, dtype=torch.bool, device=sentence_P.device)
    known_Q = (batch.spans_Q2[:, 0] >= 0).nonzero()[:, 0]
    said_Q = sentence_P[batch.spans_Q2[known_Q, 0]]
    target_mask_QS[known_Q[said_Q >= 0], said_Q[said_Q >= 0]] = True
    unsure_QS = torch.zeros_like(target_mask_QS)
    asked, place = (elsewhere_QP & (sentence_P >= 0)).nonzero(as_tuple=True)
    unsure_QS[asked, sentence_P[place]] = True
    return target_mask_QS, unsure_QS & ~target_mask_QS


def span_queries(queries_QTE: Tensor, question_mask_QT: Tensor) -> Tensor:
    """queries_Q2E of the two tokens behind each question: answer and end."""
    last_Q = question_mask_QT.shape[1] - 1 - question_mask_QT.flip(1).float().argmax(1)
    rows = torch.arange(len(queries_QTE), device=queries_QTE.device)
    return torch.stack((queries_QTE[rows, last_Q + 1], queries_QTE[rows, last_Q + 2]), 1)


def _key_span_loss(
    span_queries_Q2E: Tensor, keys_NLE: Tensor, valid_NJ: Tensor, batch: DistillationBatch, num_rows: int
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of first and last token among the tokens of their row, and how often the first one is right."""
    known = batch.spans_Q2[:, 0] >= 0
    if not bool(known.any()):
        return span_queries_Q2E.sum() * 0, torch.zeros((), device=valid_NJ.device)
    keys_RPE = keys_NLE.flatten(0, 1).unflatten(0, (num_rows, -1))
    valid_RP = valid_NJ.flatten().unflatten(0, (num_rows, -1))
    row_Q = batch.spans_Q2[known, 0] // valid_RP.shape[1]
    logits_Q2P = span_queries_Q2E[known] @ keys_RPE[row_Q].transpose(1, 2) * keys_NLE.shape[-1] ** -0.5
    logits_Q2P = logits_Q2P.masked_fill(~valid_RP[row_Q][:, None], -torch.inf)
    targets_Q2 = batch.spans_Q2[known] % valid_RP.shape[1]
    loss = cross_entropy(logits_Q2P.flatten(0, 1), targets_Q2.flatten())
    return loss, (logits_Q2P[:, 0].argmax(-1) == targets_Q2[:, 0]).float().mean()


def cosine_distance(made: Tensor, shown: Tensor) -> Tensor:
    """Mean of 1 - cosine where there is something to compare with."""
    there = shown.abs().amax(-1) > 0
    return 1 - cosine_similarity(made[there], shown[there], dim=-1).mean()
