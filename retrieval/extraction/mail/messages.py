"""E-mails as programs for mail save them (.eml), and web pages that browsers save as e-mails (.mhtml)."""

from __future__ import annotations

import email.policy
import mailbox
import re
from collections.abc import Callable, Iterator, Sequence
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from urllib.parse import urljoin

from retrieval.errors import ExtractError
from retrieval.extraction.document import Aside, ExtractedDocument
from retrieval.extraction.encodings import decode
from retrieval.extraction.figures import data_of_address
from retrieval.extraction.formats import FORMATS
from retrieval.extraction.limits import ExtractLimits, damage_named
from retrieval.extraction.mail.attachments import (
    Attachment,
    Message,
    attached_parts,
    from_message,
    message_part,
    one_line,
)
from retrieval.extraction.markup import WebPage, clean_text, read_html, text_bytes
from retrieval.extraction.parts import Block, Part, from_parts
from retrieval.extraction.plain_text import plain_blocks

_OVERHEAD = 50  # bytes for each of text: attachments are in the file
_HEAD = ("Subject", "From", "To", "Cc", "Date")
_DEEPEST = 20
_STUB = 2  # a plain text is one if the web page beside it has so many times its letters
_QUOTED = re.compile(r"\s*>")
_INTRODUCES = re.compile(r".*(?:wrote|writes|schrieb|écrit|escribió|ha scritto|schreef).*:\s*$", re.I)
_EARLIER = "Earlier message, quoted: "
_KNOWN = ("from", "to", "subject", "date", "mime-version", "content-type", "received", "return-path", "message-id")
_NAMES = {
    each.media_type: f"attachment{each.suffixes[0]}" for each in FORMATS if not each.media_type.startswith("image/")
}
_NAMES |= {"message/rfc822": "message.eml", "text/calendar": "invitation.ics", "text/html": "page.html"}
"""Of attached files that have none, by what the message says that they are; pictures without one are decoration."""
_PICTURES = {"image/png": ".png", "image/jpeg": ".jpg", "image/tiff": ".tif"}


def extract_eml(
    path: Path, limits: ExtractLimits, password: str | None = None, recognised: Path | None = None
) -> ExtractedDocument:
    """The head, the text and the attachments of an e-mail. Raises ExtractError."""
    return from_message(load_eml(path, limits), path, limits, recognised)


def load_eml(path: Path, limits: ExtractLimits) -> Message:
    """Raises ExtractError."""
    return _message(_parsed(text_bytes(path, limits, overhead=_OVERHEAD)))


@damage_named("e-mail")  # odd headers are parsed when they are asked for
def _message(found: EmailMessage) -> Message:
    if not any(_stated(found, name) for name in _KNOWN):
        raise ExtractError("The file is not an e-mail: it has none of the lines that an e-mail begins with.")
    notes: list[str] = []
    if found.get_content_type() in ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime"):
        raise ExtractError("This e-mail is encrypted. Save it decrypted and add it again.")
    head = {name: one_line(_stated(found, name)) for name in _HEAD}
    blocks: list[Block] = []
    attachments: list[Attachment] = []
    asides: list[Aside] = []
    for part in _leaves(found, 0):
        if _is_text(part):
            blocks += _text_blocks(part, asides, notes)
        else:
            attachments += _attachment(part, notes)
    if found.defects or any(part.defects for part in found.walk()):
        notes.append("The e-mail is irregular; parts of it may be missing.")
    return Message(head, blocks, attachments, notes, asides)


def _stated(found: EmailMessage, name: str) -> str:
    """A line of the head, as it stands where that is so odd that parsing it fails."""
    try:
        return str(found.get(name, ""))
    except Exception:  # the parser raises whatever it stumbles over
        return next(str(value) for key, value in found.raw_items() if key.lower() == name.lower())


def extract_mhtml(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """A web page that was saved with its pictures and frames in one file; a frame is a part of its own. Raises
    ExtractError."""
    found = _parsed(text_bytes(path, limits, overhead=_OVERHEAD))
    pages: list[WebPage] = []
    for part in _leaves(found, 0):
        if part.get_content_type() in ("text/html", "application/xhtml+xml"):
            pages.append(read_html(_bytes(part), part.get_content_charset("") or "", _fetching(found, part)))
    if not pages:
        raise ExtractError("The file holds no web page. Save the page again, complete or as a single file.")
    frames = [page for page in pages[1:] if any(text.strip() for _, text in page.blocks) or page.asides]
    parts = [pages[0].part("page" if frames else "")]
    parts += [page.part(f"frame {number}") for number, page in enumerate(frames, 1)]
    address = one_line(str(found.get("Snapshot-Content-Location", "")))
    metadata = {"encoding": pages[0].encoding} | ({"address": address} if address else {})
    title = pages[0].title or one_line(str(found.get("Subject", "")))
    return from_parts(parts, title, path, metadata, limits, [note for page in pages for note in page.notes])


def extract_mbox(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """Every message of a mailbox, a part each, with what is attached to it. Raises ExtractError."""
    text_bytes(path, limits, overhead=_OVERHEAD)
    notes: list[str] = []
    parts: list[Part] = []
    box = mailbox.mbox(str(path), create=False)
    try:
        for number, key in enumerate(box.keys(), 1):
            try:
                message = _message(_parsed(box.get_bytes(key)))
            except ExtractError as error:
                notes.append(f"Message {number} was not read: {error.reason}")
                continue
            subject = message.head["Subject"]
            parts.append(message_part(message, f"message {number} ({subject})" if subject else f"message {number}"))
            parts += attached_parts(message.attachments, path, limits, notes, "attachment")
            notes += message.notes
    finally:
        box.close()
    if notes and not parts:
        raise ExtractError(notes[0])
    return from_parts(parts, path.stem, path, {}, limits, notes)


def _fetching(found: EmailMessage, page: EmailMessage) -> Callable[[str], bytes | None]:
    """Gives the pictures that were saved with a page, by the address at which the page shows them."""
    saved: dict[str, EmailMessage] = {}
    for part in _leaves(found, 0):
        if part.get_content_maintype() == "image":
            saved[f"cid:{str(part.get('Content-ID', '')).strip().strip('<>')}"] = part
            saved[str(part.get("Content-Location", "")).strip()] = part
    base = str(page.get("Content-Location", "")).strip()

    def fetch(address: str) -> bytes | None:
        part = saved.get(address) or saved.get(urljoin(base, address)) if address else None
        return data_of_address(address) if part is None else _bytes(part)

    return fetch


def _parsed(data: bytes) -> EmailMessage:
    with damage_named("e-mail"):  # odd headers
        return BytesParser(EmailMessage, policy=email.policy.default).parsebytes(data)


def _leaves(part: EmailMessage, depth: int) -> Iterator[EmailMessage]:
    """The parts that hold something; of alternatives the plainest that has words and is more than a stub of another, of
    messages within it none."""
    if depth > _DEEPEST:
        raise ExtractError("The e-mail is nested too deeply: it is damaged or malicious.")
    if part.get_content_type() == "multipart/alternative":
        kinds = [one for one in part.iter_parts() if isinstance(one, EmailMessage)]
        texts = [one for one in kinds if one.get_content_type() == "text/plain" and _bytes(one).strip()]
        chosen = texts[:1] or kinds[-1:]
        page = next((one for one in kinds if _page_of(one) is not None), None)
        if texts and page is not None and _is_stub(texts[0], page):
            chosen = [page]
        others = [
            one
            for one in kinds
            if one not in chosen
            and (one.get_content_type() == "text/calendar" or not one.get_content_type().startswith(("text/", "multi")))
        ]
        for one in (*chosen, *others):
            yield from _leaves(one, depth + 1)
        for one in kinds:  # pictures of the wording that was not chosen
            if one not in chosen and one.get_content_maintype() == "multipart":
                inside = _leaves(one, depth + 1)
                yield from (leaf for leaf in inside if leaf.get_content_maintype() == "image")
    elif part.get_content_maintype() == "multipart":
        for inner in part.iter_parts():
            assert isinstance(inner, EmailMessage)  # the parser makes all parts of this class
            yield from _leaves(inner, depth + 1)
    else:
        yield part


def _page_of(part: EmailMessage) -> EmailMessage | None:
    """The web page in one of several alternatives."""
    leaves = part.walk() if part.get_content_maintype() == "multipart" else iter((part,))
    return next((one for one in leaves if one.get_content_type() == "text/html"), None)


def _is_stub(text: EmailMessage, alternative: EmailMessage) -> bool:
    """Whether a plain text says far less than the web page beside it."""
    page = _page_of(alternative)
    if page is None:
        return False
    said = sum(len(block) for _, block in read_html(_bytes(page), page.get_content_charset("") or "").blocks)
    return len(" ".join(_bytes(text).decode("latin-1").split())) * _STUB < said


def _is_text(part: EmailMessage) -> bool:
    named = part.get_filename() or part.get_content_disposition() == "attachment"
    return not named and part.get_content_type() in ("text/plain", "text/html")


def _text_blocks(part: EmailMessage, asides: list[Aside], notes: list[str]) -> list[Block]:
    charset = part.get_content_charset("") or ""
    if part.get_content_type() == "text/html":
        page = read_html(_bytes(part), charset)
        asides += page.asides
        notes += page.notes
        return page.blocks
    text, _, guessed = decode(_bytes(part), charset, undeclared=True)
    notes += guessed
    return list(told_apart(clean_text(text).strip("\n")))


def told_apart(text: str) -> Iterator[Block]:
    """The text of a message, and what it quotes of earlier ones, which says so in every paragraph."""
    lines = text.split("\n")
    if all(_QUOTED.match(line) for line in lines if line.strip()):
        lines = [re.sub(r"^[\s>]+", "", line) for line in lines]
    own: list[str] = []
    quoted: list[str] = []
    for number, line in enumerate([*lines, ""]):
        if _QUOTED.match(line) or (
            _INTRODUCES.match(line) and _QUOTED.match(next(filter(str.strip, lines[number + 1 :]), ""))
        ):
            if own:
                yield from plain_blocks("\n".join(own).strip("\n"))[0]
                own = []
            quoted.append(re.sub(r"^[\s>]+", "", line))
            continue
        if quoted and line.strip():
            yield from _quotation(quoted)
            quoted = []
        own.append(line)
    yield from plain_blocks("\n".join(own).strip("\n"))[0]
    yield from _quotation(quoted)


def _quotation(lines: Sequence[str]) -> Iterator[Block]:
    for paragraph in "\n".join(lines).split("\n\n"):
        if text := " ".join(paragraph.split()):
            yield 0, _EARLIER + text


def _bytes(part: EmailMessage) -> bytes:
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _attachment(part: EmailMessage, notes: list[str]) -> list[Attachment]:
    kind = part.get_content_type()
    name = part.get_filename() or _NAMES.get(kind, "")
    if kind == "message/rfc822":
        inner = part.get_payload(0)
        name = name if name.lower().endswith(".eml") else f"{name or 'message'}.eml"
        data = inner.as_bytes(policy=email.policy.compat32)  # type: ignore[union-attr]  # headers as they stand
        return [Attachment(name, data)]
    if kind.startswith("image/") and part.get("Content-ID") and part.get_content_disposition() != "attachment":
        ending = _PICTURES.get(kind)
        return [Attachment(f"picture{ending}", _bytes(part), inline=True)] if ending else []
    return [Attachment(name, _bytes(part))] if name else []
