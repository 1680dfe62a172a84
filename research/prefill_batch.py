"""Several texts read side by side, for training and evaluation: the product reads one after the other.

Axes: Y memory layers, B texts, G KV heads, N blocks, L tokens in a block, D head dim.
"""

from collections.abc import Iterator, Sequence

from model.attention.block_grid import num_blocks
from model.attention.memory import KVBlock
from model.checkpoint.landmark_model import LandmarkModel
from model.inference.prefill import RecentBlocks, read_windows


def prefill_batch(model: LandmarkModel, documents: Sequence[Sequence[int]]) -> Iterator[tuple[int, KVBlock]]:
    """(number of the text, block), the same blocks as `prefill` gives of each text, in order."""
    recent = _RecentBlocks(model, ())
    rows = [number for number, document in enumerate(documents) if len(document)]
    per_window = model.config.window_blocks * model.config.tokens_per_block
    start = 0
    while rows:
        windows = [list(documents[number][start : start + per_window]) for number in rows]
        keys_YBGNLD, values_YBGNLD, lengths = read_windows(model, windows, recent)
        for row, number in enumerate(rows):
            for block in range(num_blocks(len(windows[row]), model.config.block_size)):
                keys_YGLD, values_YGLD = keys_YBGNLD[:, row, :, block], values_YBGNLD[:, row, :, block]
                yield number, KVBlock(keys_YGLD, values_YGLD, int(lengths[row, block]))
        start += per_window
        alive = [row for row, number in enumerate(rows) if len(documents[number]) > start]
        recent.keep(alive)
        rows = [rows[row] for row in alive]


class _RecentBlocks(RecentBlocks):
    def keep(self, rows: Sequence[int]) -> None:
        """Keep only some of the texts."""
        self._rows = {layer: (keys[rows], values[rows]) for layer, (keys, values) in self._rows.items()}
