"""The loss of the span head.

Axes as in `model.training.data.batches.batch_types`; X all tokens of a question and "no answer".
"""

import torch
from torch import Tensor

from model.scoring.span_head import SpanHead
from model.training.data.batches.batch_types import SpanBatch
from model.training.losses.ranking_loss import log_share

NO_ANSWER_WEIGHT = 0.5
"""Weight of a question without an answer."""


def span_loss(head: SpanHead, batch: SpanBatch) -> tuple[Tensor, dict[str, float | Tensor], int]:
    """-log of the share of the right tokens in one softmax over all tokens and "no answer", for first and last token;
    in the form that `run_training` takes."""
    batch = batch.to(head.key.weight.device)
    logits_Q2CL, no_answer_Q2 = head(
        batch.keys_QCLE, batch.valid_QCL, batch.queries_QTE, batch.question_mask_QT, batch.span_queries_Q2E
    )
    ignored_Q2CL = batch.ignored_QCL[:, None] & ~batch.target_mask_Q2CL
    logits_Q2X = torch.cat((logits_Q2CL.masked_fill(ignored_Q2CL, -torch.inf).flatten(2), no_answer_Q2[..., None]), -1)
    no_answer_Q2X = batch.no_answer_Q[:, None, None].expand(-1, 2, 1)
    target_mask_Q2X = torch.cat((batch.target_mask_Q2CL.flatten(2), no_answer_Q2X), -1)
    losses_Q = -log_share(logits_Q2X, target_mask_Q2X).mean(1)
    weight_Q = torch.where(batch.no_answer_Q, NO_ANSWER_WEIGHT, 1.0)
    loss = (losses_Q * weight_Q).sum() / weight_Q.sum()
    hits_Q = target_mask_Q2X[:, 0].gather(1, logits_Q2X[:, 0].argmax(-1, keepdim=True))[:, 0].float()
    answered_Q = ~batch.no_answer_Q
    metrics: dict[str, float | Tensor] = {
        "first_top1": hits_Q[answered_Q].sum() / answered_Q.sum().clamp_min(1),
        "no_answer_top1": hits_Q[batch.no_answer_Q].sum() / batch.no_answer_Q.sum().clamp_min(1),
    }
    return loss, metrics, int(batch.question_mask_QT.sum())
