"""Which version of the readers read a document, and what reading it again would add."""

from __future__ import annotations

VERSION = 2
"""Of all readers together; kept with every text that they give. Texts without one are of version 1."""

_HIDDEN = "hidden and deleted text set aside"
_GAINS = {
    2: {
        "pdf": "forms, comments, attached files, and tables without borders or printed sideways",
        "docx": f"headers, footers, numbering, comments, equations, charts, and {_HIDDEN}",
        "odt": f"headers, footers, numbering, equations, and {_HIDDEN}",
        "pptx": f"SmartArt, charts, the order on the slide, and {_HIDDEN}",
        "xlsx": f"numbers as they are shown, comments, text boxes, and {_HIDDEN}",
        "html": f"values of forms, and {_HIDDEN}",
        "mhtml": f"frames, values of forms, and {_HIDDEN}",
        "md": _HIDDEN,
        "rtf": f"notes, comments, text boxes, and {_HIDDEN}",
        "eml": "pages behind plain stubs, calendars, and quoted replies told apart",
        "msg": "pages behind plain stubs, calendars, and quoted replies told apart",
        "json": "values with their branch",
        "xml": "values with their branch",
        "txt": "its encoding, and columns aligned with spaces",
        "csv": "its encoding",
    }
}
"""By version: what each format gained."""


def gains(kind: str, version: int) -> str:
    """What a document of a format that some version read would gain; "" for nothing."""
    return "; ".join(of[kind] for since, of in _GAINS.items() if since > version and kind in of)


def older_note(kind: str, version: int) -> str:
    """The same as a sentence for whoever looks at the document; "" for nothing."""
    gained = gains(kind, version)
    return f"Read by an older version: read again for {gained} (`cairn repair --reingest`)." if gained else ""
