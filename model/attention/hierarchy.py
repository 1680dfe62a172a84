"""Hierarchical landmarks, left to future work by the paper (section 5): a second level that gates groups of blocks.

- `fan_out` neighbouring blocks form a group, whose key is the mean of their landmark keys: its product with a query is
  the mean of their logits. The network needs no training for it.
- A query is compared with all groups, and with the landmarks of the best ones only: N / fan_out + groups x fan_out
  products instead of N.
- As an unfinished block has no landmark yet, an unfinished group has no key: its landmarks are always compared.
- An approximation. With every group it is `choose_blocks`, and whether fewer suffice depends on how alike neighbours
  are: docs/paper.md has recall and cost.

Axes: B batch, G KV heads, X voter groups per KV head, R rows that vote together, N stored blocks, P finished groups,
F blocks of a group, C candidates, S slots, D head dim.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention.scores import exact_scores
from model.attention.selection import Hierarchy, logit_size, select_blocks


@dataclass(frozen=True, eq=False)
class LandmarkHierarchy:
    """Landmark keys with the level above them. Make it once, ask often."""

    landmarks_BGND: Tensor
    groups_BGPD: Tensor
    fan_out: int

    @classmethod
    def of(cls, landmarks_BGND: Tensor, fan_out: int) -> "LandmarkHierarchy":
        """Keys that are all in the frame in which queries will meet them."""
        finished = landmarks_BGND.shape[2] // fan_out
        members_BGPFD = landmarks_BGND[:, :, : finished * fan_out].unflatten(2, (finished, fan_out))
        return cls(landmarks_BGND, members_BGPFD.float().mean(3).to(landmarks_BGND.dtype), fan_out)

    def choose(
        self, queries_BGXRD: Tensor, k: int, groups: int, *, scaling: float = 1.0, all_heads: bool = False
    ) -> Tensor:
        """ids_BGXS, ascending, as `choose_blocks` has them among the blocks of the best `groups` groups.

        The batch axis of the landmarks may be 1.
        """
        candidates_BGXC = self._candidates(queries_BGXRD, groups, scaling, all_heads)
        batch, heads = candidates_BGXC.shape[:2]
        row = torch.arange(batch, device=candidates_BGXC.device).view(-1, 1, 1, 1) % self.landmarks_BGND.shape[0]
        head = torch.arange(heads, device=candidates_BGXC.device).view(1, -1, 1, 1)
        keys_BGXCD = self.landmarks_BGND[row, head, candidates_BGXC]
        logits_BGXRC = exact_scores(queries_BGXRD, keys_BGXCD) * scaling
        size_BGX = logit_size(queries_BGXRD, self.landmarks_BGND) * scaling
        return candidates_BGXC.gather(-1, select_blocks(logits_BGXRC, k, size_BGX, all_heads=all_heads))

    def _candidates(self, queries_BGXRD: Tensor, groups: int, scaling: float, all_heads: bool) -> Tensor:
        """ids_BGXC, ascending: the blocks of the best groups, and those of the unfinished one."""
        num_blocks, num_groups = self.landmarks_BGND.shape[2], self.groups_BGPD.shape[2]
        tail = torch.arange(num_groups * self.fan_out, num_blocks, device=queries_BGXRD.device)
        tail_BGXC = tail.expand(*queries_BGXRD.shape[:3], -1)
        if not num_groups:
            return tail_BGXC
        logits_BGXRP = exact_scores(queries_BGXRD, self.groups_BGPD.unsqueeze(2)) * scaling
        size_BGX = logit_size(queries_BGXRD, self.groups_BGPD) * scaling
        best_BGXP = select_blocks(logits_BGXRP, groups, size_BGX, all_heads=all_heads)
        member_F = torch.arange(self.fan_out, device=best_BGXP.device)
        members_BGXC = (best_BGXP.unsqueeze(-1) * self.fan_out + member_F).flatten(-2)
        return torch.cat((members_BGXC, tail_BGXC), -1)


def choose_in_groups(
    queries_BGXRD: Tensor,
    landmarks_BGND: Tensor,
    k: int,
    hierarchy: Hierarchy,
    *,
    scaling: float = 1.0,
    all_heads: bool = False,
) -> Tensor:
    """`choose_blocks` through two levels, for landmarks that are searched once."""
    levels = LandmarkHierarchy.of(landmarks_BGND, hierarchy.fan_out)
    return levels.choose(queries_BGXRD, k, hierarchy.groups, scaling=scaling, all_heads=all_heads)
