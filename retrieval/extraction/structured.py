"""JSON and XML files as sentences: every value stands behind its name and the branch that it belongs to. Programs, and
what is neither JSON nor XML, as text whose places are line numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lxml import etree

from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.encodings import Decoded, decode
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text, text_bytes
from retrieval.extraction.parts import Part, from_parts

_DEEPEST = 100
_BRANCH = " / "
_LINES_A_BLOCK = 20
_LINES = 40  # of a part, at least
_MOST_LINES = 60
_TAB = 4
_LONGEST_FIRST = 60  # characters of a value that tells a record from others


def extract_json(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """A sentence for every object; what is no JSON is read as text. Raises ExtractError."""
    source = decode(text_bytes(path, limits))
    try:
        lines = list(_sentences(_values(source.text), ()))
    except (ValueError, RecursionError):
        lines = []
    return _document(lines, source, path, limits)


def _values(source: str) -> Any:
    """The value of the file, or those of its lines where each holds one. Raises ValueError."""
    read = partial(json.loads, parse_float=str)  # as it is written, with all its digits
    try:
        return read(source)
    except json.JSONDecodeError:
        values = [read(line) for line in source.split("\n") if line.strip()]
        return values if len(values) > 1 else read(source)


def extract_xml(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """A sentence for every element that holds values, a paragraph for each that holds a text; what is no XML is read as
    text. Raises ExtractError."""
    source = decode(text_bytes(path, limits))
    parser = etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_pis=True,
        remove_comments=True,
    )  # fmt: skip
    try:
        root = etree.fromstring(source.text.encode("utf-8", "replace"), parser)
        lines = [] if root.getroottree().docinfo.doctype else list(_elements(root, ()))
    except (etree.XMLSyntaxError, RecursionError):
        lines = []
    return _document(lines, source, path, limits)


def extract_code(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """Program code, as it stands. Raises ExtractError."""
    return _document([], decode(text_bytes(path, limits)), path, limits)


def _document(sentences: Sequence[str], source: Decoded, path: Path, limits: ExtractLimits) -> ExtractedDocument:
    """The sentences; the text as it stands where there are none."""
    firsts = range(0, len(sentences), _LINES_A_BLOCK)
    blocks = [(0, "\n".join(sentences[at : at + _LINES_A_BLOCK])) for at in firsts]
    parts = [Part("", blocks)] if blocks else _parts(source.text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    title = path.stem if blocks else ""
    return from_parts(parts, title, path, {"encoding": source.encoding}, limits, source.notes)


def _sentences(value: Any, branch: tuple[str, ...], is_one_of_several: bool = False) -> Iterator[str]:
    if len(branch) > _DEEPEST:
        raise RecursionError
    if isinstance(value, dict):
        own = {key: shown for key, inner in value.items() if (shown := _plain(inner))}
        yield from _sentence(branch, own)
        inside = (*branch[:-1], *_told_apart("".join(branch[-1:]), own)) if is_one_of_several else branch
        for key, inner in value.items():
            if key not in own:
                yield from _sentences(inner, (*inside, key))
    elif isinstance(value, list) and not _plain(value):
        for number, inner in enumerate(value, 1):
            is_named = isinstance(inner, dict) or len(value) == 1
            yield from _sentences(inner, branch if is_named else (*branch, str(number)), len(value) > 1)
    elif shown := _plain(value):
        yield from _sentence(branch[:-1], {branch[-1] if branch else "": shown})


def _plain(value: Any) -> str:
    """A value, or a list of values; "" for what has branches, and for nothing."""
    if isinstance(value, list):
        return "" if any(isinstance(one, dict | list) for one in value) else ", ".join(filter(None, map(_plain, value)))
    if isinstance(value, dict) or value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(clean_text(str(value)).split())


def _told_apart(name: str, values: Mapping[str, str]) -> tuple[str, ...]:
    """The branch of one of several records, with its first value: what is inside of it belongs to no other."""
    key = next((key for key, value in values.items() if key and len(value) <= _LONGEST_FIRST), "")
    stated = f"{key}: {values[key]}" if key else ""
    told = f"{name} ({stated})" if name and stated else name or stated
    return (told,) if told else ()


def _sentence(branch: tuple[str, ...], values: dict[str, str]) -> Iterator[str]:
    if values:
        stated = "; ".join(f"{clean_text(key)}: {value}" if key else value for key, value in values.items())
        where = clean_text(_BRANCH.join(branch))
        yield f"{where}: {stated}." if where else f"{stated}."


def _elements(element: etree._Element, branch: tuple[str, ...]) -> Iterator[str]:
    if len(branch) > _DEEPEST:
        raise RecursionError
    name = etree.QName(element).localname
    children = [child for child in element if isinstance(child.tag, str)]
    values = {str(etree.QName(key).localname): " ".join(text.split()) for key, text in element.attrib.items()}
    if any((child.tail or "").strip() for child in children):  # running text
        yield from _sentence((*branch, name), values)
        yield " ".join(clean_text("".join(element.itertext())).split())
        return
    text = " ".join(clean_text(element.text or "").split())
    if text and not children and not branch and not values:
        yield text
        return
    deeper = []
    for child in children:
        leaf = not len(child) and not child.attrib and (child.text or "").strip()
        key = etree.QName(child).localname
        if leaf:
            shown = " ".join(clean_text(child.text or "").split())
            values[key] = f"{values[key]}, {shown}" if key in values else shown
        else:
            deeper.append(child)
    if text and (children or branch):
        values = {"": text, **values}
    yield from _sentence((*branch, name), values)
    beside = (element.getprevious(), element.getnext())
    is_one_of_several = any(one is not None and one.tag == element.tag for one in beside)
    inside = _told_apart(name, values) if is_one_of_several else (name,)
    for child in deeper:
        yield from _elements(child, (*branch, *inside))


def _parts(lines: list[str]) -> Iterator[Part]:
    """Pieces that end at an empty line where there is one soon."""
    first = 0
    while first < len(lines):
        last = min(first + _LINES, len(lines))
        while last < min(first + _MOST_LINES, len(lines)) and lines[last - 1].strip():
            last += 1
        text = clean_text("\n".join(line.expandtabs(_TAB).rstrip() for line in lines[first:last])).strip("\n")
        if text.strip():
            yield Part(f"lines {first + 1}–{last}" if last > first + 1 else f"line {last}", [(0, text)])
        first = last
