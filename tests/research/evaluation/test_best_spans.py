"""The best span of each question."""

import torch

from model.reading.network import SpanLogits
from research.train.evaluation.joint_reading import best_spans


def test_the_best_span_lies_in_one_stretch_and_is_not_longer_than_asked() -> None:
    start, end = torch.full((1, 9), -5.0), torch.full((1, 9), -5.0)
    start[0, 1], end[0, 5], end[0, 2] = 4.0, 4.0, 1.0  # the best end is in the next stretch
    stretch = torch.tensor([[0, 0, 0, -1, 1, 1, 1, 1]])
    spans = best_spans(SpanLogits(start, end), stretch)
    assert (int(spans.first_Q), int(spans.last_Q)) == (1, 2)
    together = best_spans(SpanLogits(start, end), torch.zeros(1, 8, dtype=torch.long))
    assert (int(together.first_Q), int(together.last_Q)) == (1, 5)
    short = best_spans(SpanLogits(start, end), torch.zeros(1, 8, dtype=torch.long), longest=3)
    assert (int(short.first_Q), int(short.last_Q)) == (1, 2)
    expected = start.log_softmax(-1)[0, 1] + end.log_softmax(-1)[0, 2]
    torch.testing.assert_close(short.score_Q[0], expected)
