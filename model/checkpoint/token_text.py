"""Tokenizers and text: documents as plain text, and where each token ends in the decoded text for token ids whose
character offsets are not known."""

import copy
from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any

from model.checkpoint.backbones import PreTrainedTokenizerBase

_PART = "\ufffd"  # what an incomplete character decodes to


def plain_tokenizer(tokenizer: Any) -> Any:
    """A copy for documents, in which names of special tokens count as plain text; never changed, so that threads can
    share it."""
    plain = copy.deepcopy(tokenizer.backend_tokenizer)
    plain.encode_special_tokens = True
    plain.no_padding()
    plain.no_truncation()
    return plain


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
