"""Any tested Hugging Face causal language model as a landmark model.

- `load_backbone` swaps the rotary embedding for a deferred one and the attention for `landmark_attention`; weights
  stay as they are.
- `config.landmark` is saved with the checkpoint; the attention choice is not, so it is set at every load.
"""

import copy
import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoTokenizer,
    DynamicCache,
    PreTrainedConfig,
)
from transformers.utils import cached_file

from model.attention.block_grid import insert_landmarks
from model.attention.landmark_attention import DeferredRotary, LandmarkContext, LastLayerReached, landmark_attention
from model.attention.memory import MemoryReader
from model.attention.positions import LIBRARY_LOCAL_SLOT
from model.attention.selection import ReadPolicy
from model.checkpoint.config import LANDMARK_TOKEN, LandmarkConfig
from model.checkpoint.families import check_backbone, rope_of
from model.checkpoint.int8 import read_weights
from model.checkpoint.token_text import TokenText
from model.errors import ContextTooLong, ModelError, UnsupportedBackbone
from model.scoring.span_head import FILE as POINTING_FILE
from model.scoring.span_head import SpanHead, load_head

ATTENTION_NAME = "landmark"


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """Tokens of a text and the characters each stands for: text[starts[i]:ends[i]]."""

    ids: list[int]
    starts: np.ndarray
    ends: np.ndarray


@dataclass(frozen=True)
class Prompt:
    """A question as the model reads it; `question` is the part of `ids` that the user wrote, where it stands last."""

    ids: list[int]
    question: slice


class LandmarkModel(nn.Module):
    """A causal language model with landmark attention, its tokenizer and its settings."""

    def __init__(
        self,
        backbone: Any,
        tokenizer: Any,
        config: LandmarkConfig,
        *,
        source: str = "",
        pointing: SpanHead | None = None,
    ) -> None:
        super().__init__()
        check_backbone(backbone.config)
        self.backbone: Any = backbone  # transformers types the parts of a model as "Tensor | Module"
        self.tokenizer = tokenizer
        self.config = config
        self.source = source
        self.pointing = pointing
        if not isinstance(backbone.model.rotary_emb, DeferredRotary):
            backbone.model.rotary_emb = DeferredRotary(backbone.model.rotary_emb)
        register_attention()
        backbone.set_attn_implementation(ATTENTION_NAME)
        if config.memory_layers is not None and not set(config.memory_layers) <= set(range(self.num_layers)):
            raise ModelError(
                f"memory_layers {config.memory_layers} name layers that the model does not have "
                f"(0 to {self.num_layers - 1})."
            )
        shape = (len(self.memory_layers), self.num_heads)
        if config.search_weights is not None and tuple(torch.tensor(config.search_weights).shape) != shape:
            raise ModelError(
                f"search_weights have shape {tuple(torch.tensor(config.search_weights).shape)}, but the model has "
                f"{shape[0]} memory layers of {shape[1]} heads: calibrate the checkpoint again."
            )

    # shape

    @property
    def device(self) -> torch.device:
        return self.backbone.device

    @property
    def dtype(self) -> torch.dtype:
        return self.backbone.dtype

    @property
    def num_layers(self) -> int:
        return self.backbone.config.num_hidden_layers

    @property
    def num_heads(self) -> int:
        return self.backbone.config.num_attention_heads

    @property
    def num_kv_heads(self) -> int:
        return self.backbone.config.num_key_value_heads

    @property
    def head_dim(self) -> int:
        config = self.backbone.config
        return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    @property
    def memory_layers(self) -> tuple[int, ...]:
        """Absolute numbers of the layers whose blocks are stored."""
        return (
            self.config.memory_layers
            if self.config.memory_layers is not None
            else tuple(range(min(1, self.num_layers - 1), self.num_layers))
        )

    @property
    def search_weights_YH(self) -> Tensor:
        """Weight of every head of every memory layer in search; all 1 where the checkpoint has none."""
        if self.config.search_weights is None:
            return torch.ones(len(self.memory_layers), self.num_heads)
        return torch.tensor(self.config.search_weights)

    @property
    def searched_layers(self) -> tuple[int, ...]:
        """Absolute numbers of the memory layers of which any head has a weight in search."""
        searched_Y = self.search_weights_YH.any(1).tolist()
        return tuple(layer for layer, searched in zip(self.memory_layers, searched_Y, strict=True) if searched)

    @property
    def max_positions(self) -> int:
        """Positions the backbone was trained for; a sliding window counts as such, since keys beyond it were never
        seen."""
        config = self.backbone.config
        window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
        return min(config.max_position_embeddings, window or config.max_position_embeddings)

    # forward

    def context(
        self, *, valid_BK: Tensor | None = None, reader: MemoryReader | None = None, reading: ReadPolicy | None = None
    ) -> LandmarkContext:
        """What attention needs for one forward pass; keep it to look at `selections` afterwards."""
        return LandmarkContext(self.config.block_size, self.backbone.model.rotary_emb.rotary, valid_BK, reader, reading)

    def encode(self, ids_BT: Tensor, context: LandmarkContext, cache: DynamicCache | None = None) -> Tensor:
        """hidden_BTE of tokens with landmarks on the block grid, after the final norm. The cache takes keys before
        rotation."""
        # The positions are placeholders: rotation is deferred, so the backbone's own numbering never matters.
        positions = torch.zeros((1, ids_BT.shape[1]), dtype=torch.long, device=ids_BT.device)
        return self.backbone.model(
            input_ids=ids_BT,
            position_ids=positions,
            past_key_values=cache,
            use_cache=cache is not None,
            landmark=context,
        ).last_hidden_state

    def embed(self, ids_BT: Tensor) -> Tensor:
        """hidden_BTE that enter the first layer."""
        return self.backbone.model.embed_tokens(ids_BT)

    def run_layers(
        self, hidden_BTE: Tensor, layers: range, context: LandmarkContext, cache: DynamicCache | None = None
    ) -> Tensor:
        """hidden_BTE behind some layers, for inference: a part of `encode`, which goes through all of them and the
        final norm. Ends early at `context.last_layer`."""
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
        """What `encode` gives, from the hidden states behind the last layer."""
        return self.backbone.model.norm(hidden_BTE)

    def fill_cache(self, ids_BT: Tensor, context: LandmarkContext, cache: DynamicCache) -> None:
        """Like `encode`, but only as far as the keys and values of the last memory layer: nothing behind them is
        stored."""
        context.last_layer = self.memory_layers[-1]
        with suppress(LastLayerReached):
            self.encode(ids_BT, context, cache)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits of hidden states of any leading shape."""
        return self.backbone.lm_head(hidden)

    def forward(self, ids_BT: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """logits_BTV of a whole text with landmarks in place, read in one pass without memory (the training forward).

        valid: False at padding, which must stand on the right: on the left it would shift the block grid.
        """
        if valid_BT is not None and bool((valid_BT[:, 1:] & ~valid_BT[:, :-1]).any()):
            raise ModelError(
                "padding stands before text: landmark attention needs its padding on the right (padding_side='right')."
            )
        return self.logits(self.encode(ids_BT, self.context(valid_BK=valid_BT)))

    def check_window(self, window_tokens: int, reading: ReadPolicy | None = None, num_blocks: int = 0) -> None:
        """Raise `ContextTooLong` if a local window and the slots before it need more positions than the backbone
        has."""
        slots = (
            0
            if reading is None
            else LIBRARY_LOCAL_SLOT
            if reading.positions == "library"
            else min(reading.top_k, num_blocks) + 1
        )
        needed = slots * self.config.block_size + window_tokens
        if needed > self.max_positions:
            raise ContextTooLong(
                f"the local window of {window_tokens} tokens and {slots} slots of {self.config.block_size} "
                f"need {needed} positions, but the "
                f"model has {self.max_positions}: shorten the question, or choose a smaller window or top_k."
            )

    # text

    def tokenize(self, text: str) -> TokenizedText:
        """Tokens of plain text with their character spans; names of special tokens in it are plain text too. Any number
        of threads may tokenize at once."""
        # encode_batch, as encode keeps Python's lock all the while: a long text would stop every other thread
        (encoding,) = self._plain_tokenizer.encode_batch([text], add_special_tokens=False)
        offsets = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        return TokenizedText(list(encoding.ids), offsets[:, 0], offsets[:, 1])

    @cached_property
    def _plain_tokenizer(self) -> Any:
        """A copy that is only read, so that threads can share it."""
        plain = copy.deepcopy(self.tokenizer.backend_tokenizer)
        plain.encode_special_tokens = True
        plain.no_padding()
        plain.no_truncation()
        return plain

    def prompt(self, question: str) -> Prompt:
        """The question inside the model's prompt template, begin-of-text token first where the tokenizer has that
        habit."""
        return self.prompt_of(self.tokenize(question).ids)

    def prompt_of(self, question_ids: Sequence[int]) -> Prompt:
        """`prompt` of a question in tokens."""
        before, *parts = self.config.prompt.split("{question}")
        ids = list(self.tokenizer(before, add_special_tokens=True)["input_ids"])
        if self.tokenizer.eos_token_id is not None and ids and ids[-1] == self.tokenizer.eos_token_id:
            ids.pop()
        asked = slice(0)
        for part in parts:
            asked = slice(len(ids), len(ids) + len(question_ids))
            ids += [*question_ids, *self.tokenizer(part, add_special_tokens=False)["input_ids"]]
        return Prompt(ids, asked)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of tokens; special tokens and landmarks leave no trace."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    @cached_property
    def token_text(self) -> TokenText:
        return TokenText(self.tokenizer)

    def with_landmarks(self, raw_ids: Iterable[int], *, filled: int = 0) -> list[int]:
        """Raw tokens with landmarks put in place (see `blocks.insert_landmarks`)."""
        config = self.config
        return insert_landmarks(
            list(raw_ids), block_size=config.block_size, landmark_token_id=config.landmark_token_id, filled=filled
        )

    # checkpoint

    def save(self, folder: str | Path) -> None:
        """Write weights (safetensors), config with `landmark`, and tokenizer in Hugging Face layout."""
        self.backbone.config.landmark = self.config.to_dict()
        self.backbone.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        if self.pointing is not None:
            self.pointing.save(Path(folder))

    def with_config(self, **changes: Any) -> "LandmarkModel":
        """The same weights under changed landmark settings."""
        config = replace(self.config, **changes)
        return LandmarkModel(self.backbone, self.tokenizer, config, source=self.source, pointing=self.pointing)

    def with_pointing(self, head: SpanHead) -> "LandmarkModel":
        """The same weights with a pointing head."""
        config = replace(self.config, pointing=(head.width, head.layers))
        return LandmarkModel(self.backbone, self.tokenizer, config, source=self.source, pointing=head)

    def identity(self) -> dict[str, str]:
        """What determines the bytes of a memory, field by field: weights, tokenizer, rope, block size, landmark,
        stored layers."""
        config = self.backbone.config
        return {
            "weights": self._weights_digest(),
            "tokenizer": _digest(self.tokenizer.backend_tokenizer.to_str().encode()),
            "rope": _digest(json.dumps(rope_of(config), sort_keys=True, default=str).encode()),
            "block_size": str(self.config.block_size),
            "landmark_token_id": str(self.config.landmark_token_id),
            "memory_layers": ",".join(map(str, self.memory_layers)),
            "prefill": f"{self.config.window_blocks}+{self.config.context_blocks}",
        }

    def _weights_digest(self) -> str:
        """sha256 over names, shapes and bytes of all weights, in name order, as they stand in memory."""
        hasher = hashlib.sha256(b"cairn weights 1\0")
        for name, weight in sorted(self.backbone.state_dict().items()):
            hasher.update(f"{name}{tuple(weight.shape)}{weight.dtype}\0".encode())
            hasher.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return hasher.hexdigest()


def register_attention() -> None:
    """Make `landmark_attention` known to transformers (process-wide, so done when a model is made and never at
    import)."""
    AttentionInterface.register(ATTENTION_NAME, landmark_attention)


def load_backbone(
    path_or_hub_id: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    block_size: int = 64,
) -> LandmarkModel:
    """Load a checkpoint as a landmark model, ready for inference.

    Device: CUDA if there is one, else CPU. Dtype: bfloat16 on CUDA and for models over a billion parameters, else
    float32; matrices kept as int8 (`model.checkpoint.int8`) are expanded to it. A checkpoint that is not a landmark
    model yet gets a landmark token, its rows the mean of the old ones, and blocks of `block_size`. Raises
    `UnsupportedBackbone` for families and configurations that were not tested, `ModelError` for a folder without a
    checkpoint and for weights that are damaged or do not fit.
    """
    source = str(path_or_hub_id)
    if Path(source).exists() and not (Path(source) / "config.json").is_file():
        raise ModelError(
            f"{source} holds no checkpoint: config.json is missing. Give the folder of a Hugging Face checkpoint."
        )
    try:
        config = AutoConfig.from_pretrained(source)
    except OSError as error:
        raise ModelError(
            f"no checkpoint at {source}: neither a folder nor a model that could be downloaded ({error})."
        ) from error
    check_backbone(config)
    target = (
        torch.device(device) if device is not None else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    )
    tokenizer = AutoTokenizer.from_pretrained(source)
    if not tokenizer.is_fast:
        raise UnsupportedBackbone(
            f"{source} has no fast tokenizer (tokenizer.json), which gives the place of every token in the text."
        )
    chosen = getattr(torch, dtype) if isinstance(dtype, str) else dtype or _default_dtype(config, target)
    backbone = read_weights(source, config, chosen)
    landmark = getattr(config, "landmark", None)
    if landmark is None:
        settings = LandmarkConfig(
            block_size=block_size, landmark_token_id=add_landmark_token(backbone, tokenizer), stop=("\n",)
        )
    else:
        settings = LandmarkConfig.from_dict(landmark)
        if settings.landmark_token_id >= backbone.get_input_embeddings().num_embeddings:
            raise ModelError(
                f"config.landmark names token {settings.landmark_token_id}, which the vocabulary does not have."
            )
    model = LandmarkModel(backbone.to(target).eval(), tokenizer, settings, source=source)
    if settings.pointing is not None:
        model.pointing = _read_pointing(model, settings.pointing).to(target)
    return model


def _read_pointing(model: LandmarkModel, sizes: tuple[int, int]) -> SpanHead:
    """The head, in float32 whatever the network's dtype: it is small, and its sums are not."""
    file = cached_file(model.source, POINTING_FILE, _raise_exceptions_for_missing_entries=False)
    if file is None:
        raise ModelError(f"{model.source} holds no {POINTING_FILE}; copy the checkpoint again.")
    weights = model.config.search_weights
    weighed = len(model.memory_layers) if weights is None else sum(any(row) for row in weights)
    key_width = weighed * model.num_kv_heads * model.head_dim
    return load_head(Path(file), key_width=key_width, width=sizes[0], layers=sizes[1])


def add_landmark_token(backbone: Any, tokenizer: Any) -> int:
    """Give the vocabulary a landmark token; its input and output rows start as the mean of the old rows. Returns its
    id."""
    old = len(tokenizer)
    tokenizer.add_tokens([LANDMARK_TOKEN], special_tokens=True)
    token = int(tokenizer.convert_tokens_to_ids(LANDMARK_TOKEN))
    if token >= backbone.get_input_embeddings().num_embeddings:
        backbone.resize_token_embeddings(token + 1, mean_resizing=False)
    with torch.no_grad():
        for table in {id(t): t for t in (backbone.get_input_embeddings(), backbone.get_output_embeddings())}.values():
            table.weight[token] = table.weight[: min(old, token)].float().mean(0).to(table.weight.dtype)
    return token


def cached(cache: DynamicCache, layer: int) -> tuple[Tensor, Tensor]:
    """keys_BGTD and values_BGTD, before rotation, that a forward pass left in the cache."""
    held: Any = cache.layers[layer]
    return held.keys, held.values


def _default_dtype(config: PreTrainedConfig, device: torch.device) -> torch.dtype:
    parameters = 12 * config.num_hidden_layers * config.hidden_size**2 + config.vocab_size * config.hidden_size
    return torch.bfloat16 if device.type == "cuda" or parameters > 1_000_000_000 else torch.float32


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
