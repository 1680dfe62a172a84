"""What the pointing head is shown, and its loss.

Axes: Q questions, C blocks, L tokens in a block, T tokens of a question, E width of a key.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.scoring.span_head import SpanHead


@dataclass(frozen=True)
class SpanBatch:
    """One micro-batch."""

    keys_QCLE: Tensor
    there_QCL: Tensor
    queries_QTE: Tensor
    asked_QT: Tensor
    pointers_Q2E: Tensor
    right_Q2CL: Tensor
    """Where the answer begins and ends, every time that it stands in the gold passage."""
    ignored_QCL: Tensor
    """The same words elsewhere: neither right nor wrong."""
    nothing_Q: Tensor
    """The answer stands in none of the blocks."""


def span_loss(head: SpanHead, batch: SpanBatch) -> tuple[Tensor, dict[str, float | Tensor], int]:
    """-log of the share of the right tokens in one softmax over all tokens and "nothing", first and last token; in the
    form that `run_training` takes. Questions without an answer count half."""
    device = head.key.weight.device
    batch = SpanBatch(**{name: value.to(device) for name, value in vars(batch).items()})
    points_Q2CL, nothing_Q2 = head(
        batch.keys_QCLE, batch.there_QCL, batch.queries_QTE, batch.asked_QT, batch.pointers_Q2E
    )
    ignored_Q2CL = batch.ignored_QCL[:, None] & ~batch.right_Q2CL
    logits_Q2X = torch.cat((points_Q2CL.masked_fill(ignored_Q2CL, -torch.inf).flatten(2), nothing_Q2[..., None]), -1)
    nothing_Q2X = batch.nothing_Q[:, None, None].expand(-1, 2, 1)
    right_Q2X = torch.cat((batch.right_Q2CL.flatten(2), nothing_Q2X), -1)
    losses_Q = (logits_Q2X.logsumexp(-1) - logits_Q2X.masked_fill(~right_Q2X, -torch.inf).logsumexp(-1)).mean(1)
    weight_Q = torch.where(batch.nothing_Q, 0.5, 1.0)
    loss = (losses_Q * weight_Q).sum() / weight_Q.sum()
    hits_Q = right_Q2X[:, 0].gather(1, logits_Q2X[:, 0].argmax(-1, keepdim=True))[:, 0].float()
    metrics: dict[str, float | Tensor] = {
        "first_top1": hits_Q[~batch.nothing_Q].sum() / (~batch.nothing_Q).sum().clamp_min(1),
        "nothing_top1": hits_Q[batch.nothing_Q].sum() / batch.nothing_Q.sum().clamp_min(1),
    }
    return loss, metrics, int(batch.asked_QT.sum())
