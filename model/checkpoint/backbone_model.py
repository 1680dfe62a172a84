"""A checkpoint's network as this package runs it: deferred rotation and one of our attentions; its shape, its
tokenizer, and digests of what determines the bytes of a memory."""

import copy
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from model.attention.rotary import DeferredRotary
from model.checkpoint.backbones import AttentionInterface, PreTrainedTokenizerBase


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

    @cached_property
    def _plain_tokenizer(self) -> Any:
        """A copy for documents, in which names of special tokens count as plain text; never changed, so that threads
        can share it."""
        plain = copy.deepcopy(self.tokenizer.backend_tokenizer)
        plain.encode_special_tokens = True
        plain.no_padding()
        plain.no_truncation()
        return plain

    def decode(self, ids: Iterable[int]) -> str:
        """Text of tokens, without special tokens and landmarks."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


SAMPLED = 4096
"""Numbers of each matrix that tell whether weights are those hashed before, beside the dates of their files."""


def weights_digest(network: Any) -> str:
    """sha256 over names, shapes and bytes of all weights in memory, in name order."""
    hasher = hashlib.sha256(b"cairn weights 1\0")
    for name, weight in sorted(network.state_dict().items()):
        hasher.update(f"{name}{tuple(weight.shape)}{weight.dtype}\0".encode())
        hasher.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def kept_weights_digest(network: Any, sources: Sequence[Path], file: Path | None) -> str:
    """`weights_digest`, kept in `file`, if there is one: many gigabytes are hashed once, not at every start.

    sources: the files that the weights were read from (`adapter.files_of`); without any, nothing is kept. The digest is
    taken from the file only where names, sizes and dates of these are the same, and names, types, shapes and a sample
    of the weights in memory.
    """
    if file is None or not sources:
        return weights_digest(network)
    known = _sampled(network, sources)
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["of"] == known:
            return str(kept["weights"])
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or cut off: it is made anew
        pass
    digest = weights_digest(network)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    written = file.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps({"of": known, "weights": digest}), encoding="utf-8")
    written.replace(file)
    return digest


def _sampled(network: Any, sources: Sequence[Path]) -> str:
    hasher = hashlib.sha256(b"cairn sample of weights 1\0")
    for path in sources:
        about = path.stat()
        hasher.update(f"{path.name} {about.st_size} {about.st_mtime_ns}\0".encode())
    for name, weight in sorted(network.state_dict().items()):
        hasher.update(f"{name}{tuple(weight.shape)}{weight.dtype}\0".encode())
        some = weight.detach().flatten()[:: max(1, weight.numel() // SAMPLED)]
        hasher.update(some.cpu().contiguous().view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def text_digest(text: str) -> str:
    """sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


_PART = "\ufffd"  # what an incomplete character decodes to


class TokenText:
    """Texts of single tokens, each decoded once. Thread-safe."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer.backend_tokenizer
        self._texts: dict[int, str] = {}

    def ends(self, ids: Sequence[int]) -> list[int]:
        """For each token, the number of characters of the decoded text up to its end.

        Usually a text is the texts of its tokens joined; only neighbours that each hold part of a character are decoded
        together. Where that does not give the text (a tokenizer that drops a leading space) every prefix is decoded,
        which takes quadratic time.
        """
        missing = [[token] for token in {*ids} - self._texts.keys()]
        texts = self._tokenizer.decode_batch(missing, skip_special_tokens=True)
        self._texts.update((token, text) for (token,), text in zip(missing, texts, strict=True))
        lengths: list[int] = []
        pieces: list[str] = []
        for in_parts, group in groupby(ids, lambda token: _PART in self._texts[token]):
            tokens = list(group)
            if in_parts:
                begun = self._beginnings(tokens)
                lengths += [len(text) - before for text, before in zip(begun, [0, *map(len, begun)], strict=False)]
                pieces.append(begun[-1])
            else:
                single = [self._texts[token] for token in tokens]
                lengths += map(len, single)
                pieces += single
        if "".join(pieces) == self._tokenizer.decode(list(ids), skip_special_tokens=True):
            return list(accumulate(lengths))
        return [len(text) for text in self._beginnings(ids)]

    def _beginnings(self, ids: Sequence[int]) -> list[str]:
        beginnings = [list(ids[: stop + 1]) for stop in range(len(ids))]
        texts: list[str] = self._tokenizer.decode_batch(beginnings, skip_special_tokens=True)
        return texts
