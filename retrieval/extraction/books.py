"""E-books (.epub): the chapters in the order of reading."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

from lxml import etree

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.figures import data_of_address
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import read_html
from retrieval.extraction.office.archive import Archive, opened_archive, stated
from retrieval.extraction.parts import Part, from_parts

_WHAT = "e-book"
_OLDER = "The file is named .epub but is a file of an office program."
_CONTAINER = "META-INF/container.xml"
_PROTECTED = "This e-book is protected against copying (DRM): only its seller's programs can read it."
_FONTS_ONLY = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_OPF = "{http://www.idpf.org/2007/opf}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_PAGES = ("application/xhtml+xml", "text/html", "application/xml", "text/x-oeb1-document")
_LONGEST_NAME = 80


def extract_epub(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """The chapters of an e-book, each a part. Raises ExtractError."""
    notes: list[str] = []
    with opened_archive(path, _WHAT, _OLDER, may_declare=True) as archive:
        if _CONTAINER not in archive:
            raise ExtractError("The file is named .epub but is not an e-book.")
        _check_protection(archive)
        package_name = _package_name(archive)
        package = _part(archive, package_name)
        metadata = stated(package, {"date": f"{_DC}date", "publisher": f"{_DC}publisher"})
        chapters = _chapters(archive, package, posixpath.dirname(package_name), limits, notes)
        return from_parts(chapters, metadata.get("title", ""), path, metadata, limits, notes)


def _check_protection(archive: Archive) -> None:
    name = "META-INF/encryption.xml"
    if name not in archive:
        return
    for method in _part(archive, name).iter("{http://www.w3.org/2001/04/xmlenc#}EncryptionMethod"):
        if method.get("Algorithm", "") not in _FONTS_ONLY:
            raise ExtractError(_PROTECTED)


def _package_name(archive: Archive) -> str:
    for root in _part(archive, _CONTAINER).iter("{*}rootfile"):
        if root.get("full-path"):
            return str(root.get("full-path"))
    raise ExtractError("The e-book is damaged: it does not say where its list of chapters is.")


def _part(archive: Archive, name: str) -> etree._Element:
    try:
        return archive.parse(name)
    except KeyError as error:
        raise ExtractError(f"The e-book is damaged: {name} is not in it.") from error


def _chapters(
    archive: Archive, package: etree._Element, folder: str, limits: ExtractLimits, notes: list[str]
) -> Iterator[Part]:
    items = {item.get("id"): item for item in package.iter(f"{_OPF}item")}
    number = 0
    for reference in package.iter(f"{_OPF}itemref"):
        item = items.get(reference.get("idref"))
        if item is None or item.get("media-type") not in _PAGES:
            continue
        name = posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
        try:
            data = archive.read(name)
        except KeyError:
            notes.append(f"{name} is missing in the e-book.")
            continue
        page = read_html(data, fetch=_fetching(archive, posixpath.dirname(name)))
        blocks = page.blocks
        if not any(text.strip() for _, text in blocks):
            continue
        number += 1
        heading = next((text for level, text in blocks if level), "") or page.title
        heading = " ".join(heading.split())[:_LONGEST_NAME]
        label = f"chapter {number}" + (f" ({heading})" if heading else "")
        yield page.part(label)


def _fetching(archive: Archive, folder: str) -> Callable[[str], bytes | None]:
    """Gives the pictures in the book, by the address at which a chapter in that folder shows them."""

    def fetch(address: str) -> bytes | None:
        name = posixpath.normpath(posixpath.join(folder, unquote(address.partition("#")[0])))
        return archive.read(name) if name in archive else data_of_address(address)

    return fetch
