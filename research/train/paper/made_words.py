"""Tokenizers of made sets, whose texts are words between blanks."""

from collections.abc import Sequence

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

END = "<end>"


def word_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """A token for each word, in this order, and an end of text."""
    vocabulary = {word: number for number, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocab=vocabulary | {END: len(vocabulary)}, unk_token=END))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END)  # type: ignore[no-untyped-call]
