"""The terms of a text: its words, names, numbers, options and codes, and the parts of compound ones."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePath

from stop_words import AVAILABLE_LANGUAGES, get_stop_words

_SMALL_WORDS = """
    a about above after again all also although an and any are as at be because been before being below between
    both but by can could did do does doing down during each either else ever few for from further had has have
    having he her here hers him his how however i if in into is it its itself just many may me might more most much
    must my no nor not of off on once only or other our out over own per rather same shall she should since so some
    such than that the their them then there therefore these they this those through thus to too under until up
    upon us very was we were what when where whether which while who whom whose why will with within without
    would you your
"""
SMALL_WORDS = frozenset(_SMALL_WORDS.split())
"""Words that do not tell what a sentence is about."""
_TERM = re.compile(r"(?:(?<![^\s(\[“\"'‘`])--?)?[^\W_]+(?:[-–−.&/+#_:][^\W_]+)*")
_PART = re.compile(r"[^\W_]+")
_CAPITAL_OPTION = re.compile(r"(?<![^\s(\[“\"'‘`])(-[A-Z])(?![^\W_])")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")
"""Letters of scripts that set no spaces between words: Thai, Japanese, Chinese; Korean ends words with particles."""
MONTH_NAMES = "january february march april may june july august september october november december"
_MONTHS = MONTH_NAMES.split()
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]}|t)?" for name in _MONTHS)
MONTHS_ELSEWHERE = (  # in German, French, Spanish and Italian, without accents
    "januar februar marz april mai juni juli august september oktober november dezember",
    "janvier fevrier mars avril mai juin juillet aout septembre octobre novembre decembre",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
)
_MONTH_OF = {name: number for names in MONTHS_ELSEWHERE for number, name in enumerate(names.split(), 1)}
_DAY = r"([0-3]?\d)(?:st|nd|rd|th)?"
_NAMED_DATE = re.compile(rf"(?:\b{_DAY}\s+(?:of\s+)?)?\b({_MONTH})\b\.?(?:\s+{_DAY}\b)?,?\s+([12]\d{{3}})\b")
_DATE_ELSEWHERE = re.compile(rf"\b([0-3]?\d)(?:\.|er)?\s+(?:de\s+)?({'|'.join(_MONTH_OF)})\s+(?:de\s+)?([12]\d{{3}})\b")
_YEAR_FIRST = re.compile(r"\b(?<!\d\.)([12]\d{3})([-/.])(0?[1-9]|1[0-2])\2([0-3]?\d)(?!\.?\d)")
_DAY_FIRST = re.compile(r"\b(?<!\d\.)([0-3]?\d)\.\s?(0?[1-9]|1[0-2])\.\s?([12]\d{3})(?!\.?\d)")
_YEAR = re.compile(r"[12]\d{3}")
_TAIL = re.compile(r"\S+\Z")
_HEAD = re.compile(r"\S+")
_NAME_WORD = re.compile(r"\w+")
_VERSION = re.compile(r"(?<![^\W_])[vV](?=\d)")
_SEPARATORS = re.compile(r"[\s_]+|(?<=[^\W\d])-(?=[^\W\d])")
_SAME = str.maketrans(
    {"ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D", "ı": "i", "’": "'", "‘": "'"}
    | dict.fromkeys("\u2010\u2011\u2012\u2212", "-")
    | dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", "")
)
"""Letters that no normal form takes apart, and signs that are typed otherwise than printed."""


def asked_terms(question: str) -> set[str]:
    """Terms of a question, without small words."""
    return {_form(word) for word in _words(question) if word not in SMALL_WORDS}


def terms_of(text: str) -> set[str]:
    """All terms of a text, the parts of compound ones, and its dates."""
    words = set(_words(text))
    parts = {part for word in words if not word.isalnum() for part in _PART.findall(word.lower())}
    return {_form(word) for word in words | parts} | dates_in(text)


def _words(text: str) -> Iterator[str]:
    """The words of a text, folded but for options of one letter, as -P is another than -p; of a script without spaces
    its pairs of letters, as words of it are two letters long, most of them."""
    pieces = _CAPITAL_OPTION.split(text)  # every second is such an option
    for word in _TERM.findall("".join(piece if at % 2 else folded(piece) for at, piece in enumerate(pieces))):
        if word.isascii() or _UNSPACED.search(word) is None:
            yield word
            continue
        for run in _UNSPACED.findall(word):
            yield from map("".join, pairwise(run)) if len(run) > 1 else run
        yield from _PART.findall(_UNSPACED.sub(" ", word))


def dates_in(text: str) -> set[str]:
    """The days and months that a text names, as "2015-12-01" and "2015-12": "1 Dec. 2015" and "December 2015" in
    English, "1. Dezember 2015" in four other languages, and in figures with the year first or with dots. "1/12/2015" is
    none: that may be January. Of 240 questions for cells of a day 230 are right, with English names and "2015-12-01"
    alone 139 (benchmarks/quality/named_places.py)."""
    text = folded(text)
    if _YEAR.search(text) is None:
        return set()
    days = [(year, int(month), int(day)) for year, _, month, day in _YEAR_FIRST.findall(text)]
    days += [(year, int(month), int(day)) for day, month, year in _DAY_FIRST.findall(text)]
    days += [(year, _MONTH_OF[name], int(day)) for day, name, year in _DATE_ELSEWHERE.findall(text)]
    for before, name, after, year in _NAMED_DATE.findall(text):
        month = next(number for number, each in enumerate(_MONTHS, 1) if each.startswith(name[:3]))
        days.append((year, month, int(before or after or 0)))
    months = {f"{year}-{month:02}" for year, month, _ in days}
    return months | {f"{year}-{month:02}-{day:02}" for year, month, day in days if day}


def term_id(term: str) -> int:
    """The number of a term in the inverted index: its CRC. Terms that share one propose some blocks too many."""
    return zlib.crc32(term.encode()) + 1


def word_id(word: str) -> int:
    """The term id of one word without punctuation."""
    return term_id(_form(folded(word)))


def crossing_terms(left: str, right: str) -> set[str]:
    """Terms of a text that was cut in two, of which each part has a piece: "(Ctrl+" and "G)" have "ctrl+g"."""
    tail, head = _TAIL.search(left), _HEAD.match(right)
    if tail is None or head is None:
        return set()
    return terms_of(tail[0] + head[0]) - terms_of(tail[0]) - terms_of(head[0])


def folded(text: str) -> str:
    """A text in the form in which words are compared: lower case, compatibility form, no accents, one kind of hyphen,
    no invisible characters (soft hyphens, zero-width ones)."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text.translate(_SAME)).lower()
    return unicodedata.normalize("NFKC", "".join(one for one in plain if not unicodedata.combining(one)))


_HALF_WIDTH = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}


def half_width(text: str) -> str:
    """The text with plain letters, digits and signs in place of full-width ones ("ＣＶ－４４"), each a character as
    before."""
    return text if text.isascii() else text.translate(_HALF_WIDTH)


def _form(word: str) -> str:
    """Without a plural's ending."""
    return word[:-1] if word.endswith("s") and len(word) > 3 else word


def described_name(title: str, source: str) -> str:
    """The name of a document for search: its file, and its folder where that says more than its title, then the title.
    It tells the same sentence of several documents apart."""
    told = set(_NAME_WORD.findall(title.lower()))
    path = PurePath(source)
    parts = [" ".join(_SEPARATORS.sub(" ", part).split()) for part in (*path.parts[:-1], path.stem)]
    more = [part for part in parts if not set(_NAME_WORD.findall(part.lower())) <= told]
    return _VERSION.sub("version ", f"{', '.join(more)}: {title}" if more else title)


_TELLING = 40_000  # characters that tell the language
_FEWEST_SHARE = 0.05  # of their words that are function words; fewer are a coincidence
_LETTERS = re.compile(r"[^\W\d_][\w’'-]*")


def function_words(text: str) -> frozenset[str]:
    """The function words of the text's language, the one with the most of them; none where there are hardly any."""
    words = Counter(match[0].casefold() for match in _LETTERS.finditer(text[:_TELLING]))
    lists = [frozenset(get_stop_words(language)) for language in AVAILABLE_LANGUAGES]
    best = max(lists, key=lambda each: sum(words[word] for word in each))
    share = sum(words[word] for word in best) / max(1, words.total())
    return best if share >= _FEWEST_SHARE else frozenset()
