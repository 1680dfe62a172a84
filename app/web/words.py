"""What the page shares with the server, as one of its modules (`words.js`): words that the command line and exports use
too, and the mark as an address of its own content."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from app.web.gradio_styles import sheet_names
from retrieval.types.answers import (
    FOR_WRITERS,
    FROM_ITSELF,
    ONE_SENTENCE,
    OUTCOMES,
    QUOTED_INSTEAD,
    SET_ASIDE,
    WHO_CHOSE,
    WRITER_SET_UP,
)

_MARK = Path(__file__).parent / "static" / "mark.svg"


def page_words() -> str:
    """JavaScript: what `retrieval.types.answers` says, the mark, and which style sheets of Gradio are there."""
    values = {
        "OUTCOMES": OUTCOMES,
        "WHO_CHOSE": WHO_CHOSE,
        "FROM_ITSELF": FROM_ITSELF,
        "FOR_WRITERS": FOR_WRITERS,
        "ONE_SENTENCE": ONE_SENTENCE,
        "WRITER_SET_UP": WRITER_SET_UP,
        "QUOTED_INSTEAD": QUOTED_INSTEAD,
        "SET_ASIDE": SET_ASIDE,
        "MARK": mark_address(),
        "FRAME_STYLES": [f"./assets/{name}" for name in sheet_names()],
    }
    return "".join(f"export const {name} = {json.dumps(value)};\n" for name, value in values.items())


def mark_address() -> str:
    """Cairn's mark as an address of its own content, which nobody has to fetch."""
    return "data:image/svg+xml;base64," + base64.b64encode(_MARK.read_bytes()).decode()
