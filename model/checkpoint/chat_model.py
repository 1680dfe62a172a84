"""An ordinary instruct checkpoint as a writer: read with its chat template, over keys and values stored before.

- Nothing is trained and no token is added. The rotary embedding becomes a deferred one and the attention
  `plain_attention`, so that what is stored of a passage has no position; the weights stay as they are.
- The chat template is cut where passages and question are put in. Templates are programs of the checkpoint's author:
  what they print around a message must not depend on the message or on the day, since stored keys are valid behind
  exactly one beginning.
- The matrices of the layers may be kept in fewer bits, for memory, not for speed. `int8`: a byte a weight, one scale a
  row (torchao), expanded for every pass. `nf4`: half a byte a weight, one scale for each 64 of them, sixteen levels
  placed as weights are distributed (bitsandbytes; QLoRA, arXiv 2305.14314). Embeddings, output layer and norms stay.

Axes: B batch (1), Q tokens of a pass, E hidden width, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from jinja2 import TemplateError
from torch import Tensor, nn

from model.attention.plain_attention import KeyRows, PlainContext, plain_attention
from model.attention.rotary import rotary_tables
from model.checkpoint.adapter import files_of
from model.checkpoint.backbone_model import BackboneModel, kept_weights_digest, text_digest
from model.checkpoint.families import check_chat_backbone, rope_of
from model.errors import ContextTooLong, ModelError, UnsupportedBackbone

_PLACE = "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}cairn\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}"
# The date that Meta's templates print where none is given; a running date would make stored keys useless every day.
_DATE = "26 Jul 2024"
# Templates of others ask for it by a function of the renderer, which only the template itself can replace.
_STILL = "{%- macro strftime_now(format) -%}" + _DATE + "{%- endmacro -%}"


@dataclass(frozen=True)
class ChatFrame:
    """The text before and behind the user's message; begins with the begin-of-text token if the template has one."""

    before: str
    after: str


def chat_frame(tokenizer: Any, preamble: str) -> ChatFrame:
    """The frame of one user message behind `preamble` as the system's message, or before the user's own where the
    template takes no system message. Thinking is switched off where the template can.

    Raises `UnsupportedBackbone` for a checkpoint without a template, or whose template changes messages.
    """
    if not tokenizer.chat_template:
        raise UnsupportedBackbone(
            f"{tokenizer.name_or_path} has no chat template: a writer must be an instruct or chat checkpoint."
        )
    user = {"role": "user", "content": _PLACE}
    try:
        text = _rendered(tokenizer, [{"role": "system", "content": preamble}, user])
    except TemplateError:
        text = ""
    if preamble not in text:
        text = _rendered(tokenizer, [{"role": "user", "content": f"{preamble}\n\n{_PLACE}"}])
    before, found, after = text.partition(_PLACE)
    if not found or _PLACE in after:
        raise UnsupportedBackbone(
            f"the chat template of {tokenizer.name_or_path} does not print the user's message once as it is; "
            "choose another checkpoint."
        )
    return ChatFrame(before, after)


def _rendered(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    text: str = tokenizer.apply_chat_template(
        messages,
        chat_template=_STILL + tokenizer.get_chat_template(),
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
        date_string=_DATE,
    )
    return text


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
        self._tables: dict[str | None, tuple[Tensor, Tensor]] = {}

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
        shape = (self.num_layers, 1, self.num_kv_heads, room, self.head_dim)
        return KeyRows(*(torch.empty(shape, dtype=self.dtype, device=self.device) for _ in range(2)))

    def table(self, layer: int) -> tuple[Tensor, Tensor]:
        """cos and sin of all positions of a layer, computed once for each kind of layer."""
        rotary, types = self.backbone.model.rotary_emb.rotary, getattr(self.backbone.config, "layer_types", None)
        # Gemma 3 rotates its local layers by another base.
        kind = types[layer] if types is not None and hasattr(rotary, "layer_types") else None
        if kind not in self._tables:
            like = torch.empty(0, dtype=self.dtype, device=self.device)
            self._tables[kind] = rotary_tables(rotary, 0, self.max_positions, like, layer_type=kind)
        return self._tables[kind]

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
        """The tokens before the passages: begin of text, chat header, preamble."""
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
    def stop_ids(self) -> frozenset[int]:
        """The checkpoint's own end tokens: those of its generation config, and the tokenizer's."""
        ends = getattr(self.backbone.generation_config, "eos_token_id", None)
        ids = {ends} if isinstance(ends, int) else set(ends or ())
        return frozenset(ids | {self.tokenizer.eos_token_id} - {None})

    # checkpoint

    def in_few_bits(self, kind: FewBits, kept: Path | None = None) -> ChatModel:
        """This model, its matrices rounded to a byte or half a byte a weight. kept: see `kept_weights_digest`. Raises
        as `round_matrices`."""
        digest = f"{kept_weights_digest(self.backbone, files_of(self.source), kept)} {kind}"
        round_matrices(self.backbone.model.layers, kind)
        self._weights = digest
        return self

    def identity(self, kept: Path | None = None) -> dict[str, str]:
        """What determines the bytes of its memory, field by field. kept: see `kept_weights_digest`."""
        return {
            "kind": "plain",
            "weights": self._weights or kept_weights_digest(self.backbone, files_of(self.source), kept),
            "tokenizer": text_digest(self.tokenizer.backend_tokenizer.to_str()),
            "rope": text_digest(json.dumps(rope_of(self.backbone.config), sort_keys=True, default=str)),
            "prefix": text_digest(",".join(map(str, self.prefix_ids))),
        }


FewBits = Literal["int8", "nf4"]
_SIDE = 64
"""bitsandbytes scales 64 weights together, and multiplies 32 rows at a time."""


def round_matrices(layers: nn.Module, kind: FewBits) -> None:
    """Round the matrices below `layers` in place. Raises `ModelError` without the package, or where none can be."""
    if kind == "nf4":
        _to_nf4(layers)
        return
    try:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_
    except ImportError as error:
        raise ModelError("weights in int8 need torchao: install Cairn as cairn[int8].") from error
    quantize_(layers, Int8WeightOnlyConfig())


def _to_nf4(layers: nn.Module) -> None:
    try:
        import bitsandbytes
    except ImportError as error:
        raise ModelError("weights in nf4 need bitsandbytes: install Cairn as cairn[nf4].") from error
    made: Any = bitsandbytes.nn  # untyped
    rounded = 0
    for parent in list(layers.modules()):
        for name, linear in list(parent.named_children()):
            if type(linear) is not nn.Linear or linear.in_features % _SIDE or linear.out_features % _SIDE:
                continue
            weight, bias = linear.weight.data, linear.bias
            small = made.Linear4bit(
                linear.in_features, linear.out_features, bias=False, compute_dtype=weight.dtype, quant_type="nf4"
            )
            small.weight = made.Params4bit(weight, requires_grad=False, quant_type="nf4", module=small)
            small.bias = bias
            setattr(parent, name, small.to(weight.device).eval())  # moving it rounds it
            rounded += 1
    if not rounded:
        raise ModelError(f"this checkpoint has no matrix with sides of a multiple of {_SIDE}, as nf4 needs them.")
