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


class Archive(zipfile.ZipFile):
    """`what` names its kind in messages, "Word document"; `may_declare`: whether its parts may have document type
    declarations (entities, expansion bombs), as those of e-books do. Entities are never resolved."""

    def __init__(self, path: Path, what: str, may_declare: bool = False):
        super().__init__(path)
        self.what, self._may_declare = what, may_declare

    def __contains__(self, name: str) -> bool:
        return name in self.NameToInfo

    def parse(self, name: str) -> etree._Element:
        """One XML part. Raises KeyError if there is none, ExtractError for one that is no XML or declares what it may
        not."""
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
        with self._well_formed(name):
            data = self.read(name)
            usual = _STRICT.sub(_USUAL, data) if _STRICT.search(data) else data
            tree = etree.ElementTree(etree.fromstring(usual, parser))
        if tree.docinfo.doctype and not self._may_declare:
            raise self._declares()
        return tree.getroot()

    def parse_any(self, name: str) -> etree._Element | None:
        """As `parse`; None if there is no such part."""
        return self.parse(name) if name in self else None

    def iterate(self, name: str, tags: Sequence[str]) -> Iterator[etree._Element]:
        """The elements with these local names in a part that may be large, one after the other; each is gone when the
        next is asked for. For parts in which nothing is declared (`refuse_declarations`)."""
        with self.open(name) as part:
            events = etree.iterparse(
                part, tag=[f"{{*}}{tag}" for tag in tags], resolve_entities=False, no_network=True, load_dtd=False,
                huge_tree=False,
            )  # fmt: skip
            with self._well_formed(name):
                for _, element in events:
                    yield element
                    element.clear()
                    while element.getprevious() is not None:
                        del element.getparent()[0]

    @contextmanager
    def _well_formed(self, name: str) -> Iterator[None]:
        try:
            yield
        except (etree.XMLSyntaxError, EOFError) as error:
            if "Excessive depth" in str(error):
                raise ExtractError(f"The {self.what} is nested too deeply: it is damaged or malicious.") from error
            raise ExtractError(f"The {self.what} is damaged: {name} is not well-formed XML ({error}).") from error

    def relations(self, part: str) -> dict[str, str]:
        """The parts of an Office file to which a part refers, by the id that it uses; none outside the file."""
        return {one.get("Id", ""): name for one, name in self._relations(part)}

    def related(self, part: str, kind: str, usual: str) -> str:
        """The part of some kind ("styles") to which a part ("" for the file) of an Office file refers, or its `usual`
        name: not every program uses that, nor spells its references as the archive does."""
        kinds = {one.get("Type", "").rpartition("/")[2]: name for one, name in self._relations(part)}
        found = kinds.get(kind, usual)
        return found if found in self else usual

    def _relations(self, part: str) -> Iterator[tuple[etree._Element, str]]:
        folder, name = posixpath.split(part)
        root = self.parse_any(posixpath.join(folder, "_rels", f"{name}.rels"))
        for one in () if root is None else root.iter("{*}Relationship"):
            if one.get("TargetMode") != "External":
                yield one, posixpath.normpath(posixpath.join("/", folder, one.get("Target", ""))).lstrip("/")

    def refuse_declarations(self) -> None:
        """For archives whose parts a library parses: none may declare a document type. Raises ExtractError."""
        for info in self.infolist():
            if not info.filename.lower().endswith((".xml", ".rels", ".vml")):
                continue
            with self.open(info) as part:
                head = part.read(4096)
            is_wide = head[:2] in (b"\xff\xfe", b"\xfe\xff")
            text = head.decode("utf-16" if is_wide else "latin-1", "replace").replace("\0", "")
            if "<!DOCTYPE" in text or "<!ENTITY" in text:
                raise self._declares()

    def _declares(self) -> ExtractError:
        return ExtractError(f"The {self.what} declares entities, which no {self.what} needs, and was refused.")

    def check_size(self) -> None:
        """No more is ever unpacked than the archive's directory states. Raises ExtractError."""
        sizes = [(info.file_size, info.compress_size) for info in self.infolist()]
        total = sum(size for size, _ in sizes)
        bombs = [size for size, packed in sizes if size > _PART_BYTES or size > max(1 << 20, _RATIO * max(1, packed))]
        if bombs or len(sizes) > _PARTS or total > _WHOLE_BYTES:
            unpacked = bombs[0] if bombs else total
            raise ExtractError(
                f"The {self.what} unpacks to {unpacked / 1e6:,.0f} MB and was refused: it looks malicious."
            )


@contextmanager
def opened_archive(path: Path, what: str, older: str, *, may_declare: bool = False) -> Iterator[Archive]:
    """`older`: what else the file may be, and the remedy.

    Raises ExtractError, also for what the body of the `with` finds damaged in the archive.
    """
    with path.open("rb") as file:
        if file.read(8).startswith(_OLE):
            raise ExtractError(older)
    try:
        with Archive(path, what, may_declare) as archive:
            archive.check_size()
            yield archive
    except zipfile.BadZipFile as error:
        raise ExtractError(f"The {what} is damaged or cut off: its archive cannot be opened.") from error
    except (NotImplementedError, RuntimeError) as error:  # unknown packing, or an archive with a password
        if isinstance(error, RecursionError):
            raise
        raise ExtractError(f"The {what} cannot be unpacked ({error}).") from error


@contextmanager
def opened_office(
    path: Path, what: str, old: str, usual: str
) -> Iterator[tuple[Archive, str, dict[str, str], list[str]]]:
    """The archive of an Office file, its main part, what it states of itself, and notes. `old`: how files of its kind
    were named before 2007 (".doc"); `usual`: how the main part is named by most programs. Raises ExtractError."""
    kind = f"{'an' if what[0] in 'AEIOU' else 'a'} {what}"
    older = f"This is an old {old} file or {kind} with a password. Save it as {old}x without one and retry."
    with opened_archive(path, what, older) as archive:
        main = archive.related("", "officeDocument", usual)
        if main not in archive or posixpath.dirname(main) != posixpath.dirname(usual):
            raise ExtractError(f"The file is named {old}x but is not {kind}.")
        core = archive.parse_any(_CORE)
        dates = {"created": f"{_DATES}created", "modified": f"{_DATES}modified"}
        has_macros = any(name.endswith("/vbaProject.bin") for name in archive.namelist())
        yield archive, main, {} if core is None else stated(core, dates), [MACROS] if has_macros else []


def stated(root: etree._Element, dates: Mapping[str, str]) -> dict[str, str]:
    """What a part states of its file; `dates`: the elements that hold some, by our name."""
    names = {"title": "title", "author": "creator", "subject": "subject", "language": "language"}
    elements = {**{ours: f"{_DC}{theirs}" for ours, theirs in names.items()}, **dates}
    found = {ours: next(root.iter(theirs), None) for ours, theirs in elements.items()}
    return {key: one.text.strip()[:2000] for key, one in found.items() if one is not None and (one.text or "").strip()}
