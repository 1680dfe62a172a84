"""`tokenizer.model` as LLaMA was published with it, read into a fast tokenizer that knows where each token stands.

The file is a protocol buffer; of its fields only the pieces are needed: repeated field 1, each with its text (1), its
score (2) and its kind (3). Facts: sentencepiece_model.proto of github.com/google/sentencepiece.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.tokenization_utils_base import generate_merges

from model.errors import ModelError

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
_VARINT, _EIGHT_BYTES, _TEXT, _FOUR_BYTES = 0, 1, 2, 5


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    kind: int


def read_pieces(file: Path) -> list[Piece]:
    """The vocabulary in the order of its ids. Raises `ModelError` for a file of another kind."""
    try:
        pieces = [
            _piece(value) for field, value in _fields(file.read_bytes()) if field == 1 and isinstance(value, bytes)
        ]
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise ModelError(f"{file} is no SentencePiece model ({error}); copy it again.") from error
    if not any(piece.kind == UNKNOWN for piece in pieces):
        raise ModelError(f"{file} is no SentencePiece model: it has no piece for what it does not know.")
    return pieces


def fast_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Of `tokenizer.model` and `added_tokens.json` in a folder: pairs merged by score, unknown characters as bytes, a
    blank in front of a text. Raises `ModelError`."""
    pieces = read_pieces(folder / "tokenizer.model")
    vocab = {piece.text: number for number, piece in enumerate(pieces)}
    scores = {piece.text: piece.score for piece in pieces if piece.kind == NORMAL}
    unknown, begin, end = (pieces[number].text for number in range(3))
    merges = generate_merges(vocab, scores)
    backend = Tokenizer(models.BPE(vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    blank_first = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(blank_first)
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in (unknown, begin, end)])
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1", special_tokens=[(begin, vocab[begin])]
    )
    added = folder / "added_tokens.json"
    more: dict[str, int] = json.loads(added.read_text(encoding="utf-8")) if added.is_file() else {}
    for text, number in sorted(more.items(), key=lambda each: each[1]):
        backend.add_special_tokens([AddedToken(text, normalized=False, special=True)])
        if backend.token_to_id(text) != number:
            raise ModelError(f"{added} gives {text!r} the id {number}, but {backend.token_to_id(text)} is next.")
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, unk_token=unknown, bos_token=begin, eos_token=end,
        pad_token="[PAD]" if "[PAD]" in more else None, clean_up_tokenization_spaces=False,
    )  # fmt: skip


def _piece(message: bytes) -> Piece:
    text, score, kind = "", 0.0, NORMAL
    for field, value in _fields(message):
        if field == 1 and isinstance(value, bytes):
            text = value.decode()
        elif field == 2 and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif field == 3 and isinstance(value, int):
            kind = value
    return Piece(text, score, kind)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a message; numbers of fixed width as their bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 == _VARINT:
            number, at = _varint(message, at)
            yield tag >> 3, number
            continue
        if tag & 7 == _TEXT:
            size, at = _varint(message, at)
        else:
            size = {_FOUR_BYTES: 4, _EIGHT_BYTES: 8}.get(tag & 7, len(message) + 1)
        if at + size > len(message):
            raise ValueError(f"field {tag >> 3} ends behind the file")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at
