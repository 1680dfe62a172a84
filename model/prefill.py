"""Documents into blocks: a stream of windows through the model, finished `KVBlock`s out.

- A window holds `config.window_blocks` blocks and reads the `config.context_blocks` blocks before it at their true
  distance, so that memory is bounded by the window and a text of any length is read in one pass.
- A text's last block may be short: it is padded, the padding is hidden from everybody, and its landmark stands at its
  usual place.
- With `kv_dtype`, windows read what a store would give back, so that a run resumed from stored blocks continues
  exactly as before.

Axes: B batch, T tokens, G KV heads, N blocks, L tokens in a block, D head dim, Y memory layers.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor
from transformers import DynamicCache

from model.backbone import LandmarkModel, cached
from model.blocks import num_blocks
from model.errors import ModelError
from model.memory import KVBlock, RamMemory
from model.reading import ReadPolicy


def prefill(
    model: LandmarkModel, tokens: Iterable[int], *, recent: Sequence[KVBlock] = (), kv_dtype: torch.dtype | None = None
) -> Iterator[KVBlock]:
    """Read one text of raw tokens and hand out its blocks window by window.

    recent: the blocks before the first token, of which the last `context_blocks` are read; to resume, give tokens
    from a multiple of `window_blocks` full blocks on. kv_dtype: dtype of the blocks (default: the model's). Nothing
    is read ahead of a full window.
    """
    memory = _recent_memory(model, recent)
    source = iter(tokens)
    per_window = model.config.window_blocks * model.config.tokens_per_block
    while window := list(islice(source, per_window)):
        keys_YBGNLD, values_YBGNLD, lengths = _read_window(model, [window], memory, kv_dtype)
        for block in range(lengths.shape[1]):
            yield KVBlock(keys_YBGNLD[:, 0, :, block], values_YBGNLD[:, 0, :, block], int(lengths[0, block]))


def prefill_batch(
    model: LandmarkModel, documents: Sequence[Sequence[int]], *, kv_dtype: torch.dtype | None = None
) -> Iterator[tuple[int, KVBlock]]:
    """Read several texts side by side; yields (number of the text, block), blocks of one text in order. Same blocks
    as one by one."""
    memory = _recent_memory(model, ())
    rows = [number for number, document in enumerate(documents) if len(document)]
    per_window = model.config.window_blocks * model.config.tokens_per_block
    start = 0
    while rows:
        windows = [list(documents[number][start : start + per_window]) for number in rows]
        keys_YBGNLD, values_YBGNLD, lengths = _read_window(model, windows, memory, kv_dtype)
        for row, number in enumerate(rows):
            for block in range(num_blocks(len(windows[row]), model.config.block_size)):
                yield (
                    number,
                    KVBlock(keys_YBGNLD[:, row, :, block], values_YBGNLD[:, row, :, block], int(lengths[row, block])),
                )
        start += per_window
        alive = [row for row, number in enumerate(rows) if len(documents[number]) > start]
        memory = (
            memory.rows(torch.tensor(alive, dtype=torch.long, device=model.device))
            if memory is not None and alive
            else memory
        )
        rows = [rows[row] for row in alive]


def _recent_memory(model: LandmarkModel, recent: Sequence[KVBlock]) -> RamMemory | None:
    """The blocks that the next window reads; None if the model is set to read none."""
    capacity = model.config.context_blocks
    if not capacity:
        return None
    model.check_window(
        model.config.window_blocks * model.config.block_size,
        ReadPolicy(top_k=capacity, positions="paper"),
        num_blocks=capacity,
    )
    return RamMemory.from_blocks(
        model.memory_layers, list(recent)[-capacity:], capacity=capacity, device=model.device, dtype=model.dtype
    )


@torch.no_grad()
def _read_window(
    model: LandmarkModel, windows: list[list[int]], memory: RamMemory | None, kv_dtype: torch.dtype | None
) -> tuple[Tensor, Tensor, Tensor]:
    """One forward pass; appends its blocks to `memory`. Returns keys_YBGNLD, values_YBGNLD and lengths_BN."""
    config, size = model.config, model.config.block_size
    if any(config.landmark_token_id in window for window in windows):
        raise ModelError(
            "the text contains the landmark token, which only the block grid may place; remove it from the text."
        )
    blocks = max(num_blocks(len(window), size) for window in windows)
    ids = torch.zeros((len(windows), blocks, size), dtype=torch.long)
    lengths = torch.zeros((len(windows), blocks), dtype=torch.long)
    ids[:, :, -1] = config.landmark_token_id
    for row, window in enumerate(windows):
        padded = torch.zeros(blocks * (size - 1), dtype=torch.long)
        padded[: len(window)] = torch.tensor(window)
        ids[row, :, :-1] = padded.view(blocks, -1)
        lengths[row] = (len(window) - torch.arange(blocks) * (size - 1)).clamp(0, size - 1)
    full = bool((lengths == size - 1).all())
    token = torch.arange(size)
    valid = (token < lengths[..., None]) | ((token == size - 1) & (lengths[..., None] > 0))

    stored = memory.num_blocks if memory is not None else 0
    reading = ReadPolicy(top_k=max(1, config.context_blocks), positions="paper")
    context = model.context(
        valid_BK=None if full else valid.flatten(1).to(model.device), reader=memory if stored else None, reading=reading
    )
    cache = DynamicCache()
    model.encode(ids.flatten(1).to(model.device), context, cache)
    read = [
        tuple(kv.unflatten(2, (blocks, size)).to(kv_dtype or kv.dtype) for kv in cached(cache, layer))
        for layer in model.memory_layers
    ]
    lengths = lengths.to(model.device)
    if memory is not None:
        layers = {
            layer: (k.to(model.dtype), v.to(model.dtype))
            for layer, (k, v) in zip(model.memory_layers, read, strict=True)
        }
        memory.append(layers, lengths)
    return torch.stack([keys for keys, _ in read]), torch.stack([values for _, values in read]), lengths.cpu()
