"""Documents into blocks: a stream of windows through the model, finished `KVBlock`s out.

- A window holds `config.window_blocks` blocks and reads the `config.context_blocks` blocks before it at their true
  distance (in the layers that keep a memory), so that a text of any length is read in bounded memory.
- Where no window needs what was read before it, several are read in one pass (`windows_at_once`).
- A text's last block may be short: it is padded, the padding is masked, and its landmark keeps its usual position.
- With `kv_dtype`, windows read what a store would return, so that a run resumed from stored blocks continues exactly.

Axes: B batch, T tokens, G KV heads, N blocks, L tokens in a block, D head dim, Y memory layers.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

from model.attention.block_grid import num_blocks, on_block_grid
from model.attention.memory import KVBlock
from model.checkpoint.backbones import DynamicCache
from model.checkpoint.landmark_model import LandmarkModel, cached


def prefill(
    model: LandmarkModel,
    tokens: Iterable[int],
    *,
    recent: Sequence[KVBlock] = (),
    kv_dtype: torch.dtype | None = None,
    between_layers: Callable[[], None] | None = None,
) -> Iterator[KVBlock]:
    """Read one text of raw tokens and yield its blocks, window by window.

    recent: the blocks before the first token, of which the last `context_blocks` are read; to resume, start the tokens
    at a multiple of `window_blocks` full blocks. kv_dtype: dtype of the blocks (default: the model's). between_layers:
    called in every layer of every pass, so that others may use the processor. Tokens are taken one pass at a time.
    """
    before = RecentBlocks(model, recent)
    source = iter(tokens)
    per_window = model.config.window_blocks * model.config.tokens_per_block
    at_once = windows_at_once(model)
    while windows := [window for _ in range(at_once) if (window := list(islice(source, per_window)))]:
        keys_YBGNLD, values_YBGNLD, lengths = read_windows(model, windows, before, kv_dtype, between_layers)
        for row, block in (lengths > 0).nonzero().tolist():
            yield KVBlock(keys_YBGNLD[:, row, :, block], values_YBGNLD[:, row, :, block], int(lengths[row, block]))


def windows_at_once(model: LandmarkModel) -> int:
    """How many windows of a text are read in one pass."""
    if _context_blocks(model):
        return 1
    return 16 if model.device.type == "cuda" else 4


def _context_blocks(model: LandmarkModel) -> int:
    """Blocks before a window that change what is stored of it: none where only one layer keeps a memory, since its keys
    and values are taken before its attention."""
    return model.config.context_blocks if len(model.memory_layers) > 1 else 0


class RecentBlocks:
    """The last `context_blocks` blocks of each text, which the next window finds in front of itself in its cache."""

    def __init__(self, model: LandmarkModel, blocks: Sequence[KVBlock]) -> None:
        config = model.config
        self._capacity, self._size = _context_blocks(model), config.block_size
        if self._capacity:
            model.check_window((self._capacity + config.window_blocks) * config.block_size)
        self._layers = model.memory_layers
        self._rows: dict[int, tuple[Tensor, Tensor]] = {}  # layer -> keys_BGTD, values_BGTD
        kept = list(blocks)[-self._capacity :] if self._capacity else []
        assert all(block.num_tokens == self._size - 1 for block in kept), "a short block ends its text"
        if kept:
            keys_YGTD = torch.cat([block.keys_YGLD for block in kept], 2).to(model.device, model.dtype)
            values_YGTD = torch.cat([block.values_YGLD for block in kept], 2).to(model.device, model.dtype)
            self._rows = {layer: (keys_YGTD[y][None], values_YGTD[y][None]) for y, layer in enumerate(self._layers)}

    def cache(self) -> DynamicCache:
        """A cache that holds these blocks; layers without memory start empty."""
        cache = DynamicCache()
        for layer, (keys, values) in self._rows.items():
            cache.update(keys, values, layer)
        return cache

    def add(self, read: dict[int, tuple[Tensor, Tensor]]) -> None:
        """Put the blocks of a window behind the others: keys_BGTD and values_BGTD by layer."""
        room = self._capacity * self._size
        for layer, new in read.items() if room else ():
            old = self._rows.get(layer)
            joined = new if old is None else (torch.cat((old[0], new[0]), 2), torch.cat((old[1], new[1]), 2))
            self._rows[layer] = (joined[0][:, :, -room:], joined[1][:, :, -room:])


@torch.no_grad()
def read_windows(
    model: LandmarkModel,
    windows: list[list[int]],
    recent: RecentBlocks,
    kv_dtype: torch.dtype | None = None,
    between_layers: Callable[[], None] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One forward pass; adds its blocks to `recent`. Returns keys_YBGNLD, values_YBGNLD and lengths_BN."""
    config, size = model.config, model.config.block_size
    blocks = max(num_blocks(len(window), size) for window in windows)
    ids, valid, lengths = on_block_grid(windows, blocks, block_size=size, landmark_token_id=config.landmark_token_id)
    cache = recent.cache()
    context = model.context(valid_BK=None if bool(valid.all()) else valid.flatten(1).to(model.device))
    context.between_layers = between_layers
    model.fill_cache(ids.flatten(1).to(model.device), context, cache)
    stored = {
        layer: tuple(kv[:, :, -blocks * size :].to(kv_dtype or kv.dtype) for kv in cached(cache, layer))
        for layer in model.memory_layers
    }
    recent.add({layer: (keys.to(model.dtype), values.to(model.dtype)) for layer, (keys, values) in stored.items()})
    keys, values = (torch.stack([kv[n] for kv in stored.values()]).unflatten(3, (blocks, size)) for n in (0, 1))
    return keys, values, lengths


# The first token of a text has an unusual key, so a title is read as the end of a sentence.
_OPENING = "This is about"
_LONGEST = 32


def title_ids(model: LandmarkModel, title: str) -> tuple[list[int], slice]:
    """Raw tokens to encode, and where the title is among them: at most 32 tokens, none of an empty one."""
    opening = model.tokenize(_OPENING).ids
    ids = model.tokenize(f" {_spelled(title)}").ids[:_LONGEST] if title.strip() else []
    return [*opening, *ids], slice(len(opening), len(opening) + len(ids))


def _spelled(title: str) -> str:
    """A file name as words."""
    words = re.sub(r"[_\s]+", " ", title).strip()
    return words if " " in words else words.replace("-", " ")
