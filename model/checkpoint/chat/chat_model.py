"""An ordinary instruct checkpoint as a writer: read with its chat template, over keys and values stored before.

Nothing is trained and no token is added. The rotary embedding becomes a deferred one and the attention
`plain_attention`, so that what is stored of a passage has no position; the weights stay as they are.

Axes: B batch (1), Q tokens of a pass, E hidden width, V vocabulary.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from model.attention.plain_attention import KeyRows, PlainContext, PositionTables, plain_attention
from model.checkpoint.backbone_model import BackboneModel
from model.checkpoint.chat.chat_template import chat_frame
from model.checkpoint.chat.few_bits import FewBits, round_matrices
from model.checkpoint.families import check_chat_backbone, rope_of
from model.checkpoint.identity import text_digest, weights_digest
from model.checkpoint.token_text import plain_tokenizer
from model.errors import ContextTooLong

ATTENTION_NAME = "cairn_plain"
PREAMBLE = "You answer questions from numbered passages of documents."


class ChatModel(BackboneModel):
    """A causal checkpoint with a chat template, and its tokenizer."""

    def __init__(self, backbone: Any, tokenizer: Any, *, source: str = "") -> None:
        check_chat_backbone(backbone.config)
        super().__init__(backbone, tokenizer, source, ATTENTION_NAME, plain_attention)
        self.frame = chat_frame(tokenizer, PREAMBLE)
        self.num_weights = sum(parameter.numel() for parameter in backbone.parameters())
        """Of the checkpoint, however many bits they are kept in."""
        self._weights = ""
        self._tables: PositionTables | None = None

    # shape

    @property
    def max_positions(self) -> int:
        """Positions that the checkpoint was trained for; under longrope those before it changes its frequencies."""
        config, rope = self.backbone.config, rope_of(self.backbone.config)
        most = int(config.max_position_embeddings)
        return int(rope["original_max_position_embeddings"]) if rope.get("rope_type") == "longrope" else most

    # forward

    def key_rows(self, room: int) -> KeyRows:
        """Empty rows for a text of that many tokens. Raises `ContextTooLong`."""
        if room > self.max_positions:
            raise ContextTooLong(
                f"passages, question and answer need {room} positions, but {self.source or 'the writer'} has "
                f"{self.max_positions}: take fewer passages."
            )
        return KeyRows(self.num_layers, self.num_kv_heads, self.head_dim, room, self.dtype, self.device)

    def table(self, layer: int) -> tuple[Tensor, Tensor]:
        """cos and sin of all positions of a layer."""
        if self._tables is None:
            like = torch.empty(0, dtype=self.dtype, device=self.device)
            types = getattr(self.backbone.config, "layer_types", None)
            self._tables = PositionTables(self.backbone.model.rotary_emb.rotary, types, like, self.max_positions)
        return self._tables.of_layer(layer)

    def rotates(self, layer: int) -> bool:
        """Whether a layer has positions at all."""
        attention: Any = self.backbone.model.layers[layer].self_attn
        return bool(getattr(attention, "use_rope", True))

    @torch.no_grad()
    def run(self, ids: Sequence[int], context: PlainContext) -> Tensor:
        """hidden_QE of the tokens that stand in `context.row_Q`, after the final norm."""
        positions = torch.zeros((1, len(ids)), dtype=torch.long, device=self.device)  # rotation is deferred
        hidden_BQE: Tensor = self.backbone.model(
            input_ids=torch.tensor([list(ids)], device=self.device),
            position_ids=positions,
            use_cache=False,
            plain=context,
        ).last_hidden_state
        return hidden_BQE[0]

    @torch.no_grad()
    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits (float32) of hidden states of any leading shape."""
        logits: Tensor = self.backbone.lm_head(hidden)
        return logits.float()

    # text

    @cached_property
    def prefix_ids(self) -> tuple[int, ...]:
        """What stands before the passages: begin of text, chat header, preamble."""
        return tuple(self._framing_ids(self.frame.before))

    def suffix_ids(self, text: str) -> list[int]:
        """The rest of the user's message behind the passages, and the header of the answer."""
        return [*self.tokenize(text), *self._framing_ids(self.frame.after)]

    def _framing_ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def tokenize(self, text: str) -> list[int]:
        """Tokens of plain text; names of special tokens in it count as text, so no document can end its message."""
        (encoding,) = self._plain_tokenizer.encode_batch([text], add_special_tokens=False)
        return list(encoding.ids)

    @cached_property
    def _plain_tokenizer(self) -> Any:
        return plain_tokenizer(self.tokenizer)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of tokens, without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """The checkpoint's own end tokens: those of its generation config, and the tokenizer's."""
        ends = getattr(self.backbone.generation_config, "eos_token_id", None)
        ids = {ends} if isinstance(ends, int) else set(ends or ())
        return frozenset(ids | {self.tokenizer.eos_token_id} - {None})

    # checkpoint

    def in_few_bits(self, kind: FewBits) -> "ChatModel":
        """This model, its matrices rounded to a byte or half a byte a weight. Raises as `round_matrices`."""
        digest = f"{weights_digest(self.backbone)} {kind}"
        round_matrices(self.backbone.model.layers, kind)
        self._weights = digest
        return self

    def identity(self) -> dict[str, str]:
        """What determines the bytes of its memory, field by field."""
        return {
            "kind": "plain",
            "weights": self._weights or weights_digest(self.backbone),
            "tokenizer": text_digest(self.tokenizer.backend_tokenizer.to_str()),
            "rope": text_digest(json.dumps(rope_of(self.backbone.config), sort_keys=True, default=str)),
            "prefix": text_digest(",".join(map(str, self.prefix_ids))),
        }
