"""Where the tokens of a text end in its characters, for tokenizers that do not say so once a text is tokens."""

from collections.abc import Sequence
from itertools import accumulate

from transformers import PreTrainedTokenizerBase

_PART = "\ufffd"  # what bytes that are no whole character decode to


class TokenText:
    """Texts of single tokens, each decoded once. Thread-safe."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer.backend_tokenizer
        self._texts: dict[int, str] = {}

    def ends(self, ids: Sequence[int]) -> list[int]:
        """For each token, the characters of the decoded text up to and with it.

        A text is mostly the texts of its tokens joined. Where it is not (a character in several tokens, a tokenizer
        that drops a leading space) every beginning of it is decoded, which takes fifteen times as long.
        """
        missing = [[token] for token in {*ids} - self._texts.keys()]
        texts = self._tokenizer.decode_batch(missing, skip_special_tokens=True)
        self._texts.update((token, text) for (token,), text in zip(missing, texts, strict=True))
        single = [self._texts[token] for token in ids]
        joined = "".join(single)
        if _PART not in joined and joined == self._tokenizer.decode(list(ids), skip_special_tokens=True):
            return list(accumulate(map(len, single)))
        beginnings = [list(ids[: stop + 1]) for stop in range(len(ids))]
        return [len(text) for text in self._tokenizer.decode_batch(beginnings, skip_special_tokens=True)]
