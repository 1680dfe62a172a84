"""The ranking loss: gold candidates against all others. Axes: Q questions, N candidates, X any."""

import torch
from torch import Tensor


def log_share(logits_X: Tensor, target_mask_X: Tensor) -> Tensor:
    """Log of the share of the targets in a softmax over the last axis."""
    return logits_X.masked_fill(~target_mask_X, -torch.inf).logsumexp(-1) - logits_X.logsumexp(-1)


def ranking_loss(scores_QN: Tensor, gold_QN: Tensor, ignored_QN: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of -log(share of the gold candidates in the softmax over all that count), and how often one is first.

    Questions without a gold candidate do not count; if there is no other the loss is 0.
    """
    ranked_Q = gold_QN.any(-1)
    scores_QN, gold_QN = scores_QN[ranked_Q].masked_fill(ignored_QN[ranked_Q], -torch.inf), gold_QN[ranked_Q]
    if not len(gold_QN):
        return scores_QN.sum(), torch.zeros((), device=scores_QN.device)
    hits = gold_QN.gather(1, scores_QN.argmax(-1, keepdim=True)).float().mean()
    return -log_share(scores_QN, gold_QN).mean(), hits
