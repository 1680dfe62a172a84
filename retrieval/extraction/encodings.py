"""Bytes of text files to characters: which encoding they are in, and what to do with the few bytes that are in none."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

import chardet

from retrieval.errors import ExtractError

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
_WEB_LABELS = {
    "iso-8859-1": "cp1252", "iso8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "l1": "cp1252",
    "ascii": "cp1252", "us-ascii": "cp1252", "ansi_x3.4-1968": "cp1252", "iso-8859-9": "cp1254", "latin5": "cp1254",
    "iso-8859-11": "cp874", "tis-620": "cp874", "windows-874": "cp874", "gb2312": "gb18030", "gbk": "gb18030",
    "x-gbk": "gb18030", "gb_2312-80": "gb18030", "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932",
    "x-sjis": "cp932", "windows-31j": "cp932", "ms932": "cp932", "shift_jis_2004": "cp932", "shift_jisx0213": "cp932",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "korean": "cp949", "windows-949": "cp949", "big5": "big5hkscs",
    "x-x-big5": "big5hkscs", "macintosh": "mac_roman", "macroman": "mac_roman", "x-mac-roman": "mac_roman",
    "x-mac-cyrillic": "mac_cyrillic", "maccyrillic": "mac_cyrillic", "iso-8859-8-i": "iso-8859-8",
    "utf-16": "utf-16-le", "unicode": "utf-16-le",
}  # fmt: skip
"""Labels that the web reads otherwise than Python, from the Encoding Standard of WHATWG."""
_STATED = re.compile(
    rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w-]+)|<\?xml[^>]*?encoding\s*=\s*[\"']([\w.-]+)|@charset\s+\"([\w-]+)\"",
    re.I,
)
_STATED_WITHIN = 4096  # bytes
_GUESSED_FROM = 1 << 18  # bytes around the first that is not ASCII
_SHIFTED = ("iso-2022-jp", "iso-2022-kr", "hz-gb-2312", "utf-7")  # their bytes are all ASCII
_NULS = re.compile(rb"\0{4,}")
_CONTROLS = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_PDF = b"%PDF-"  # its first line may be followed by NUL bytes alone
_RARE = re.compile(r"mac|cp\d|ibm|koi8|iso8859-", re.I)  # what chardet calls the encodings that few files are in
_LETTER = "A-Za-zÀ-ÖØ-öø-ÿŒœ"
_NOT_WESTERN = re.compile(
    "[^\\x00-\\x7f\\xa0À-ÖØ-öø-ÿŒœ‘’‚“”„«»‹›–—…•€£§°©®™·²³¼½¾µ±×¡¿ªº´]"
    "|[À-ÖØ-öø-ÿŒœ]{3}|[a-zß-öø-ÿœ][À-ÖØ-ÞŒ]|œ(?![ui])"
    f"|[{_LETTER}][‚„§¿¡€£°±×µ•]|[{_LETTER}][‘“”«»‹›…©®™²³¼½¾ªº][{_LETTER}]|[{_LETTER}][–—][a-zß-öø-ÿ]"
)
"""What words of western Europe do not have in cp1252, and other encodings have when they are read as that."""


class Decoded(NamedTuple):
    """`notes`: what readers of the document should know, such as that the encoding was guessed."""

    text: str
    encoding: str
    notes: tuple[str, ...] = ()


def looks_like_text(head: bytes) -> bool:
    """Whether a file that begins so may be text: also UTF-16 without a mark, and text with runs of NUL bytes."""
    if head.startswith(tuple(_MARKS)) or b"\0" not in head:
        return True
    if _utf16(head):
        return True
    return b"\0" not in _NULS.sub(b"", head) and not _CONTROLS.search(head) and not head.startswith(_PDF)


def decode(data: bytes, declared: str = "", *, undeclared: bool = False) -> Decoded:
    """By the byte order mark, else UTF-8 where the bytes are that, else as `declared` by what the text came in, or as
    it states itself, with the labels of the web; else by a guess, of which a note tells. A byte that is in no encoding
    spoils one character. `undeclared`: do not look into the text for what it states.

    Raises ExtractError for binary data.
    """
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            text = data.decode(encoding, "replace")
            if text.count("\ufffd") > len(text) // 100:
                raise ExtractError(f"The file begins like {encoding} text but is not: it is damaged.")
            return Decoded(text, encoding, _notes(text))
    notes: tuple[str, ...] = ()
    if b"\0" in data:
        wide = _utf16(data)
        if wide:
            return Decoded(data.decode(wide, "replace"), wide)
        filled = _NULS.sub(b"\n", data)
        if filled.count(0) > len(data) // 1000 or _CONTROLS.search(filled[:_GUESSED_FROM]) or data.startswith(_PDF):
            raise ExtractError("The file is not text: it holds binary data.")
        data, notes = filled, ("Runs of empty bytes in the file were left out: perhaps it was not written to its end.",)
    stated = None if undeclared else _STATED.search(data[:_STATED_WITHIN])
    label = declared or (next(one for one in stated.groups() if one).decode() if stated else "")
    if label.lower() in _SHIFTED and (shifted := _decoded(data, label)) is not None:
        return Decoded(shifted, label, notes)
    try:
        return Decoded(data.decode("utf-8"), "utf-8", notes)
    except UnicodeDecodeError as error:
        first = error.start
    nearly = data.decode("utf-8", _AS_WINDOWS)
    bad = len(data) - len(data.decode("utf-8", "ignore").encode())
    if sum(letter > "\x7f" for letter in nearly) > 2 * bad:
        return Decoded(nearly, "utf-8", (*notes, f"Bytes of the file that are not UTF-8 like the rest: {bad:,}."))
    if label and (known := _decoded(data, label)) is not None:
        return Decoded(known, label.lower(), (*notes, *_notes(known)))
    begin = max(0, first - 1000)
    guess = _guessed(data[begin : begin + _GUESSED_FROM])
    text = _decoded(data, guess) or data.decode("cp1252", "replace")
    note = f"The file does not say how its letters are encoded; {guess} was guessed."
    return Decoded(text, guess.lower(), (*notes, note, *_notes(text)))


def _guessed(sample: bytes) -> str:
    """Few letters beyond ASCII tell chardet little: a rare encoding is believed where cp1252 would make no words."""
    guess = chardet.detect(sample)["encoding"] or "cp1252"
    if _RARE.match(guess) and not _NOT_WESTERN.search(sample.decode("cp1252", "replace")):
        return "cp1252"
    return guess


def _decoded(data: bytes, label: str) -> str | None:
    """Text by a label; None for one that nobody knows, or that is wrong for more than a few bytes."""
    encoding = _WEB_LABELS.get(label.strip().lower(), label)
    try:
        text = data.decode(encoding, "replace")
    except (LookupError, ValueError):  # "undefined" is an encoding in which nothing can be read
        return None
    return text if text.count("\ufffd") <= max(1, len(text) // 50) else None


def _notes(text: str) -> tuple[str, ...]:
    damaged = text.count("\ufffd")
    return (f"{damaged:,} characters of the file are damaged.",) if damaged else ()


def _utf16(data: bytes) -> str:
    """UTF-16 without a mark, by the zeros or the few values that every second byte has; "" for anything else."""
    sample = data[: _GUESSED_FROM & ~1]
    for encoding, high in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2])):
        if len(high) > 4 and high.count(0) > 0.4 * len(high):
            text = sample[: len(sample) & ~1].decode(encoding, "replace")
            if all(letter >= " " or letter in "\t\r\n\f\v" for letter in text) and text.count("\ufffd") < 2:
                return encoding
    return ""


def _as_windows(error: UnicodeError) -> tuple[str, int]:
    """One byte that is not UTF-8, as the programs mean it from which such text is pasted."""
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.start + 1].decode("cp1252", "replace"), error.start + 1


_AS_WINDOWS = "cairn-as-windows"
codecs.register_error(_AS_WINDOWS, _as_windows)
