"""Any tested Hugging Face causal language model as a landmark model.

- The rotary embedding becomes a deferred one and the attention `landmark_attention`; the weights stay as they are.
- `config.landmark` is saved with the checkpoint; the choice of attention is not, so every `LandmarkModel` sets it.

Axes: B batch, T tokens, Q queries, H query heads, G KV heads, K local keys, D head dim, E hidden width, V vocabulary,
Y memory layers, W searched layers.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.attention.block_grid import check_landmarks, insert_landmarks
from model.attention.context import LandmarkContext, LastLayerReached
from model.attention.landmark_attention import landmark_attention
from model.attention.memory import MemoryReader
from model.attention.selection import SelectionPolicy
from model.checkpoint.adapter import files_of
from model.checkpoint.backbone_model import BackboneModel, TokenText, kept_weights_digest, text_digest
from model.checkpoint.backbones import DynamicCache
from model.checkpoint.config import LandmarkConfig
from model.checkpoint.families import check_backbone, rope_of
from model.errors import ContextTooLong, ModelError

ATTENTION_NAME = "landmark"


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """Tokens of a text and the characters each stands for: text[starts[i]:ends[i]]."""

    ids: list[int]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


@dataclass(frozen=True)
class Prompt:
    """A question in the prompt template; `ids[question]` is the last occurrence of the question itself."""

    ids: list[int]
    question: slice


class LandmarkModel(BackboneModel):
    """A causal language model with landmark attention, its tokenizer and its settings."""

    is_causal_lm: bool = True
    """Whether it predicts tokens; `config.answers` says whether it is good enough at that to answer. An encoder only
    finds."""

    def __init__(self, backbone: Any, tokenizer: Any, config: LandmarkConfig, *, source: str = "") -> None:
        check_backbone(backbone.config)
        super().__init__(backbone, tokenizer, source, ATTENTION_NAME, landmark_attention)
        self.config = config
        if not set(self.memory_layers) <= set(range(self.num_layers)):
            raise ModelError(
                f"memory_layers {config.memory_layers} name layers that the model does not have "
                f"(0 to {self.num_layers - 1})."
            )
        expected = (len(self.memory_layers), self.num_heads)
        for name, weights_YH in (("search", self.search_weights_YH), ("evidence", self.evidence_weights_YH)):
            if (shape := tuple(weights_YH.shape)) != expected:
                raise ModelError(
                    f"{name}_weights have shape {shape}, but the model has {expected[0]} memory layers of "
                    f"{expected[1]} heads: calibrate the checkpoint again."
                )

    # shape

    @property
    def memory_layers(self) -> tuple[int, ...]:
        """Absolute numbers of the layers whose blocks are stored."""
        if self.config.memory_layers is not None:
            return self.config.memory_layers
        return tuple(range(min(1, self.num_layers - 1), self.num_layers))

    @property
    def search_weights_YH(self) -> Tensor:
        """Weight of every head of every memory layer in search; all 1 where the checkpoint has none."""
        if self.config.search_weights is None:
            return torch.ones(len(self.memory_layers), self.num_heads)
        return torch.tensor(self.config.search_weights)

    @property
    def evidence_weights_YH(self) -> Tensor:
        """Weight of every head of every memory layer in what is shown as evidence."""
        weights = self.config.evidence_weights
        return self.search_weights_YH if weights is None else torch.tensor(weights)

    @property
    def searched_layers(self) -> tuple[int, ...]:
        """Absolute numbers of the memory layers with at least one head that counts in search."""
        searched_Y = self.search_weights_YH.any(1).tolist()
        return tuple(layer for layer, searched in zip(self.memory_layers, searched_Y, strict=True) if searched)

    @property
    def max_positions(self) -> int:
        """Positions the backbone was trained for, at most its sliding window: keys beyond that were never seen."""
        config = self.backbone.config
        window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
        return int(min(config.max_position_embeddings, window or config.max_position_embeddings))

    # forward

    def context(
        self,
        *,
        valid_BK: Tensor | None = None,
        reader: MemoryReader | None = None,
        policy: SelectionPolicy | None = None,
    ) -> LandmarkContext:
        """What attention needs for one forward pass; keep it to look at `selections` afterwards."""
        return LandmarkContext(self.config.block_size, self.backbone.model.rotary_emb.rotary, valid_BK, reader, policy)

    def encode(self, ids_BT: Tensor, context: LandmarkContext, cache: DynamicCache | None = None) -> Tensor:
        """hidden_BTE of tokens with landmarks on the block grid, after the final norm.

        The cache receives keys before rotation.
        """
        # The positions are placeholders: rotation is deferred, so the backbone's own numbering never matters.
        positions = torch.zeros((1, ids_BT.shape[1]), dtype=torch.long, device=ids_BT.device)
        hidden_BTE: Tensor = self.backbone.model(
            input_ids=ids_BT,
            position_ids=positions,
            past_key_values=cache,
            use_cache=cache is not None,
            landmark=context,
        ).last_hidden_state
        return hidden_BTE

    def embed(self, ids_BT: Tensor) -> Tensor:
        """hidden_BTE at the input of the first layer."""
        hidden_BTE: Tensor = self.backbone.model.embed_tokens(ids_BT)
        return hidden_BTE

    def run_layers(
        self, hidden_BTE: Tensor, layers: range, context: LandmarkContext, cache: DynamicCache | None = None
    ) -> Tensor:
        """hidden_BTE after some layers, for inference: `encode` runs all of them and the final norm.

        Ends early at `context.last_layer`.
        """
        positions = torch.zeros((1, hidden_BTE.shape[1]), dtype=torch.long, device=hidden_BTE.device)
        tables = self.backbone.model.rotary_emb(hidden_BTE, position_ids=positions)
        with suppress(LastLayerReached):
            for layer in layers:
                hidden_BTE = self.backbone.model.layers[layer](
                    hidden_BTE,
                    attention_mask=None,
                    position_ids=positions,
                    past_key_values=cache,
                    use_cache=cache is not None,
                    position_embeddings=tables,
                    landmark=context,
                )
        return hidden_BTE

    def final_norm(self, hidden_BTE: Tensor) -> Tensor:
        """The result of `encode`, from the hidden states after the last layer."""
        normed_BTE: Tensor = self.backbone.model.norm(hidden_BTE)
        return normed_BTE

    def fill_cache(self, ids_BT: Tensor, context: LandmarkContext, cache: DynamicCache) -> None:
        """Like `encode`, but stops once the last memory layer has its keys and values: no later layer is stored."""
        context.last_layer = self.memory_layers[-1]
        with suppress(LastLayerReached):
            self.encode(ids_BT, context, cache)

    def token_queries(self, queries_YHQD: Tensor) -> Tensor:
        """queries_QWGD for late interaction: weighted as in search and summed over the heads that share keys."""
        searched = [self.memory_layers.index(layer) for layer in self.searched_layers]
        weighted_YHQD = queries_YHQD * self.search_weights_YH[..., None, None].to(queries_YHQD.device)
        summed_WGQD: Tensor = weighted_YHQD[searched].unflatten(1, (self.num_kv_heads, -1)).sum(2)
        return summed_WGQD.permute(2, 0, 1, 3)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits of hidden states of any leading shape."""
        logits: Tensor = self.backbone.lm_head(hidden)
        return logits

    def forward(self, ids_BT: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """logits_BTV of a whole text with landmarks in place, read in one pass without memory (the training forward).

        valid: False at padding, which must be on the right: on the left it would shift the block grid. Raises
        `ModelError` for that, and for a landmark inside a block, which would be read as an ordinary token.
        """
        config = self.config
        check_landmarks(ids_BT, config.block_size, config.landmark_token_id, valid_BT)
        if valid_BT is not None and bool((valid_BT[:, 1:] & ~valid_BT[:, :-1]).any()):
            raise ModelError(
                "padding precedes text: landmark attention needs its padding on the right (padding_side='right')."
            )
        return self.logits(self.encode(ids_BT, self.context(valid_BK=valid_BT)))

    def check_window(self, window_tokens: int, policy: SelectionPolicy | None = None, num_blocks: int = 0) -> None:
        """Raise `ContextTooLong` if a local window and the slots before it need more positions than the model has."""
        slots = 0 if policy is None else policy.local_slot(num_blocks)
        needed = slots * self.config.block_size + window_tokens
        if needed > self.max_positions:
            raise ContextTooLong(
                f"the local window of {window_tokens} tokens and {slots} slots of {self.config.block_size} need "
                f"{needed} positions, but the model has {self.max_positions}: shorten the question, or choose a "
                "smaller window or top_k."
            )

    # text

    def tokenize(self, text: str) -> TokenizedText:
        """Tokens of plain text with their character spans; names of special tokens count as plain text. Thread-safe."""
        # encode_batch releases the GIL, encode does not: a long text would stop every other thread.
        (encoding,) = self._plain_tokenizer.encode_batch([text], add_special_tokens=False)
        offsets = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        return TokenizedText(list(encoding.ids), offsets[:, 0], offsets[:, 1])

    def prompt(self, question: str) -> Prompt:
        """The question in the model's prompt template, after a begin-of-text token if the tokenizer adds one."""
        return self.prompt_of(self.tokenize(question).ids)

    def prompt_of(self, question_ids: Sequence[int]) -> Prompt:
        """The same for a question that is tokenized already."""
        before, *parts = self.config.prompt.split("{question}")
        ids = list(self.tokenizer(before, add_special_tokens=True)["input_ids"])
        if self.tokenizer.eos_token_id is not None and ids and ids[-1] == self.tokenizer.eos_token_id:
            ids.pop()
        question = slice(0)
        for part in parts:
            question = slice(len(ids), len(ids) + len(question_ids))
            ids += [*question_ids, *self.tokenizer(part, add_special_tokens=False)["input_ids"]]
        return Prompt(ids, question)

    @cached_property
    def token_text(self) -> TokenText:
        return TokenText(self.tokenizer)

    def token_ends(self, tokens: Sequence[int], text: str, start: int, end: int) -> list[int]:
        """For each token of the block that stands at start..end of a document's text, the character behind it."""
        return [min(start + length, end) for length in self.token_text.ends(tokens)]

    def with_landmarks(self, raw_ids: Iterable[int], *, filled: int = 0) -> list[int]:
        """Raw tokens with landmarks inserted (see `insert_landmarks`)."""
        config = self.config
        return insert_landmarks(
            list(raw_ids), block_size=config.block_size, landmark_token_id=config.landmark_token_id, filled=filled,
        )  # fmt: skip

    # checkpoint

    def save(self, folder: str | Path) -> None:
        """Write weights (safetensors), config with `landmark`, and tokenizer in Hugging Face layout."""
        self.backbone.config.landmark = self.config.to_dict()
        self.backbone.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def identity(self, kept: Path | None = None) -> dict[str, str]:
        """What determines the bytes of a memory, field by field. `kept`: see `kept_weights_digest`."""
        return {
            "weights": kept_weights_digest(self.backbone, files_of(self.source), kept),
            "tokenizer": text_digest(self.tokenizer.backend_tokenizer.to_str()),
            "rope": text_digest(json.dumps(rope_of(self.backbone.config), sort_keys=True, default=str)),
            "block_size": str(self.config.block_size),
            "landmark_token_id": str(self.config.landmark_token_id),
            "memory_layers": ",".join(map(str, self.memory_layers)),
            "prefill": f"{self.config.window_blocks}+{self.config.context_blocks}",
        }


def on_device(numbers: Sequence[Any], device: torch.device) -> Tensor:
    """int64 tensor of (nested) numbers. The host does not wait for the device, as it would for a copy of its pages."""
    held = torch.tensor(numbers, dtype=torch.int64)
    return held.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else held.to(device)


def cached(cache: DynamicCache, layer: int) -> tuple[Tensor, Tensor]:
    """keys_BGTD and values_BGTD, before rotation, that a forward pass left in the cache."""
    held: Any = cache.layers[layer]
    return held.keys, held.values
