"""Graded targets of search: among the blocks that a question takes for the best, some are nearly as good as the gold
one, and a reader that sees question and block together says how good each is.

Late interaction learns the reader's distribution over these candidates (knowledge distillation; Hofstätter et al. 2020,
arXiv 2010.02666), beside or in place of the one-hot target. The reader is the one that reads passages
(`model.reading`); it is not trained here.

Axes: R rows, Q questions, N blocks of the batch, J raw tokens in a block, C candidates of a question.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import kl_div

from model.checkpoint.landmark_model import LandmarkModel
from model.precision import fast_precision
from model.reading.rows import RowTokens, join_rows
from model.reading.span_reader import SpanReader
from research.train.data.batches.batch_types import DistillationBatch


@dataclass(frozen=True)
class Graded:
    """What the reader makes of the candidates of some questions of a batch."""

    question_G: Tensor
    """Numbers of the questions."""
    block_GC: Tensor
    share_GC: Tensor
    """Of each candidate in the chance that one of them holds the answer; 0 for candidates that do not count."""
    answered_G: Tensor
    """The chance that one does."""


class TargetGrader:
    """Has the best candidates of a batch read together with their question.

    questions, candidates: so many of each are read in a step; reading is what the grades cost.
    """

    def __init__(self, reader: SpanReader, model: LandmarkModel, *, questions: int = 16, candidates: int = 16) -> None:
        self._reader, self._model = reader, model
        self._questions, self._candidates = questions, candidates
        self._tokens = RowTokens.of(reader.tokenizer)

    @torch.no_grad()
    def grade(self, batch: DistillationBatch, late_QN: Tensor) -> Graded:
        """Grades of the questions of the batch that come first, over the blocks that late interaction ranks best.

        Gold blocks are always candidates; blocks that are neither right nor wrong count like all others, because the
        reader can tell.
        """
        empty_N = ~batch.valid_RT.unflatten(1, (-1, self._model.config.block_size)).flatten(0, 1)[:, 0]
        gold_QN = batch.gold_QN[: self._questions]
        order_QN = late_QN[: self._questions].masked_fill(gold_QN, torch.inf).masked_fill(empty_N, -torch.inf)
        order_QC, block_QC = order_QN.topk(min(self._candidates, order_QN.shape[1]))
        texts, titles = self._texts(batch, block_QC), self._titles(batch)
        per_row = self._model.config.block_size
        blocks_a_row = batch.ids_RT.shape[1] // per_row
        rows = join_rows(
            [
                (asked, titles[block // blocks_a_row], texts[block])
                for asked, blocks in zip(self._asked(batch, len(block_QC)), block_QC.tolist(), strict=True)
                for block in blocks
            ],
            block_QC.shape[1],
            self._tokens,
        )
        network, device = self._reader.network, self._reader.network.points.weight.device
        given = [each.to(device) for each in rows.inputs()]
        with torch.autocast(device.type, torch.bfloat16, enabled=fast_precision(device.type) == "bf16"):
            points = network.read(*(each.flatten(0, 1) for each in given[:3])).view(*rows.ids_QKT.shape, 2)
        logits = network.share(points, given[2], given[3])
        probability_QN = torch.stack([each[:, :-1].softmax(-1) for each in logits]).mean(0)
        share_QC = probability_QN.unflatten(1, rows.ids_QKT.shape[1:]).sum(-1).to(late_QN.device)
        share_QC = share_QC.masked_fill(order_QC == -torch.inf, 0)
        answered_Q = 1 - logits.no_answer().to(late_QN.device)
        return Graded(torch.arange(len(block_QC), device=late_QN.device), block_QC, share_QC, answered_Q)

    def _pieces(self, texts: list[str]) -> list[list[int]]:
        return [each.ids for each in self._reader.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def _texts(self, batch: DistillationBatch, block_QC: Tensor) -> dict[int, list[int]]:
        """Word pieces of every candidate."""
        size = self._model.config.block_size
        ids_NL, valid_NL = (x.unflatten(1, (-1, size)).flatten(0, 1) for x in (batch.ids_RT, batch.valid_RT))
        blocks = block_QC.unique().tolist()
        texts = [self._model.decode(ids_NL[n, :-1][valid_NL[n, :-1]].tolist()) for n in blocks]
        return dict(zip(blocks, self._pieces(texts), strict=True))

    def _titles(self, batch: DistillationBatch) -> list[list[int]]:
        rows = zip(batch.titles_RT, batch.title_mask_RT, strict=True)
        return self._pieces([self._model.decode(ids_T[mask_T].tolist()) for ids_T, mask_T in rows])

    def _asked(self, batch: DistillationBatch, count: int) -> list[list[int]]:
        rows = zip(batch.question_ids_QT[:count], batch.question_mask_QT[:count], strict=True)
        return self._pieces([self._model.decode(ids_T[mask_T].tolist()) for ids_T, mask_T in rows])


def graded_loss(scores_QN: Tensor, graded: Graded) -> Tensor:
    """KL divergence of the softmax of scores_QN over the candidates from the reader's shares, in nats; a question
    counts as much as the reader believes that it is answered."""
    scores_GC = scores_QN[graded.question_G].gather(1, graded.block_GC)
    scores_GC = scores_GC.masked_fill(graded.share_GC == 0, -torch.inf)
    log_share_GC = scores_GC.log_softmax(-1).masked_fill(graded.share_GC == 0, 0)
    apart_G = kl_div(log_share_GC, graded.share_GC, reduction="none").sum(-1)
    loss: Tensor = (apart_G * graded.answered_G).sum() / graded.answered_G.sum().clamp_min(1e-6)
    return loss
