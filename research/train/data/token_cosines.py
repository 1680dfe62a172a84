"""Late interaction of many questions with many blocks at once, differentiable: for training and its candidates.

Axes: Q questions, T tokens of a question, F tokens of all questions, N blocks, J raw tokens in a block, R rows of N / R
blocks, S sentences, E all weighed layers and heads concatenated, P = N x J raw tokens of all blocks.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from model.scoring.late_interaction import projections


@dataclass(frozen=True)
class TokenCosines:
    """Cosines between the tokens of questions and the raw tokens of blocks."""

    cosines_FNJ: Tensor
    weights_F: Tensor
    """Weight of each token in its question (`question_weights`)."""
    question_F: Tensor
    """The question of each token."""
    num_questions: int
    titles_FR: Tensor | None = None
    """The best cosine among the tokens of the title of each row, -1 without one."""

    @classmethod
    def of(cls, queries_QTE: Tensor, question_mask_QT: Tensor, keys_NJE: Tensor) -> "TokenCosines":
        weights_QT = question_weights(queries_QTE, question_mask_QT)
        cosines_FP = cosines(queries_QTE[question_mask_QT], keys_NJE.flatten(0, 1))
        return cls(
            cosines_FP.view(-1, *keys_NJE.shape[:2]),
            weights_QT[question_mask_QT],
            question_mask_QT.nonzero()[:, 0],
            len(queries_QTE),
        )

    def with_titles(
        self, queries_QTE: Tensor, question_mask_QT: Tensor, titles_RTE: Tensor, title_mask_RT: Tensor
    ) -> "TokenCosines":
        """The same, where a title counts as if it stood in every block and sentence of its row."""
        cosines_FRT = TokenCosines.of(queries_QTE, question_mask_QT, titles_RTE).cosines_FNJ
        return replace(self, titles_FR=cosines_FRT.masked_fill(~title_mask_RT, -1.0).amax(-1))

    def block_scores(self, valid_NJ: Tensor) -> Tensor:
        """scores_QN: weighted mean over the question's tokens of the best cosine among a block's tokens.

        Trained by the mean; search ranks by the root of the mean square, neighbours included (`late_interaction`).
        """
        best_FN = self.cosines_FNJ.masked_fill(~valid_NJ, -1.0).amax(-1)
        if self.titles_FR is not None:
            blocks_per_row = best_FN.shape[1] // self.titles_FR.shape[1]
            best_FN = best_FN.maximum(self.titles_FR.repeat_interleave(blocks_per_row, 1))
        return self._summed(best_FN)

    def sentence_scores(self, sentence_NJ: Tensor) -> Tensor:
        """scores_QS as `model.scoring.late_interaction.score` gives them to a sentence's tokens."""
        above_FP, sentence_P = self.cosines_FNJ.flatten(1).clamp_min(0), sentence_NJ.flatten()
        count = int(sentence_P.max()) + 1
        # Tokens of no sentence go into one more, which is dropped.
        index_FP = sentence_P.where(sentence_P >= 0, count).expand_as(above_FP)
        best_FS = above_FP.new_zeros(len(above_FP), count + 1).scatter_reduce(1, index_FP, above_FP, "amax")[:, :-1]
        if self.titles_FR is not None:
            tokens_per_row = len(sentence_P) // self.titles_FR.shape[1]
            row_P = torch.arange(len(sentence_P), device=sentence_P.device) // tokens_per_row
            row_S = row_P.new_zeros(count + 1).scatter(0, index_FP[0], row_P)[:-1]
            best_FS = best_FS.maximum(self.titles_FR[:, row_S])
        # The gradient of the root is infinite at 0, where a sentence has no match at all.
        return self._summed(best_FS.square()).clamp_min(1e-12).sqrt()

    def _summed(self, best_FX: Tensor) -> Tensor:
        sums_QX = best_FX.new_zeros(self.num_questions, best_FX.shape[1])
        return sums_QX.index_add(0, self.question_F, best_FX * self.weights_F[:, None])


def cosines(queries_QTE: Tensor, keys_QNE: Tensor) -> Tensor:
    """cosines_QTN; any number of leading axes."""
    sizes_QT = queries_QTE.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    cosines_QTN: Tensor = projections([(queries_QTE, keys_QNE)]) / sizes_QT
    return cosines_QTN


def question_weights(queries_QTE: Tensor, question_mask_QT: Tensor) -> Tensor:
    """weights_QT: |q| as a share of the sum over the question; 0 outside of it."""
    sizes_QT = queries_QTE.norm(dim=-1) * question_mask_QT
    weights_QT: Tensor = sizes_QT / sizes_QT.sum(-1, keepdim=True).clamp_min(1e-6)
    return weights_QT
