"""Zip archives of XML, as office programs and e-books write them: read without resolving anything, and with limits on
what they unpack to."""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lxml import etree

from retrieval.errors import ExtractError

_PART_BYTES = 256 << 20  # of one part, unpacked
_WHOLE_BYTES = 1 << 30  # of all parts, unpacked
_PARTS = 50_000
_RATIO = 400  # unpacked to packed, above one megabyte; text seldom packs better than 1:30
_DC = "{http://purl.org/dc/elements/1.1/}"
_DATES = "{http://purl.org/dc/terms/}"
_CORE = "docProps/core.xml"
MACROS = "The file holds macros: they were neither run nor read."
_STRICT, _USUAL = (
    re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/(\w+)"),
    rb"http://schemas.openxmlformats.org/\1/2006/\2",
)
"""Names of Strict Open XML, and those that everything else uses for the same."""
_OLE = b"\xd0\xcf\x11\xe0"  # files of older programs, and encrypted files of newer ones


@contextmanager
def opened_archive(path: Path, what: str, older: str) -> Iterator[zipfile.ZipFile]:
    """`what` names the kind of file in messages, "Word document"; `older` what else it may be, and the remedy.

    Raises ExtractError, also for what the body of the `with` finds damaged in the archive.
    """
    with path.open("rb") as file:
        if file.read(8).startswith(_OLE):
            raise ExtractError(older)
    try:
        with zipfile.ZipFile(path) as archive:
            _check(archive, what)
            yield archive
    except zipfile.BadZipFile as error:
        raise ExtractError(f"The {what} is damaged or cut off: its archive cannot be opened.") from error
    except (NotImplementedError, RuntimeError) as error:  # unknown packing, or an archive with a password
        if isinstance(error, RecursionError):
            raise
        raise ExtractError(f"The {what} cannot be unpacked ({error}).") from error


@contextmanager
def opened_office(
    path: Path, what: str, old: str, main: str
) -> Iterator[tuple[zipfile.ZipFile, dict[str, str], list[str]]]:
    """The archive of an Office file, what that states of itself, and notes. `old`: how files of its kind were named
    before 2007 (".doc"); `main`: the part without which it is none. Raises ExtractError."""
    kind = f"{'an' if what[0] in 'AEIOU' else 'a'} {what}"
    older = f"This is an old {old} file or {kind} with a password. Save it as {old}x without one and retry."
    with opened_archive(path, what, older) as archive:
        names = archive.namelist()
        if main not in names:
            raise ExtractError(f"The file is named {old}x but is not {kind}.")
        has_macros = any(name.endswith("/vbaProject.bin") for name in names)
        yield archive, _core_metadata(archive, what), [MACROS] if has_macros else []


def _check(archive: zipfile.ZipFile, what: str) -> None:
    """No more is ever unpacked than the archive's directory states."""
    sizes = [(info.file_size, info.compress_size) for info in archive.infolist()]
    total = sum(size for size, _ in sizes)
    bombs = [size for size, packed in sizes if size > _PART_BYTES or size > max(1 << 20, _RATIO * max(1, packed))]
    if bombs or len(sizes) > _PARTS or total > _WHOLE_BYTES:
        unpacked = bombs[0] if bombs else total
        raise ExtractError(f"The {what} unpacks to {unpacked / 1e6:,.0f} MB and was refused: it looks malicious.")


def parse_part(archive: zipfile.ZipFile, name: str, what: str, *, may_declare: bool = False) -> etree._Element:
    """One XML part. Document type declarations (entities, expansion bombs) are refused unless it `may_declare` one,
    as e-books do; entities are never resolved."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    with _well_formed(name, what):
        data = archive.read(name)
        tree = etree.ElementTree(etree.fromstring(_STRICT.sub(_USUAL, data) if _STRICT.search(data) else data, parser))
    if tree.docinfo.doctype and not may_declare:
        raise ExtractError(f"The {what} declares entities, which no {what} needs, and was refused.")
    return tree.getroot()


def iterate_part(archive: zipfile.ZipFile, name: str, what: str, tags: Sequence[str]) -> Iterator[etree._Element]:
    """The elements with these local names in a part that may be large, one after the other; each is gone when the next
    is asked for. For parts in which nothing is declared (`refuse_declarations`)."""
    with archive.open(name) as part:
        events = etree.iterparse(
            part, tag=[f"{{*}}{tag}" for tag in tags], resolve_entities=False, no_network=True, load_dtd=False,
            huge_tree=False,
        )  # fmt: skip
        with _well_formed(name, what):
            for _, element in events:
                yield element
                element.clear()
                while element.getprevious() is not None:
                    del element.getparent()[0]


@contextmanager
def _well_formed(name: str, what: str) -> Iterator[None]:
    try:
        yield
    except (etree.XMLSyntaxError, EOFError) as error:
        if "Excessive depth" in str(error):
            raise ExtractError(f"The {what} is nested too deeply: it is damaged or malicious.") from error
        raise ExtractError(f"The {what} is damaged: {name} is not well-formed XML ({error}).") from error


def relations(archive: zipfile.ZipFile, part: str, what: str) -> dict[str, str]:
    """The parts of an Office file to which a part refers, by the id that it uses; none outside the file."""
    folder, _, name = part.rpartition("/")
    listed = f"{folder}/_rels/{name}.rels"
    if listed not in archive.NameToInfo:
        return {}
    return {
        one.get("Id", ""): posixpath.normpath(posixpath.join("/", folder, one.get("Target", ""))).lstrip("/")
        for one in parse_part(archive, listed, what).iter("{*}Relationship")
        if one.get("TargetMode") != "External"
    }


def refuse_declarations(archive: zipfile.ZipFile, what: str) -> None:
    """For archives whose parts a library parses: none may declare a document type. Raises ExtractError."""
    for info in archive.infolist():
        if not info.filename.lower().endswith((".xml", ".rels", ".vml")):
            continue
        with archive.open(info) as part:
            head = part.read(4096)
        text = head.decode("utf-16", "replace") if head[:2] in (b"\xff\xfe", b"\xfe\xff") else head.decode("latin-1")
        if "<!DOCTYPE" in text.replace("\0", "") or "<!ENTITY" in text.replace("\0", ""):
            raise ExtractError(f"The {what} declares entities, which no {what} needs, and was refused.")


def _core_metadata(archive: zipfile.ZipFile, what: str) -> dict[str, str]:
    """Title, author, subject and dates that a Word, PowerPoint or Excel file states."""
    if _CORE not in archive.namelist():
        return {}
    return stated(parse_part(archive, _CORE, what), {"created": f"{_DATES}created", "modified": f"{_DATES}modified"})


def stated(root: etree._Element, dates: Mapping[str, str]) -> dict[str, str]:
    """What a part states of its file; `dates`: the elements that hold some, by our name."""
    names = {"title": "title", "author": "creator", "subject": "subject", "language": "language"}
    elements = {**{ours: f"{_DC}{theirs}" for ours, theirs in names.items()}, **dates}
    found = {ours: next(root.iter(theirs), None) for ours, theirs in elements.items()}
    return {key: one.text.strip()[:2000] for key, one in found.items() if one is not None and (one.text or "").strip()}
