"""The context-miss token (future work of the paper, its appendix on fewer retrievals): one token that stands for "it is
not in the window".

- Its key competes with the local tokens; the landmarks of remote blocks form a softmax of their own, whose weights are
  multiplied by its share. In training a random half of the blocks counts as remote, in inference every stored block.
- It is a token of the vocabulary that the network reads alone, and stands in front of the text (position -1): no text
  changes it, and its value is never read. Without a remote block it takes no part.
- A query that gives it less than a cutoff needs no memory: what it would have read is dropped.

Axes: B batch, H query heads, Q queries, N blocks, S slots.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention.grouped_softmax import MASKED


@dataclass(frozen=True)
class MissGate:
    """What the token adds to the gates of one layer."""

    logits_BHQ: Tensor
    """Of the queries with the token's key."""
    remote_BN: Tensor | None = None
    """Local blocks that count as remote, in training."""

    def over_blocks(self, gates_BHQN: Tensor) -> Tensor:
        """Gates of earlier local blocks, masked where a query does not see one."""
        if self.remote_BN is None:
            return gates_BHQN
        remote_BHQN = self.remote_BN[:, None, None, :] & (gates_BHQN > MASKED / 2)
        among = gates_BHQN.masked_fill(~remote_BHQN, MASKED).log_softmax(-1)
        return torch.where(remote_BHQN, among + self.logits_BHQ.unsqueeze(-1), gates_BHQN)

    def over_slots(self, gates_BHQS: Tensor) -> Tensor:
        """Gates of stored blocks, all of which are remote."""
        return gates_BHQS.log_softmax(-1) + self.logits_BHQ.unsqueeze(-1)


def without_needless(weights_BHQSL: Tensor, cutoff: float) -> Tensor:
    """Weights of stored blocks, 0 for queries that give the token less than `cutoff`."""
    share_BHQ11 = weights_BHQSL.sum((-2, -1), keepdim=True)
    return weights_BHQSL.masked_fill(share_BHQ11 < cutoff, 0.0)
