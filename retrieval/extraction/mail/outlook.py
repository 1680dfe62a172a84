"""E-mails that Outlook saved (.msg)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from oxmsg import Message as OutlookMessage

from retrieval.errors import ExtractError
from retrieval.extraction.document import Aside, ExtractedDocument
from retrieval.extraction.limits import ExtractLimits, damage_named
from retrieval.extraction.mail.attachments import Attachment, Message, from_message, one_line
from retrieval.extraction.mail.messages import told_apart
from retrieval.extraction.markup import clean_text, read_html, text_bytes
from retrieval.extraction.parts import Block

_OVERHEAD = 50  # bytes for each of text: attachments are in the file
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_IN_THE_TEXT = re.compile(r"image\d{3}\.(?:png|jpe?g)")  # as Outlook names pictures within the text


def extract_msg(
    path: Path, limits: ExtractLimits, password: str | None = None, recognised: Path | None = None
) -> ExtractedDocument:
    """The head, the text and the attachments of an e-mail. Raises ExtractError."""
    return from_message(load_msg(path, limits), path, limits, recognised)


def load_msg(path: Path, limits: ExtractLimits) -> Message:
    """Raises ExtractError."""
    if not text_bytes(path, limits, overhead=_OVERHEAD).startswith(_OLE):
        raise ExtractError("The file is named .msg but was not saved by Outlook.")
    with damage_named("Outlook message"):
        return _message(OutlookMessage.load(str(path)))


def _message(found: Any) -> Message:
    if (found.message_class or "").upper().startswith(("IPM.NOTE.SMIME", "IPM.NOTE.RPMSG")) and not found.body:
        raise ExtractError("This e-mail is encrypted. Save it decrypted and add it again.")
    recipients = [f"{one.name} <{one.email_address}>" if one.name != one.email_address else one.name
                  for one in found.recipients]  # fmt: skip
    sent = found.sent_date
    head = {
        "Subject": found.subject or "",
        "From": found.sender or "",
        "To": ", ".join(recipients),
        "Date": sent.strftime("%Y-%m-%d %H:%M") if sent is not None else "",
    }
    notes: list[str] = []
    attachments = []
    for one in found.attachments:
        name, data = one.file_name or "", one.file_bytes
        if data is None:
            notes.append(f"The attachment {name or 'without a name'} was not read: it is a message or an object.")
        else:
            attachments.append(Attachment(name, data, inline=bool(_IN_THE_TEXT.fullmatch(name))))
    asides: list[Aside] = []
    lines = {name: one_line(text) for name, text in head.items()}
    return Message(lines, _blocks(found, asides), attachments, notes, asides)


def _blocks(found: Any, asides: list[Aside]) -> list[Block]:
    if found.body and found.body.strip():
        return list(told_apart(clean_text(found.body).strip("\n")))
    if found.html_body:
        data = found.html_body.encode() if isinstance(found.html_body, str) else found.html_body
        page = read_html(data)
        asides += page.asides
        return page.blocks
    return []
