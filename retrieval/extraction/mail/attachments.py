"""What is attached to an e-mail: each file read as its own format, as parts named after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.formats import HEAD_BYTES, format_of
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text
from retrieval.extraction.parts import Block, Part, from_parts

_DEEPEST = 3  # messages within messages
_MOST = 500
_FOLDER = "attached-"
_LONGEST_NAME = 60


@dataclass(frozen=True)
class Attachment:
    name: str
    data: bytes


@dataclass(frozen=True)
class Message:
    """An e-mail, whatever wrote it. `head`: what stands above the text, by name ("From")."""

    head: dict[str, str]
    blocks: Sequence[Block]
    attachments: Sequence[Attachment] = ()
    notes: list[str] = field(default_factory=list)


def from_message(message: Message, path: Path, limits: ExtractLimits) -> ExtractedDocument:
    """The message and after it every attachment that can be read; the others are named in notes."""
    subject = message.head.get("Subject", "")
    lines = "\n".join(f"{name}: {text}" for name, text in message.head.items() if text)
    blocks: list[Block] = [(1, subject), (0, lines), *message.blocks]
    notes = list(message.notes)
    parts = [Part("the message", blocks), *_attached(message.attachments, path, limits, notes)]
    metadata = {
        ours: message.head[theirs][:2000]
        for ours, theirs in (("title", "Subject"), ("author", "From"), ("to", "To"), ("date", "Date"))
        if message.head.get(theirs)
    }
    return from_parts(parts, subject or path.stem, path, metadata, limits, notes)


def _attached(attachments: Sequence[Attachment], path: Path, limits: ExtractLimits, notes: list[str]) -> Iterator[Part]:
    left = limits.characters
    for number, attachment in enumerate(attachments[:_MOST]):
        name = shown_name(attachment.name) or f"attachment {number + 1}"
        try:
            document = _read(attachment, name, path, replace(limits, characters=max(1, left)))
        except ExtractError as error:
            notes.append(f"The attachment {name} was not read: {error.reason}")
            continue
        notes += [f"{name}: {note}" for note in document.notes]
        left -= len(document.text)
        yield from _parts_of(document, name)
    if len(attachments) > _MOST:
        notes.append(f"Only the first {_MOST} of {len(attachments)} attachments were read.")


def _read(attachment: Attachment, name: str, path: Path, limits: ExtractLimits) -> ExtractedDocument:
    """Written beside the result, in the folder of the worker that goes when it ends."""
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
        module, _, function = format_.extractor.partition(":")
        document: ExtractedDocument = getattr(import_module(module), function)(file, limits, None)
    return document


def _parts_of(document: ExtractedDocument, name: str) -> Iterator[Part]:
    """The pages of an attachment, without boxes: nothing is there that could be drawn."""
    headings = {entry.start: entry.level + 1 for entry in document.outline if entry.start is not None}
    for page in document.pages:
        if page.end <= page.start:
            continue
        where = page.label if not page.label or " " in page.label else f"page {page.label}"
        label = f"attachment {name}" + (f", {where}" if where else "")
        text = document.text[page.start : page.end]
        yield Part(label, list(_blocks(text, page.start, headings)), page.note)


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
