"""The formats that can be read. The command line, the HTTP API, the web page and the sandbox all ask this table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from retrieval.errors import ExtractError

HEAD_BYTES = 1024  # how much of a file `Format.matches` looks at
_UNICODE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")  # UTF-16 and UTF-32 text holds NUL bytes


@dataclass(frozen=True)
class Format:
    """One format. `kind` is kept in the catalogue and ends the name of the stored file.

    `extractor` names a function (path, limits, password) -> ExtractedDocument as "module:function"; it is imported in
    the sandbox only. `magic` stands at the start of every such file, or anywhere in its head if `magic_anywhere`; text
    formats have none.
    """

    kind: str
    label: str
    suffixes: tuple[str, ...]
    media_type: str
    extractor: str
    magic: bytes = b""
    magic_anywhere: bool = False

    def matches(self, head: bytes) -> bool:
        """Whether the first `HEAD_BYTES` bytes of a file may belong to this format."""
        if self.magic:
            return self.magic in head if self.magic_anywhere else head.startswith(self.magic)
        return b"\0" not in head or head.startswith(_UNICODE_MARKS)


PDF = Format(
    "pdf", "PDF", (".pdf",), "application/pdf", "retrieval.extraction.pdf.extract_pdf:extract_pdf", b"%PDF-", True
)
DOCX = Format(
    "docx",
    "Word",
    (".docx",),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "retrieval.extraction.office:extract_docx",
    b"PK\x03\x04",
)
FORMATS = (
    PDF,
    DOCX,
    Format("html", "HTML", (".html", ".htm"), "text/html", "retrieval.extraction.markup:extract_html"),
    Format("md", "Markdown", (".md", ".markdown"), "text/markdown", "retrieval.extraction.markup:extract_markdown"),
    Format("txt", "plain text", (".txt",), "text/plain", "retrieval.extraction.markup:extract_text"),
)
SUFFIXES = tuple(suffix for each in FORMATS for suffix in each.suffixes)


def format_of(path: PurePath | str) -> Format:
    """The format by the end of the file's name. Raises ExtractError, naming the formats that can be read."""
    suffix = PurePath(path).suffix.lower()
    for each in FORMATS:
        if suffix in each.suffixes:
            return each
    what = f"{suffix} files" if suffix else "Files without a name ending"
    raise ExtractError(f"{what} cannot be read. Convert the file to one of these formats: {', '.join(SUFFIXES)}.")
