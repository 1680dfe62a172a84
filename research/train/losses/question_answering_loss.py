"""Question training: one loss that teaches answers to be read from blocks, and text.

- Answers: question and answer form the local window under library positions and read a few blocks: the right ones, and
  those that search confuses with them. Blocks are encoded once per batch and shared by all questions.
- Text: next-token loss on a sample of the positions.

Axes: R rows, N blocks, W blocks in a row, Q questions, T tokens, C blocks read, Y memory layers, H heads, G KV heads, L
tokens in a block, D head dim, E hidden width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from model.attention.selection import SelectionPolicy
from model.checkpoint.landmark_model import LandmarkModel, cached
from research.landmark_models import search_queries
from research.train.data.batches.batch_types import QuestionBatch
from research.train.data.packing import IGNORED
from research.train.losses.next_token import sampled_token_loss


@dataclass(frozen=True, kw_only=True)
class AnswerLossWeights:
    """Weight of the loss of text beside that of answers, and what questions read."""

    text: float = 0.5
    text_positions: int = 512
    blocks_read: int = 5
    random_choice: float = 0.25
    """How often a question reads random wrong blocks beside the gold ones, not those that search confuses with them."""
    gold_dropped: float = 0.0
    """How often the gold blocks are withheld; then the answer is nothing."""


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


SCORE_SCALE = 8.0
"""Of the weights of search, in scores that the random part of the choice of wrong blocks is added to."""


def question_loss(
    model: LandmarkModel, batch: QuestionBatch, share: AnswerLossWeights
) -> tuple[Tensor, dict[str, float | Tensor], int]:
    """The loss in the form that `run_training` takes, with the weights of its parts."""
    batch = batch.to(model.device)
    cache = DynamicCache()
    hidden_RTE = model.encode(batch.ids_RT, model.context(valid_BK=batch.valid_RT), cache)
    keys = {layer: _blocks(cached(cache, layer)[0], batch.blocks_per_row) for layer in model.memory_layers}
    values = {layer: _blocks(cached(cache, layer)[1], batch.blocks_per_row) for layer in model.memory_layers}
    scores_QN = _scores(model, batch, torch.stack([keys[layer][:, :, -1] for layer in model.memory_layers]))
    lengths_N = batch.valid_RT.unflatten(1, (batch.blocks_per_row, -1)).flatten(0, 1)[:, :-1].sum(-1)
    answer, answer_tokens, first = _answer_loss(model, batch, keys, values, lengths_N, scores_QN, share)
    text = sampled_token_loss(model, batch.ids_RT, batch.valid_RT, hidden_RTE, share.text_positions)
    metrics: dict[str, float | Tensor] = {"answer": answer.detach(), "first_token": first, "text": text.detach()}
    return answer + share.text * text, metrics, int(batch.valid_RT.sum()) + answer_tokens


def _blocks(kv_RGTD: Tensor, blocks_per_row: int) -> Tensor:
    kv_NGLD: Tensor = kv_RGTD.unflatten(2, (blocks_per_row, -1)).transpose(1, 2).flatten(0, 1)
    return kv_NGLD


@torch.no_grad()
def _scores(model: LandmarkModel, batch: QuestionBatch, landmarks_YNGD: Tensor) -> Tensor:
    """scores_QN of the landmarks of the batch in search."""
    found = search_queries(model, batch.asked_QT)
    queries_YQHD = torch.stack(
        [torch.einsum("qhtd,qt->qhd", found[layer].float(), batch.asked_mean_QT) for layer in model.memory_layers]
    )
    weights_YH = SCORE_SCALE * model.search_weights_YH.to(model.device)
    queries_YQGD = (queries_YQHD * weights_YH[:, None, :, None]).unflatten(2, (model.num_kv_heads, -1)).sum(3)
    with torch.autocast(model.device.type, enabled=False):
        return torch.einsum("yqgd,yngd->yqn", queries_YQGD.float(), landmarks_YNGD.float()).sum(0)


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
    loss = nn.functional.cross_entropy(logits, targets[trained])
    with torch.no_grad():
        rows = torch.arange(num, device=device)
        right = model.logits(hidden[rows, first_Q]).argmax(-1) == targets[rows, first_Q]
    return loss, count, right.float().mean()
