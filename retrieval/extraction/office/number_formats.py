"""Numbers of a sheet as its number formats show them: currency, thousands, leading zeros, percent, dates, durations."""

from __future__ import annotations

import datetime
import math
import operator
import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache

_SECTIONS = re.compile(r'(?:^|;)((?:"[^"]*"|\\.|[^;"\\])*)')
_CONDITION = re.compile(r"(?:\[[^\]]*\])*?\[(<=|>=|<>|[<>=])(-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\]")
_COMPARED = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "<>": operator.ne,
}  # fmt: skip
_LITERAL = re.compile(r'"([^"]*)"|\\(.)|_.|\*.|\[\$([^\]-]*)[^\]]*\]|\[[^\]]*\]')
_ELAPSED = re.compile(r"\[(h+|m+|s+)\]", re.I)
_PLACES = re.compile(r"[0#?]")
_NUMBER = re.compile(r"[0#?,.]*[0#?][0#?,.]*")
_EXPONENT = re.compile(r"[eE][+-]0+")
_LARGEST_DAY = 2_958_465  # 31 December 9999
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def number_text(value: float) -> str:
    """A number as people write it, without what floating point adds."""
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e21):
        return str(int(value))
    return f"{value:.12g}"


def shown_number(value: float, code: str, *, from_1904: bool = False) -> str:
    """A number as its format shows it; dates as 2026-03-14. `from_1904`: the workbook counts its days from 1904."""
    if not code or code.lower() == "general" or code == "@" or not math.isfinite(value):
        return number_text(value)
    if is_date(code):
        return _date_text(value, code, from_1904) or number_text(value)
    return _number_text(*_in_section(value, code))


def _in_section(value: float, code: str) -> tuple[float, str]:
    """A number, and the section of its format that shows it: the first whose condition it meets (without one: positive,
    negative), else the last. A section for negative numbers alone, or with a sign of its own, shows no other."""
    sections = [each for each in _SECTIONS.findall(code) if "@" not in _LITERAL.sub("", each)][:3] or ["General"]
    count, sign, limit = len(sections), "", 0.0
    if count < 3 and _CONDITION.match(sections[-1]):
        sections.append("General")
    usual = (">=" if count == 2 else ">", 0.0), ("<", 0.0)
    for section, condition in zip(sections[:-1], usual, strict=False):
        stated = _CONDITION.match(section)
        sign, limit = (stated[1], float(stated[2])) if stated else condition
        if _COMPARED[sign](value, limit):
            break
    else:
        section, sign = sections[-1], "<" if count == len(sections) == 2 and sign == ">=" else ""
    alone = (sign in ("<", "<=") and limit == 0) or (count > 1 and _CONDITION.sub("", section).startswith("-"))
    return (-value if value < 0 and alone else value), section


@lru_cache(maxsize=1000)
def is_date(code: str) -> bool:
    """Whether a format shows days or times."""
    plain = _LITERAL.sub("", _ELAPSED.sub("h", code.split(";")[0]))
    return bool(re.search(r"[dmyhs]", plain, re.I)) and not _NUMBER.search(re.sub(r"(?<=[sS])\.0+", "", plain))


def _number_text(value: float, section: str) -> str:
    is_fraction = "/" in section and _PLACES.search(section)
    if is_fraction or _EXPONENT.fullmatch(section):  # which holds no digit's place
        return number_text(value)
    literals: list[str] = []

    def kept(found: re.Match[str]) -> str:
        literals.append(found[1] or found[2] or found[3] or "")
        return "\0"

    plain = _LITERAL.sub(kept, section)
    bare = _EXPONENT.sub("", plain)
    if not _PLACES.search(bare):
        shown = number_text(value) if "general" in plain.lower() else ""
        text = re.sub("general", shown, plain, flags=re.I)
    else:
        places = [at for at, letter in enumerate(bare) if letter in "0#?,."]
        start, end = places[0], places[-1] + 1
        text = bare[:start] + _digits(value, bare[start:end], plain) + bare[end:]
    parts = text.split("\0")
    whole = "".join(part + literal for part, literal in zip(parts, [*literals, ""], strict=False))
    return " ".join(whole.split())


def _digits(value: float, core: str, section: str) -> str:
    """The digits in place of the part of a format that holds their places."""
    exponent = _EXPONENT.search(section)
    whole, _, fraction = core.partition(".")
    most, least = len(_PLACES.findall(fraction)), fraction.count("0")
    if exponent is not None:
        return f"{value:.{len(_PLACES.findall(fraction or whole[1:]))}E}"
    number = Decimal(repr(value)) * 100 ** section.count("%")
    trailing = len(core) - len(core.rstrip(","))
    number = number / (Decimal(1000) ** trailing)
    try:
        number = number.quantize(Decimal(1).scaleb(-most), rounding=ROUND_HALF_UP)
    except InvalidOperation:  # more digits than a number has
        return number_text(float(number))
    sign, digits = ("-" if number < 0 else ""), f"{abs(number):f}"
    units, _, rest = digits.partition(".")
    while len(rest) > least and rest.endswith("0"):
        rest = rest[:-1]
    units = "" if units == "0" and "0" not in whole else units.rjust(whole.count("0"), "0")
    grouped = re.search(r"[0#?],[0#?]", whole)
    if grouped:
        units = f"{int(units or 0):,}" if units else ""
    elif re.search(r"[0#?][^0#?,][^.]*[0#?]", whole):
        units = _spread(units, whole)
    return sign + units + (f".{rest}" if rest else "") + ("" if units or rest else "0" * ("0" in whole))


def _spread(digits: str, places: str) -> str:
    """Digits in places that signs part ("000-0000")."""
    shown: list[str] = []
    left = list(digits)
    for letter in reversed(places):
        if not _PLACES.fullmatch(letter):
            shown.append(letter)
        elif left:
            shown.append(left.pop())
        elif letter == "0":
            shown.append("0")
    return "".join(left) + "".join(reversed(shown))


def _date_text(value: float, code: str, from_1904: bool) -> str:
    """A day, a time of day or a duration; "" for a number that is none."""
    elapsed = _ELAPSED.search(code)
    plain = _LITERAL.sub("", _ELAPSED.sub("", code.split(";")[0])).lower()
    seconds = round(value * 86_400)
    shows_seconds = "s" in plain or (elapsed is not None and elapsed[1][0] in "sS")
    if elapsed is not None:
        sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
        if elapsed[1][0] in "hH":
            text = f"{seconds // 3600}:{seconds // 60 % 60:02d}" + (f":{seconds % 60:02d}" if shows_seconds else "")
            return sign + text
        return f"{sign}{seconds // 60}:{seconds % 60:02d}" if elapsed[1][0] in "mM" else f"{sign}{seconds} s"
    if value < 0 or value > _LARGEST_DAY:
        return ""
    has_time = "h" in plain or "s" in plain
    if not re.search(r"[dy]", plain) and has_time:
        seconds %= 86_400
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}" + (f":{seconds % 60:02d}" if shows_seconds else "")
    days = int(value) + (1 if 0 < value < 60 and not from_1904 else 0)  # Excel believes in 29 February 1900
    start = datetime.datetime(1904, 1, 1) if from_1904 else datetime.datetime(1899, 12, 30)
    try:
        moment = start + datetime.timedelta(days=days, seconds=seconds - int(value) * 86_400)
    except OverflowError:
        return ""
    if "d" not in plain:
        if "m" not in plain:
            return str(moment.year)
        month = _MONTHS[moment.month - 1][: None if "mmmm" in plain else 3]
        return f"{month} {moment.year}" if "y" in plain else month
    day = moment.strftime("%Y-%m-%d")
    if not has_time or (moment.time() == datetime.time() and value == int(value)):
        return day
    return f"{day} {moment:%H:%M:%S}" if shows_seconds and moment.second else f"{day} {moment:%H:%M}"
