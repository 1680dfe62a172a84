"""Question training: one loss that teaches landmarks to be found, answers to be read from blocks, and text.

- Search: the question is encoded on its own, reading nothing (a question that has read the gold block would only learn
  to recognise
  what it read); its mean query meets every landmark of the batch, and of some batches before, in one softmax.
- Answers: question and answer form the local window under library positions and read a few blocks chosen by that same
  search, as when serving. Blocks are encoded once per batch and shared by all questions; gradients flow into them.
- Text: next-token loss on a sample of the positions.

Axes: R rows, N blocks, W blocks in a row, Q questions, T tokens, C blocks read, Y memory layers, H heads, G KV heads, L
tokens in a block, D head dim, M blocks kept from earlier batches, E hidden width.
"""

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from model.attention.selection import SelectionPolicy
from model.checkpoint.landmark_model import LandmarkModel, cached
from research.landmark_models import search_queries, with_config
from research.train.data.batches.batch_types import QuestionBatch
from research.train.data.packing import IGNORED
from research.train.losses.next_token import sampled_token_loss
from research.train.losses.ranking_loss import ranking_loss


@dataclass(frozen=True, kw_only=True)
class AnswerLossWeights:
    """Weights of the parts of the loss."""

    search: float = 1.0
    search_per_layer: float = 0.3
    answer: float = 1.0
    text: float = 0.0
    text_positions: int = 256
    blocks_read: int = 5
    random_choice: float = 0.25
    """How often a question reads random wrong blocks beside the gold ones, not those that search confuses with them."""
    gold_dropped: float = 0.0
    """How often the gold blocks are withheld; then the answer is nothing."""
    quoted: bool = True
    """Answer tokens compete with the tokens of the blocks read only, as when quoting; False: with the whole
    vocabulary."""
    kept_batches: int = 12


class ChosenBlocks:
    """A `MemoryReader` over blocks of the batch, the same for all layers and heads; row q of the batch reads
    ids_QC[q]."""

    def __init__(self, keys: dict[int, Tensor], values: dict[int, Tensor], lengths_N: Tensor, ids_QC: Tensor) -> None:
        self._keys, self._values, self._lengths_N, self._ids_QC = keys, values, lengths_N, ids_QC  # keys_NGLD by layer

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(self._keys)

    @property
    def num_blocks(self) -> int:
        return len(self._lengths_N)

    def search(self, layer: int, queries_BGXRD: Tensor, k: int) -> Tensor:
        shape = (*queries_BGXRD.shape[:3], self._ids_QC.shape[1])
        return self._ids_QC[:, None, None].expand(shape)

    def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keys, values = (x[layer][self._ids_QC].transpose(1, 2).unsqueeze(2) for x in (self._keys, self._values))
        return keys, values, self._lengths_N[ids_BGXS]


START_WEIGHT = 8.0
"""Of every head, before softplus: landmark logits are of order 1 and must spread over a softmax of hundreds of
blocks."""


class AnswerTrainer(nn.Module):
    """A landmark model with the search weights that are learned beside it, and the landmarks of the last batches."""

    def __init__(
        self, model: LandmarkModel, weights: AnswerLossWeights | None = None, *, learns_search: bool = True
    ) -> None:
        """Without `learns_search` what search is made of stays as it is (its parameters must be frozen by the
        caller)."""
        super().__init__()
        self.learns_search = learns_search
        self.model = model
        self.weights = weights or AnswerLossWeights()
        self.search_logits_YH = nn.Parameter(torch.full((len(model.memory_layers), model.num_heads), START_WEIGHT))
        self._kept: deque[tuple[Tensor, Tensor]] = deque(maxlen=self.weights.kept_batches)  # (keys_YGMD, title_M)

    def save(self, folder: Path) -> None:
        """The landmark model, its search weights as learned so far (scaled to mean 1)."""
        self.with_search_weights().save(folder)

    def with_search_weights(self) -> LandmarkModel:
        """The model with the learned weights in its settings."""
        if not self.learns_search:
            return self.model
        rows = self.search_weights_YH().detach().float()
        rows = rows / rows.mean()
        return with_config(self.model, search_weights=tuple(tuple(round(float(w), 4) for w in row) for row in rows))

    def search_weights_YH(self) -> Tensor:
        if not self.learns_search:
            assert self.model.config.search_weights is not None
            return START_WEIGHT * torch.tensor(self.model.config.search_weights, device=self.search_logits_YH.device)
        return nn.functional.softplus(self.search_logits_YH)

    def keep(self, keys_YNGD: Tensor, title_N: Tensor, there_N: Tensor) -> None:
        self._kept.append((keys_YNGD.detach()[:, there_N], title_N[there_N]))

    def kept(self) -> tuple[Tensor, Tensor] | None:
        """keys_YMGD and title_M of earlier batches."""
        if not self._kept:
            return None
        return torch.cat([keys for keys, _ in self._kept], 1), torch.cat([title for _, title in self._kept])


def question_loss(trainee: AnswerTrainer, batch: QuestionBatch) -> tuple[Tensor, dict[str, float | Tensor], int]:
    """The loss in the form that `run_training` takes."""
    model, share = trainee.model, trainee.weights
    batch = batch.to(model.device)
    cache = DynamicCache()
    hidden_RTE = model.encode(batch.ids_RT, model.context(valid_BK=batch.valid_RT), cache)
    keys = {layer: _blocks(cached(cache, layer)[0], batch.blocks_per_row) for layer in model.memory_layers}
    values = {layer: _blocks(cached(cache, layer)[1], batch.blocks_per_row) for layer in model.memory_layers}
    landmarks_YNGD = torch.stack([keys[layer][:, :, -1] for layer in model.memory_layers])
    there_N = batch.document_N != -1

    with torch.set_grad_enabled(trainee.learns_search and torch.is_grad_enabled()):
        scores_YQN, kept_YQM, kept_ignored_QM = _scores(trainee, batch, landmarks_YNGD)
    total_QN = scores_YQN.sum(0)
    ranks_Q = batch.ranks_Q & batch.gold_QN.any(-1)
    gold_QX = nn.functional.pad(batch.gold_QN, (0, kept_YQM.shape[-1]))[ranks_Q]
    ignored_QX = torch.cat((batch.ignored_QN, kept_ignored_QM), -1)[ranks_Q]
    parts = torch.stack(
        [
            ranking_loss(torch.cat((scores, kept), -1)[ranks_Q], gold_QX, ignored_QX)[0]
            for scores, kept in [(total_QN, kept_YQM.sum(0)), *zip(scores_YQN, kept_YQM, strict=True)]
        ]
    )
    _, hits = ranking_loss(total_QN[ranks_Q], batch.gold_QN[ranks_Q], batch.ignored_QN[ranks_Q])
    trainee.keep(landmarks_YNGD, batch.title_N, there_N)

    lengths_N = batch.valid_RT.unflatten(1, (batch.blocks_per_row, -1)).flatten(0, 1)[:, :-1].sum(-1)
    answer, answer_tokens, first = _answer_loss(model, batch, keys, values, lengths_N, total_QN.detach(), share)
    text = torch.zeros(())
    if share.text:
        text = sampled_token_loss(model, batch.ids_RT, batch.valid_RT, hidden_RTE, share.text_positions)
    loss = share.answer * answer + share.text * text
    if trainee.learns_search:
        loss = loss + share.search * parts[0] + share.search_per_layer * parts[1:].mean()
    metrics: dict[str, float | Tensor] = {
        "search": parts[0].detach(),
        "search_layers": parts[1:].mean().detach(),
        "top1": hits,
        "answer": answer.detach(),
        "first_token": first,
        "text": text.detach(),
    }
    return loss, metrics, int(batch.valid_RT.sum()) + answer_tokens


def _blocks(kv_RGTD: Tensor, blocks_per_row: int) -> Tensor:
    kv_NGLD: Tensor = kv_RGTD.unflatten(2, (blocks_per_row, -1)).transpose(1, 2).flatten(0, 1)
    return kv_NGLD


def _scores(trainee: AnswerTrainer, batch: QuestionBatch, landmarks_YNGD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """scores_YQN against the batch, scores_YQM against kept landmarks, and which of the latter do not count."""
    model = trainee.model
    found = search_queries(model, batch.asked_QT)
    queries_YQHD = torch.stack(
        [torch.einsum("qhtd,qt->qhd", found[layer].float(), batch.asked_mean_QT) for layer in model.memory_layers]
    )
    queries_YQHD = queries_YQHD * trainee.search_weights_YH()[:, None, :, None]
    groups = model.num_kv_heads
    grouped_YQGD = queries_YQHD.unflatten(2, (groups, -1)).sum(3)
    with torch.autocast(model.device.type, enabled=False):
        scores = torch.einsum("yqgd,yngd->yqn", grouped_YQGD.float(), landmarks_YNGD.float())
        kept = trainee.kept()
        if kept is None:
            return scores, scores[..., :0], batch.ignored_QN[:, :0]
        old = torch.einsum("yqgd,ymgd->yqm", grouped_YQGD.float(), kept[0].float())
    title_Q = batch.title_N[batch.gold_QN.float().argmax(-1)]
    return scores, old, title_Q[:, None] == kept[1][None]


def _answer_loss(
    model: LandmarkModel,
    batch: QuestionBatch,
    keys: dict[int, Tensor],
    values: dict[int, Tensor],
    lengths_N: Tensor,
    scores_QN: Tensor,
    share: AnswerLossWeights,
) -> tuple[Tensor, int, Tensor]:
    reads = batch.reads_Q
    window, targets, gold, ignored = (
        batch.window_QT[reads],
        batch.targets_QT[reads].clone(),
        batch.gold_QN[reads],
        batch.ignored_QN[reads],
    )
    num, device = len(window), window.device
    dropped_Q = torch.rand(num, device=device) < share.gold_dropped
    random_Q = torch.rand(num, device=device) < share.random_choice
    noise_QN = torch.rand(gold.shape, device=device)
    priority = torch.where(random_Q[:, None], noise_QN, scores_QN[reads] + 0.5 * noise_QN)
    priority = (
        priority.masked_fill(ignored, -1e9)
        .masked_fill(gold & ~dropped_Q[:, None], 1e9)
        .masked_fill(gold & dropped_Q[:, None], -2e9)
    )
    ids_QC = priority.topk(min(share.blocks_read, gold.shape[1])).indices.sort(-1).values

    first_Q = (targets != IGNORED).float().argmax(-1)
    place = torch.arange(targets.shape[1], device=device)
    targets[dropped_Q] = torch.where(place == first_Q[dropped_Q, None], int(model.tokenizer.eos_token_id), IGNORED)
    reader = ChosenBlocks(keys, values, lengths_N, ids_QC)
    hidden = model.encode(window, model.context(reader=reader, policy=SelectionPolicy(top_k=ids_QC.shape[1])))
    trained = targets != IGNORED
    count = int(trained.sum())
    logits = model.logits(hidden[trained]).float()
    if share.quoted:
        row_M, place_M = trained.nonzero(as_tuple=True)
        logits = logits.masked_fill(~_quotable(model, batch, ids_QC)[row_M], -1e4)
        end = int(model.tokenizer.eos_token_id)
        logits[:, end] = logits[:, end].masked_fill((place_M == first_Q[row_M]) & (targets[trained] != end), -1e4)
    loss = nn.functional.cross_entropy(logits, targets[trained])
    with torch.no_grad():
        rows = torch.arange(num, device=device)
        right = model.logits(hidden[rows, first_Q]).argmax(-1) == targets[rows, first_Q]
    return loss, count, right.float().mean()


def _quotable(model: LandmarkModel, batch: QuestionBatch, ids_QC: Tensor) -> Tensor:
    """allowed_QV: tokens that stand in the blocks read, and the end."""
    size = model.config.block_size
    tokens_NL = batch.ids_RT.unflatten(1, (batch.blocks_per_row, size)).flatten(0, 1)
    read = tokens_NL[ids_QC].flatten(1)
    allowed = torch.zeros(
        (len(ids_QC), model.backbone.config.vocab_size), dtype=torch.bool, device=read.device
    ).scatter_(1, read, True)
    allowed[:, model.config.landmark_token_id] = False
    allowed[:, int(model.tokenizer.eos_token_id)] = True
    return allowed
