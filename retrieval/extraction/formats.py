"""The formats that can be read, and what reading a file again would add that an older version read. The command line,
the HTTP API, the web page (`app.web.bundle.page_words`) and the sandbox all ask this table."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import Any

from retrieval.errors import UnknownKind
from retrieval.extraction.encodings import looks_like_text
from retrieval.extraction.office import older

HEAD_BYTES = 1024  # how much of a file `Format.matches` looks at
CODE_SUFFIXES = (
    ".code", ".py", ".pyi", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".java", ".kt", ".scala", ".groovy", ".c",
    ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".cs", ".go", ".rs", ".swift", ".m", ".mm", ".rb", ".php", ".pl",
    ".pm", ".lua", ".r", ".jl", ".hs", ".ml", ".fs", ".clj", ".ex", ".exs", ".erl", ".dart", ".zig", ".nim", ".f90",
    ".pas", ".vb", ".sql", ".sh", ".bash", ".zsh", ".fish", ".ps1", ".bat", ".cmd", ".css", ".scss", ".less", ".vue",
    ".svelte", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".properties", ".xsd", ".proto",
    ".graphql", ".tf", ".gradle", ".cmake", ".tex", ".bib", ".rst", ".org", ".adoc", ".log", ".diff", ".patch",
)  # fmt: skip


@dataclass(frozen=True)
class Format:
    """One format. Functions are named as "module:function" and imported in the sandbox only."""

    kind: str
    """As in the catalogue; ends the name of the stored file."""
    label: str
    suffixes: tuple[str, ...]
    media_type: str
    extractor: str
    """(path, limits, password) -> ExtractedDocument."""
    magic: tuple[bytes, ...] = ()
    """One of these starts every such file; text formats have none."""
    magic_anywhere: bool = False
    """It may also stand further on in the head of the file."""
    cells: bool = False
    """Its text stands in cells of sheets, which are the boxes of its characters."""
    drawn: bool = False
    """Its pages can be drawn, and text recognised in them. The extractor also takes `recognised`, its folder."""
    attached: str = ""
    """(path, limits) -> Message, whose attachments may be pictures; then, too, the extractor takes `recognised`."""
    tells_pages: bool = False
    """The extractor also takes `tell`, which it calls with the pages read, their number, and the characters."""
    ahead: bool = True
    """Sandboxes import the extractor before there is a file; not where its libraries take a tenth of a second."""
    newer: str = ""
    """Suffix of the present format, into which LibreOffice turns the file before it is read."""

    @property
    def may_hold_pictures(self) -> bool:
        return self.drawn or bool(self.attached)

    def matches(self, head: bytes) -> bool:
        """Whether the first `HEAD_BYTES` bytes of a file may belong to this format."""
        if self.magic:
            return any(each in head for each in self.magic) if self.magic_anywhere else head.startswith(self.magic)
        return looks_like_text(head)


_HERE = "retrieval.extraction"
_OFFICE = "application/vnd.openxmlformats-officedocument"
_PICTURES = f"{_HERE}.ocr.pictures:extract_picture"
_ZIP, _OLE = (b"PK\x03\x04",), (b"\xd0\xcf\x11\xe0",)
PDF = Format(
    "pdf", "PDF", (".pdf",), "application/pdf", f"{_HERE}.pdf.extract_pdf:extract_pdf", (b"%PDF-",), True, drawn=True,
    tells_pages=True,
)  # fmt: skip
DOCX = Format(
    "docx", "Word", (".docx", ".docm"), f"{_OFFICE}.wordprocessingml.document",
    f"{_HERE}.office.word:extract_docx", _ZIP,
)  # fmt: skip
XLSX = Format(
    "xlsx", "Excel", (".xlsx", ".xlsm"), f"{_OFFICE}.spreadsheetml.sheet",
    f"{_HERE}.office.workbook:extract_xlsx", _ZIP, cells=True, ahead=False,
)  # fmt: skip
PPTX = Format(
    "pptx", "PowerPoint", (".pptx", ".pptm", ".ppsx"), f"{_OFFICE}.presentationml.presentation",
    f"{_HERE}.office.slides:extract_pptx", _ZIP, ahead=False,
)  # fmt: skip
FORMATS = (
    PDF,
    DOCX,
    XLSX,
    PPTX,
    Format("csv", "CSV", (".csv", ".tsv"), "text/csv", f"{_HERE}.office.delimited:extract_csv", cells=True),
    Format(
        "odt", "OpenDocument", (".odt",), "application/vnd.oasis.opendocument.text",
        f"{_HERE}.office.opendocument:extract_odt", _ZIP,
    ),
    Format(
        "ods", "OpenDocument sheet", (".ods",), "application/vnd.oasis.opendocument.spreadsheet",
        f"{_HERE}.office.opendocument:extract_ods", _ZIP, cells=True,
    ),
    Format(
        "odp", "OpenDocument presentation", (".odp",), "application/vnd.oasis.opendocument.presentation",
        f"{_HERE}.office.opendocument:extract_odp", _ZIP,
    ),
    Format("rtf", "rich text", (".rtf",), "application/rtf", f"{_HERE}.office.rich_text:extract_rtf", (b"{\\rtf",)),
    Format("epub", "e-book", (".epub",), "application/epub+zip", f"{_HERE}.books:extract_epub", _ZIP),
    Format(
        "eml", "e-mail", (".eml",), "message/rfc822", f"{_HERE}.mail.messages:extract_eml",
        attached=f"{_HERE}.mail.messages:load_eml",
    ),  # fmt: skip
    Format(
        "msg", "Outlook", (".msg",), "application/vnd.ms-outlook", f"{_HERE}.mail.outlook:extract_msg", _OLE,
        attached=f"{_HERE}.mail.outlook:load_msg",
    ),  # fmt: skip
    Format("mbox", "mailbox", (".mbox",), "application/mbox", f"{_HERE}.mail.messages:extract_mbox", (b"From ",)),
    Format("ics", "calendar", (".ics",), "text/calendar", f"{_HERE}.mail.calendar:extract_ics"),
    Format("png", "PNG", (".png",), "image/png", _PICTURES, (b"\x89PNG\r\n\x1a\n",), drawn=True),
    Format("jpg", "JPEG", (".jpg", ".jpeg"), "image/jpeg", _PICTURES, (b"\xff\xd8\xff",), drawn=True),
    Format("tif", "TIFF", (".tif", ".tiff"), "image/tiff", _PICTURES, (b"II*\0", b"MM\0*"), drawn=True),
    Format("html", "HTML", (".html", ".htm", ".xhtml"), "text/html", f"{_HERE}.markup:extract_html"),
    Format(
        "mhtml", "saved web page", (".mhtml", ".mht"), "multipart/related", f"{_HERE}.mail.messages:extract_mhtml"
    ),
    Format("md", "Markdown", (".md", ".markdown"), "text/markdown", f"{_HERE}.markup:extract_markdown"),
    Format("txt", "plain text", (".txt", ".text"), "text/plain", f"{_HERE}.markup:extract_text"),
    Format("json", "JSON", (".json", ".jsonl", ".ndjson"), "application/json", f"{_HERE}.structured:extract_json"),
    Format("xml", "XML", (".xml",), "application/xml", f"{_HERE}.structured:extract_xml"),
    Format("code", "program code", CODE_SUFFIXES, "text/x-source", f"{_HERE}.structured:extract_code"),
)  # fmt: skip
OLDER = (
    Format("doc", "Word 97", (".doc",), "application/msword", DOCX.extractor, (*_OLE, b"{\\rtf"), newer=".docx"),
    Format("xls", "Excel 97", (".xls",), "application/vnd.ms-excel", XLSX.extractor, _OLE, cells=True, newer=".xlsx"),
    Format("ppt", "PowerPoint 97", (".ppt",), "application/vnd.ms-powerpoint", PPTX.extractor, _OLE, newer=".pptx"),
)
"""Formats of Office before 2007, which are read where LibreOffice is."""
CELL_KINDS = frozenset(each.kind for each in (*FORMATS, *OLDER) if each.cells)
DRAWN_KINDS = frozenset(each.kind for each in FORMATS if each.drawn)
_MEDIA = {"audio": "Sound", "video": "Film"}


def formats_here() -> tuple[Format, ...]:
    """What this machine can read."""
    return (*FORMATS, *OLDER) if older.program() else FORMATS


def suffixes_here() -> tuple[str, ...]:
    """Ends of the names of files that this machine can read."""
    return tuple(suffix for each in formats_here() for suffix in each.suffixes)


def format_of(path: PurePath | str) -> Format:
    """The format by the end of the file's name. Raises UnknownKind, which says what can be read."""
    suffix = PurePath(path).suffix.lower()
    for each in (*FORMATS, *OLDER):
        if suffix in each.suffixes:
            if each.newer and older.program() is None:
                raise UnknownKind(
                    f"{suffix} is the format of Office before 2007. Save the file as {each.newer} and add that, or "
                    "install LibreOffice where Cairn runs."
                )
            return each
    media = (mimetypes.guess_type(f"a{suffix}")[0] or "").partition("/")[0]
    what = _MEDIA.get(media) or (f"{suffix} files" if suffix else "Files without a name ending")
    labels = ", ".join(each.label for each in formats_here())
    raise UnknownKind(f"{what} cannot be read.", f"These can: {labels}.")


VERSION = 2
"""Of all readers together; kept with every text that they give. Texts without one are of version 1."""

_HIDDEN = "hidden and deleted text set aside"
_GAINED = {
    "pdf": "forms, comments, attached files, and tables without borders or printed sideways",
    "docx": f"headers, footers, numbering, comments, equations, charts, and {_HIDDEN}",
    "odt": f"headers, footers, numbering, equations, and {_HIDDEN}",
    "pptx": f"SmartArt, charts, the order on the slide, and {_HIDDEN}",
    "xlsx": f"numbers as they are shown, comments, text boxes, and {_HIDDEN}",
    "html": f"values of forms, frames, and {_HIDDEN}",
    "mhtml": f"frames, values of forms, and {_HIDDEN}",
    "md": _HIDDEN,
    "rtf": f"notes, comments, text boxes, and {_HIDDEN}",
    "eml": "pages behind plain stubs, calendars, and quoted replies told apart",
    "msg": "calendars, tables in its text, and quoted replies told apart",
    "json": "values with their branch",
    "xml": "values with their branch",
    "txt": "its encoding, its tables, and tick boxes",
    "csv": "its encoding",
}
"""What each format gained with version 2."""


def gains(kind: str, version: int) -> str:
    """What a document of a format that some version read would gain; "" for nothing."""
    return _GAINED.get(kind, "") if version < VERSION else ""


def function_named(name: str) -> Callable[..., Any]:
    """The function of the table of formats that is named "module:function"."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def older_note(kind: str, version: int) -> str:
    """The same as a sentence for whoever looks at the document; "" for nothing."""
    gained = gains(kind, version)
    return f"Read by an older version: read again for {gained} (`cairn repair --reingest`)." if gained else ""
