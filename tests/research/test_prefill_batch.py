"""Texts read side by side."""

import torch

from model.inference.prefill import prefill
from research.prefill_batch import prefill_batch
from tests.tiny_model import tiny_model


def test_texts_read_side_by_side_give_the_blocks_of_texts_read_one_by_one() -> None:
    model = tiny_model(window_blocks=2, context_blocks=3)
    texts = [torch.randint(0, 256, (length,)).tolist() for length in (50, 3, 0, 29, 14)]
    together: dict[int, list] = {number: [] for number in range(len(texts))}
    for number, block in prefill_batch(model, texts):
        together[number].append(block)
    for number, text in enumerate(texts):
        alone = list(prefill(model, text))
        assert [b.num_tokens for b in alone] == [b.num_tokens for b in together[number]]
        for one, other in zip(alone, together[number], strict=True):
            torch.testing.assert_close(one.keys_YGLD[:, :, -1], other.keys_YGLD[:, :, -1], atol=1e-5, rtol=1e-5)
            rows = slice(0, one.num_tokens)
            torch.testing.assert_close(one.keys_YGLD[:, :, rows], other.keys_YGLD[:, :, rows], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(one.values_YGLD[:, :, rows], other.values_YGLD[:, :, rows], atol=1e-5, rtol=1e-5)
