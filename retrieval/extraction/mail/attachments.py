"""What is attached to an e-mail: each file read as its own format, as parts named after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

from retrieval.errors import ExtractError, NothingToRead
from retrieval.extraction.document import Aside, ExtractedDocument
from retrieval.extraction.formats import HEAD_BYTES, format_of, function_named
from retrieval.extraction.limits import ExtractLimits, damage_named
from retrieval.extraction.markup import clean_text
from retrieval.extraction.parts import Block, Part, from_parts

FRAMES = 1000
"""Page `frame` of the attachment `n` is number `FRAMES * n + frame` among the pictures of a message."""
IN_THE_TEXT = ""
"""In place of the name of a picture within the text."""
_DEEPEST = 3  # messages within messages
_MOST = 500
_MOST_PICTURES = 50
_LEAST_WIDE, _LEAST_HIGH = 300, 100  # pixels; smaller pictures within the text are logos and lines
_FOLDER = "attached-"
_LONGEST_NAME = 60


@dataclass(frozen=True)
class Attachment:
    """`inline`: shown within the text, which most pictures are there for decoration."""

    name: str
    data: bytes
    inline: bool = False


@dataclass(frozen=True)
class Message:
    """An e-mail, whatever wrote it. `head`: what stands above the text, by name ("From")."""

    head: dict[str, str]
    blocks: Sequence[Block]
    attachments: Sequence[Attachment] = ()
    notes: list[str] = field(default_factory=list)
    asides: Sequence[Aside] = ()


def from_message(
    message: Message, path: Path, limits: ExtractLimits, recognised: Path | None = None
) -> ExtractedDocument:
    """The message and after it every attachment that can be read; the others are named in notes."""
    subject = message.head.get("Subject", "")
    notes, scanned = list(message.notes), list[int]()
    attached = attached_parts(message.attachments, path, limits, notes, "attachment", recognised, scanned)
    parts = [message_part(message, "the message"), *attached]
    metadata = {
        ours: message.head[theirs][:2000]
        for ours, theirs in (("title", "Subject"), ("author", "From"), ("to", "To"), ("date", "Date"))
        if message.head.get(theirs)
    }
    document = from_parts(parts, subject or path.stem, path, metadata, limits, notes)
    if len(scanned) > _MOST_PICTURES:
        note = f"Only {_MOST_PICTURES} of its {len(scanned)} pictures were read."
        document = replace(document, notes=(*document.notes, note))
    return replace(document, scanned=tuple(scanned[:_MOST_PICTURES]))


def message_part(message: Message, label: str) -> Part:
    """A message without what is attached to it: its subject as a heading, the rest of its head as a row, its text."""
    head = "; ".join(f"{name}: {text}" for name, text in message.head.items() if text and name != "Subject")
    blocks = [(1, message.head.get("Subject", "")), (0, head and f"{head}."), *message.blocks]
    return Part(label, blocks, asides=message.asides)


def attached_parts(
    attachments: Sequence[Attachment],
    path: Path,
    limits: ExtractLimits,
    notes: list[str],
    what: str,
    recognised: Path | None = None,
    scanned: list[int] | None = None,
) -> Iterator[Part]:
    """The parts of files within a file of another kind; those that cannot be read are named in `notes`. `what` they are
    called ("embedded file"); `recognised`: the folder of what was recognised in pictures; those that were not yet are
    added to `scanned`."""
    left = limits.characters
    for number, attachment in enumerate(attachments[:_MOST]):
        name = shown_name(attachment.name) or f"attachment {number + 1}"
        if attachment.inline and (recognised is None or not _may_hold_words(attachment)):
            continue
        folder = recognised / f"attached-{number}" if recognised is not None else None
        try:
            document = _read(attachment, name, path, replace(limits, characters=max(1, left)), folder)
            pages = document.scanned
        except ExtractError as error:
            document, pages = None, error.pages if isinstance(error, NothingToRead) else ()
            if not attachment.inline and (folder is None or not pages):
                notes.append(f"The {what} {name} was not read: {error.reason}")
        if folder is not None and scanned is not None:
            scanned += [FRAMES * number + page for page in pages if page < FRAMES]
        if document is None:
            continue
        notes += [f"{name}: {note}" for note in document.notes]
        left -= len(document.text)
        yield from _parts_of(document, IN_THE_TEXT if attachment.inline else name, what)
    if len(attachments) > _MOST:
        notes.append(f"Only the first {_MOST} of {len(attachments)} attachments were read.")


def _may_hold_words(attachment: Attachment) -> bool:
    from retrieval.extraction.ocr.pictures import size_of_picture  # here: most messages have no pictures

    width, height = size_of_picture(attachment.data)
    return width >= _LEAST_WIDE and height >= _LEAST_HIGH


def _read(
    attachment: Attachment, name: str, path: Path, limits: ExtractLimits, recognised: Path | None
) -> ExtractedDocument:
    format_ = format_of(name)
    with unpacked(attachment, name, path) as file, damage_named(f"{format_.label} file"):
        arguments = (recognised,) if format_.drawn else ()
        document: ExtractedDocument = function_named(format_.extractor)(file, limits, None, *arguments)
    return document


@contextmanager
def unpacked(attachment: Attachment, name: str, path: Path) -> Iterator[Path]:
    """An attachment of the message at `path` as a file, beside the result, in the folder of the worker that goes when
    it ends. Raises ExtractError."""
    format_ = format_of(name)
    if not attachment.data:
        raise ExtractError("It is empty (0 bytes).")
    if not format_.matches(attachment.data[:HEAD_BYTES]):
        raise ExtractError(f"Its content is not {format_.label}.")
    is_inner = path.parent.name.startswith(_FOLDER)
    if sum(part.startswith(_FOLDER) for part in path.parts) >= _DEEPEST:
        raise ExtractError("Messages are nested too deeply in it.")
    with TemporaryDirectory(prefix=_FOLDER, dir=path.parent if is_inner else Path.cwd()) as folder:
        file = Path(folder) / f"attached{PurePath(name).suffix.lower()}"
        file.write_bytes(attachment.data)
        yield file


def _parts_of(document: ExtractedDocument, name: str, what: str) -> Iterator[Part]:
    """The pages of an attachment, without boxes: nothing is there that could be drawn."""
    headings = {entry.start: entry.level + 1 for entry in document.outline if entry.start is not None}
    is_picture = name == IN_THE_TEXT or format_of(name).label in ("PNG", "JPEG", "TIFF")
    for page in document.pages:
        if page.end <= page.start:
            continue
        where = page.label if not page.label or " " in page.label else f"page {page.label}"
        named = "picture in the text" if name == IN_THE_TEXT else f"{what} {name}"
        label = named if not where or (is_picture and len(document.pages) == 1) else f"{named}, {where}"
        text = document.text[page.start : page.end]
        tables = [(table.caption, table.rows) for table in document.exhibits.tables if table.page == page.number]
        asides = [one for one in document.asides if one.page == page.number]
        yield Part(label, list(_blocks(text, page.start, headings)), page.note, tables, asides=asides)


def _blocks(text: str, start: int, headings: dict[int, int]) -> Iterator[Block]:
    for block in text.split("\n\n"):
        yield headings.get(start, 0), block
        start += len(block) + 2


def shown_name(name: str) -> str:
    """The name of a file as its sender gave it, without folders and what cannot be printed."""
    name = PurePath(clean_text(name).replace("\n", " ").replace("\\", "/")).name.strip()
    if len(name) > _LONGEST_NAME:
        suffix = PurePath(name).suffix[:10]
        name = name[: _LONGEST_NAME - len(suffix) - 1] + "…" + suffix
    return name


def one_line(text: str) -> str:
    """A line of the head of a message."""
    return " ".join(clean_text(text).split())[:2000]
