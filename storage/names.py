"""Names as they are stored: of documents, collections, conversations, and everything else that is shown on one line.

Files and web requests may contain any bytes. A lone surrogate cannot be written as UTF-8, NUL ends a text in
PostgreSQL, control characters steer terminals, and direction characters make "exe.pdf" of "fdp.exe". They are removed
here, where names enter the catalogue.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable

LONGEST_NAME = 500
TURNING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Embeddings, overrides and isolates of the bidirectional algorithm; Arabic and Hebrew are written without them."""
_JOINERS = "\u200c\u200d"  # invisible, but Persian and emoji are written with them


def clean_name(name: str) -> str:
    """One line without control, direction, private-use and other invisible characters; at most `LONGEST_NAME` long.

    What ends a line becomes a space, a lone surrogate U+FFFD. May be empty.
    """
    kept = " ".join("".join(map(_clean, name)).split())
    return kept if len(kept) <= LONGEST_NAME else kept[: LONGEST_NAME - 1] + "…"


def _clean(character: str) -> str:
    match unicodedata.category(character):
        case "Cc" | "Zl" | "Zp":
            return " " if character.isspace() else ""
        case "Cs":
            return "\ufffd"
        case "Cf" | "Co" | "Cn":
            return character if character in _JOINERS else ""
    return character


def encodable(text: str) -> str:
    """The text as UTF-8 and every database can keep it: without NUL, and with a question mark for lone surrogates.
    Without what turns the order of letters about, too: nobody shall read another text than was said."""
    return text.replace("\0", "").translate(dict.fromkeys(TURNING)).encode("utf-8", "replace").decode("utf-8")


def unknown_name(given: Iterable[str], known: Iterable[str], what: str) -> str:
    """A sentence that names the first of the `given` names that is not `known`, and what may have been meant; "" if all
    are known. `what` names what they should be: "key of this request"."""
    names = sorted(known)
    for name in sorted(set(given) - set(names)):
        near = difflib.get_close_matches(name, names, n=1)
        meant = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names) or 'none'}."
        return f"{clean_name(name)[:100]!r} is no {what}. {meant}"
    return ""
