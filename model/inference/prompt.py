"""A prompt read without a memory: the queries for search, and the states from which an answer can continue.

Below the first layer that reads a memory, hidden states, keys and values are the same with a memory and without, so an
answer runs only the layers from there on again (docs/decisions/0023-a-question-is-encoded-once.md).

Axes: B batch (1 here), T tokens with landmarks, Q raw tokens, E hidden width, Y memory layers, H query heads, G KV
heads, D head dim.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention.selection import SelectionPolicy
from model.checkpoint.backbones import DynamicCache
from model.checkpoint.encoder_model import EncoderModel
from model.checkpoint.landmark_model import LandmarkModel, cached, on_device


@dataclass(frozen=True, eq=False)
class EncodedPrompt:
    """One forward pass over a prompt, as far as the last memory layer's queries."""

    queries_YHQD: Tensor
    """Of the raw tokens, float32, as `MemoryReader.search` takes them."""
    tokens_with_landmarks: tuple[int, ...]
    hidden_BTE: Tensor
    """What enters the first memory layer."""
    cache: tuple[tuple[Tensor, Tensor], ...]
    """keys_BGTD and values_BGTD, before rotation, of each layer below it."""


@torch.no_grad()
def encode_prompt(model: LandmarkModel, prompt_ids: Sequence[int]) -> EncodedPrompt:
    """Read raw tokens once. Raises `ContextTooLong`."""
    if isinstance(model, EncoderModel):
        queries_11QD = model.question_states(prompt_ids)[None, None]
        return EncodedPrompt(queries_11QD, tuple(prompt_ids), queries_11QD.new_zeros(1, 0, 0), ())
    ids = model.with_landmarks(prompt_ids)
    policy = SelectionPolicy()
    model.check_window(len(ids), policy)
    context = model.context(policy=policy)
    context.search_queries = {}
    first, cache = model.memory_layers[0], DynamicCache()
    hidden_BTE = model.embed(on_device([ids], model.device))
    hidden_BTE = model.run_layers(hidden_BTE, range(first), context, cache)
    context.last_layer = model.memory_layers[-1]
    model.run_layers(hidden_BTE, range(first, model.num_layers), context)
    below = (cached(cache, layer) for layer in range(first))
    raw = [row for row, token in enumerate(ids) if token != model.config.landmark_token_id]
    return EncodedPrompt(
        torch.stack([context.search_queries[layer][0, :, raw].float() for layer in model.memory_layers]),
        tuple(ids),
        hidden_BTE,
        tuple(below),
    )
