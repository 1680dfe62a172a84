"""The words that the page shares with the command line and exports, as one of its modules: `/ui/words.js`."""

from __future__ import annotations

import json

from retrieval.types.outcomes import OUTCOMES, READ_ONCE_MORE


def page_words() -> str:
    """JavaScript: what `retrieval.types.outcomes` says."""
    values = {"OUTCOMES": OUTCOMES, "READ_ONCE_MORE": READ_ONCE_MORE}
    return "".join(f"export const {name} = {json.dumps(value)};\n" for name, value in values.items())
