"""Where the sentences of a text begin and end, and which of them can be answers."""

import re
import sys
import tomllib
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

_BORDER = re.compile(
    r"(?<=[.!?…؟۔।])[\"'”’“»«)\]]*\s+(?=[\"'“‘„«»‹(\[¿¡]*[^\W_])|(?<=[。！？｡])(?![」』”’）】\s])|\s*\n+\s*"
)  # where the next word begins in lower case is none, see `_goes_on`
_ENDS = (*".!?…:;", *"。！？：；｡", *"؟۔।")
# Lines of text with hard line breaks are about this long; headings are shorter, paragraphs longer.
_SHORTEST_LINE, _LONGEST_LINE = 60, 120
_FEWEST_WORDS = 5
_CONTENTS = re.compile(r"(?:\.{5,}|(?:\. ){3,}\.)\s*(?:\d{1,4}|[ivxlcdm]{1,7})?\s*$")  # dots that lead to a page number
_SPACED_DOTS = ". . ."
_ELLIPSES = ("...", "…")
_BLANK = "____"
_NUMBERED_HEADING = re.compile(r"\d{1,2}(?:\.\d{1,2})+\.? +(?![A-Z]{3}$)[^\W\d_a-z][^:;]{0,80}[^\s.!?:;]")
_ROW = re.compile(r"\S: \S.*; .*\S: \S")  # of a table: cells behind the names of their columns
# A line of its own that the next paragraph explains: an option ("-k, --keep", "--level=<n> [default: 1]") or
# a constant ("BZ_OK", "SHA1_SIZE [Constant]").
_TERM = re.compile(
    r"[ \t]*(?:-{1,2}[A-Za-z0-9?][^\n;]{0,90}(?<![.!?])|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?:[ \t]+\[\w+\])?):?"
)
_LONGEST_ROW = 800  # characters
_NAMED_CELL = re.compile(r"([^\s:;][^:;!?…\n]{0,99}): \S")
_SENTENCE_WITHIN = re.compile(r"[.!?…]\s+[A-Z]")
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘]+$")
_NEXT_WORD = re.compile(r"[\"'“‘„«»‹(\[¿¡]*([\w'’-]*)")
_LOOKED_AT = 40  # characters before a full stop
_INITIAL = re.compile(r"[^\W\d_a-z](?:\.-?[^\W\d_a-z])*|[^\W\d_](?:\.[^\W\d_])+")  # "J", "U.S", "s.r.o"
_LIST_NUMBER = re.compile(r"(?:^|\n)\s*\(?(?:\d{1,3}(?:\.\d{1,3})*|[A-Za-z]|[ivx]{1,5}|[IVX]{1,5})\.$")
_DATE_WORD = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+)*")
_LONGEST_DATE = 48  # characters


@cache
def _words(kind: str) -> frozenset[str]:
    path = Path(__file__).parent / "sentence_words.toml"
    return frozenset(tomllib.loads(path.read_text(encoding="utf-8"))[kind])


def sentence_borders(text: str, low: int = 0, high: int | None = None) -> Iterator[tuple[int, int]]:
    """(start, end) of every sentence or line between `low` and `high`, without the white space around it. The row of a
    table is one sentence, whatever its cells hold."""
    high = len(text) if high is None else high
    rows = list(_rows(text, low, high))
    width = max(map(_columns, text[low:high].split("\n")))
    found = (
        match
        for match in _BORDER.finditer(text, low, high)
        if not (_is_within(rows, match) or _goes_on(text, match, width))
    )
    borders = [low, *(match.end() for match in found), high]
    waiting: int | None = None  # where a date begins that belongs to the line after it
    last: tuple[int, int] | None = None
    for start, end in zip(borders, borders[1:], strict=False):
        stop = start + len(text[start:end].rstrip())
        if stop <= start:
            continue
        if is_date(text[start:stop]) and waiting is None:
            if last is not None and not text.endswith(_ENDS, 0, last[1]) and text.count("\n", last[1], start) < 2:
                last = last[0], stop
            else:
                waiting = start
            continue
        if last is not None:
            yield last
        last, waiting = (start if waiting is None else waiting, stop), None
    if last is not None:
        yield last
    if waiting is not None:
        yield waiting, waiting + len(text[waiting:high].rstrip())


def _rows(text: str, low: int, high: int) -> Iterator[tuple[int, int]]:
    """(start, end) of the lines that are rows of tables, from top to bottom, also those that only end or begin between
    `low` and `high`."""
    start = text.rfind("\n", max(0, low - _LONGEST_ROW), low) + 1 or max(0, low - _LONGEST_ROW)
    while start < high:
        end = text.find("\n", start, max(high, start + _LONGEST_ROW))
        end = min(len(text), max(high, start + _LONGEST_ROW)) if end < 0 else end
        if end - start <= _LONGEST_ROW and is_row(text[start:end]):
            yield start, end
        start = end + 1


def is_row(line: str) -> bool:
    """Whether a line is the row of a table as extraction writes it: "Item: Pump; Supplier: Voda s.r.o.; Price: 12." The
    first cell may have no name, and a cell may have semicolons."""
    return bool(column_names(line))


def column_names(line: str) -> list[str]:
    """The names of the columns in a row; empty if the line is none."""
    cells = line.split("; ") if "; " in line else []
    names = [found[1] for cell in cells if (found := _NAMED_CELL.match(cell)) and not _SENTENCE_WITHIN.search(found[0])]
    return names if len(names) > 1 and 2 * len(names) > len(cells) else []


def is_term(line: str) -> bool:
    """Whether a line names an option or a constant, which the next one explains."""
    return _TERM.fullmatch(line) is not None


def _is_within(rows: Sequence[tuple[int, int]], border: re.Match[str]) -> bool:
    """Whether a border lies in a row, or between two cells that are parted by a tab."""
    if "\n" in border[0]:
        return False
    at = bisect_right(rows, (border.start(), sys.maxsize)) - 1
    return "\t" in border[0] or (at >= 0 and border.end() < rows[at][1])


def is_date(line: str) -> bool:
    """Whether a line is a date or a time and nothing else."""
    if len(line) > _LONGEST_DATE or not any(map(str.isdigit, line)) or "\t" in line:
        return False
    words = [word.lower() for word in _DATE_WORD.findall(line)]
    numbers = re.findall(r"\d+", line)
    is_clock = bool(re.search(r"\d[:.]\d\d|\d{1,4}[-./]\d{1,2}[-./]\d{2,4}|\d\s*(?:[ap]\.?m|h|uhr)\b", line.lower()))
    named = bool(words) and all(word in _words("dates") for word in words)
    return (named and len(words) < 8) if words else (is_clock and len(numbers) < 9)


def _goes_on(text: str, border: re.Match[str], width: int) -> bool:
    """Whether a full stop or a line break is inside a sentence: after an abbreviation, after a word that ends nothing,
    after a term that the next line explains, or where the next line begins in lower case, or its first word did not fit
    into a line of this width, as in text with hard line breaks; and after dots that lead to a number, or that a bracket
    follows ("Find... (Ctrl+F): Set criteria")."""
    breaks = border[0].count("\n")
    following = _NEXT_WORD.match(text, border.end())
    assert following is not None
    if breaks == 0 and following[1][:1].islower():
        return True
    if breaks < 2 and _is_abbreviation(text, border, following):
        return True
    if breaks == 0 and text.endswith(_SPACED_DOTS, 0, border.start()):
        return True
    if breaks == 0 and text.endswith(_ELLIPSES, 0, border.start()) and text.startswith("(", border.end()):
        return True
    if 0 < breaks < 3 and _is_unfinished(text, border.start()):
        return True
    if 0 < breaks < 3 and _is_term(text, border):
        return True
    if breaks != 1 or text.endswith(_ENDS, 0, border.start()):
        return False
    word = (text[border.end() : border.end() + 100].split() or [""])[0]
    if word[:1].islower():
        return True
    length = _columns(text[text.rfind("\n", 0, border.start()) + 1 : border.start()])
    # where words have no spaces between them a line is full up to two letters of double width
    needed = 5 if _columns(word[:1]) == 2 else 1 + len(word)
    return length >= _SHORTEST_LINE and length + needed > width <= _LONGEST_LINE


def _columns(line: str) -> int:
    """The width of a line: letters of China, Japan and Korea take two columns."""
    if line.isascii():
        return len(line)
    return len(line) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in line)


def _is_term(text: str, border: re.Match[str]) -> bool:
    """Whether the line before a border is a term, and the next one is text that explains it."""
    line = text[text.rfind("\n", 0, border.start()) + 1 : border.start()]
    following = text[border.end() : border.end() + 120].split("\n", 1)[0]
    return is_term(line) and " " in following and not is_term(following)


def _is_unfinished(text: str, stop: int) -> bool:
    found = _LAST_WORD.search(text[max(0, stop - _LOOKED_AT) : stop])
    return found is not None and found[0] in _words("unfinished")


def _is_abbreviation(text: str, border: re.Match[str], following: re.Match[str]) -> bool:
    """Whether the full stop before a border belongs to an abbreviation, initials or a number in a list."""
    stop = border.start()
    if not text.endswith(".", 0, stop) or border[0].strip():
        return False
    before = text[max(0, stop - _LOOKED_AT) : stop]
    if _LIST_NUMBER.search(before if stop > _LOOKED_AT else "\n" + before):
        return "\n" not in border[0]
    found = _LAST_WORD.search(before[:-1])
    if found is None:
        return False
    word = found[0]
    lower, begins = word.lower(), following[1].lower() in _words("begin_sentences")
    if lower in _words("names_follow"):
        return True
    if word.isdigit() and len(word) < 3:  # 8. Februar, im 19. Jahrhundert
        previous = before[: found.start()].split()[-1:]
        ordinal = "".join(previous).lower() in _words("before_ordinals") and not begins
        if ordinal or following[1].lower() in _words("dates"):
            return True
    if lower in _words("numbers_follow") and (following[0][:1] in "([" or following[1][:1].isdigit()):
        return True
    code = text[border.end() : border.end() + _LOOKED_AT].split(None, 1)[:1]
    if lower in _words("codes_follow") and any(map(str.isdigit, "".join(code))):
        return True
    if "\n" in border[0]:  # a line that ends so is mostly a line of its own
        return False
    return (lower in _words("either") or bool(_INITIAL.fullmatch(word))) and not begins


def is_contentless(sentence: str) -> bool:
    """Whether it only looks like an answer: a line of a table of contents, the heading of a numbered section ("2.9.
    Caches"), or a blank to fill in."""
    return bool(_CONTENTS.search(sentence)) or _BLANK in sentence or bool(_NUMBERED_HEADING.fullmatch(sentence))


def is_question(sentence: str) -> bool:
    """Whether it is itself a question, as a heading or in a list of questions and answers."""
    return sentence.rstrip().endswith(("?", "？", "؟"))


def may_answer(sentence: str) -> bool:
    """False for headings, which repeat words of the question and answer nothing, questions, and contentless lines."""
    if is_question(sentence) or is_contentless(sentence):
        return False
    wide = _columns(sentence) - len(sentence)  # letters of scripts that have no spaces between words
    return len(sentence.split()) >= _FEWEST_WORDS or wide >= 2 * _FEWEST_WORDS or bool(_ROW.search(sentence))
