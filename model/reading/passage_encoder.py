"""The passage encoder: one vector for a block, one for a question. Those that mean the same are near each other,
whatever the words and the language.

multilingual-e5-small (arXiv 2402.05672): twelve layers, of whose last states the mean is taken. It shares vocabulary
and word embeddings with a reader that was taught from the same weights and left these as they were, so its folder holds
layers alone.

Axes: X texts, N tokens of all texts, E width.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import normalize

from model.checkpoint.backbones import BertConfig
from model.checkpoint.weights import WEIGHTS_FILE, read_weights
from model.errors import readable
from model.precision import fast_precision
from model.reading.network import encoded, new_encoder
from model.reading.span_reader import SpanReader

FOLDER = "passage_encoder"
"""The subfolder, of the reader whose words it shares, with its files."""
QUERY, PASSAGE = "query: ", "passage: "
"""Before the texts, as it was trained."""
LONGEST = 256
"""Tokens of a text; the rest is not read."""
WORDS = "embeddings.word_embeddings.weight"


class PassageEncoder:
    """See the module. `digest`: names what made a vector; those of another are not compared with it."""

    def __init__(self, encoder: Any, tokenizer: Tokenizer, digest: str) -> None:
        self._encoder, self._tokenizer, self.digest = encoder, tokenizer, digest

    @property
    def width(self) -> int:
        return int(self._encoder.config.hidden_size)

    def question(self, text: str) -> Tensor:
        """vector_E (float32, CPU, length 1)."""
        return self._vectors([QUERY + text])[0]

    def passages(self, texts: Sequence[str]) -> Tensor:
        """vectors_XE (float32, CPU, length 1), in one pass; in bfloat16 where the machine computes in it natively."""
        return self._vectors([PASSAGE + text for text in texts])

    @torch.inference_mode()
    def _vectors(self, texts: Sequence[str]) -> Tensor:
        rows = [each.ids[:LONGEST] for each in self._tokenizer.encode_batch(list(texts))]
        if not rows:
            return torch.zeros(0, self.width)
        device, lengths = self._encoder.device, [len(row) for row in rows]
        ids_N = torch.tensor([token for row in rows for token in row], device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=fast_precision(device.type) == "bf16"):
            states_NE = encoded(self._encoder, ids_N, torch.zeros_like(ids_N), lengths).float()
        return normalize(torch.stack([states_TE.mean(0) for states_TE in states_NE.split(lengths)]), dim=-1).cpu()


def load_passage_encoder(folder: Path, reader: SpanReader) -> PassageEncoder:
    """The encoder in `folder`, in float32, with the vocabulary and the word embeddings of `reader`, on its device.
    Raises `ModelError` for files that are missing, damaged or do not fit."""
    with readable(f"the passage encoder in {folder}"):
        text = (folder / "config.json").read_text(encoding="utf-8")
        config = BertConfig.from_dict(json.loads(text))
        with torch.device("meta"):  # no weights are drawn at random, only to be replaced
            encoder = new_encoder(config)
        words = reader.network.encoder.embeddings.word_embeddings.weight
        encoder.to_empty(device=words.device)
        encoder.embeddings.word_embeddings.weight = words
        encoder.load_state_dict(read_weights(folder / WEIGHTS_FILE, torch.float32) | {WORDS: words.detach()})
        with (folder / WEIGHTS_FILE).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
    digest.update(text.encode())
    return PassageEncoder(encoder.to(words.device).eval(), reader.tokenizer, digest.hexdigest())
