"""A checkpoint's network as it is run here: deferred rotation, one of our attentions; its tokenizer and its shape."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from model.attention.rotary import DeferredRotary
from model.checkpoint.backbones import AttentionInterface


class BackboneModel(nn.Module):
    """A causal backbone whose weights stay as they are, and its tokenizer."""

    def __init__(
        self,
        backbone: Any,
        tokenizer: Any,
        source: str,
        attention_name: str,
        attention: Callable[..., tuple[Tensor, None]],
    ) -> None:
        """`attention` is entered in transformers' registry under `attention_name`."""
        super().__init__()
        self.backbone: Any = backbone  # transformers types the parts of a model as "Tensor | Module"
        self.tokenizer = tokenizer
        self.source = source
        if not isinstance(backbone.model.rotary_emb, DeferredRotary):
            backbone.model.rotary_emb = DeferredRotary(backbone.model.rotary_emb)
        AttentionInterface.register(attention_name, attention)  # process-wide, so never at import
        backbone.set_attn_implementation(attention_name)

    @property
    def device(self) -> torch.device:
        return torch.device(self.backbone.device)

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.backbone.dtype
        return dtype

    @property
    def num_layers(self) -> int:
        return int(self.backbone.config.num_hidden_layers)

    @property
    def num_heads(self) -> int:
        return int(self.backbone.config.num_attention_heads)

    @property
    def num_kv_heads(self) -> int:
        return int(self.backbone.config.num_key_value_heads)

    @property
    def head_dim(self) -> int:
        config = self.backbone.config
        return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
