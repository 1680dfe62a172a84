"""How a question is put where nobody says otherwise.

The one place of these values: the facade, the command line, HTTP, MCP and the web page take them from here
(tests/app/test_defaults.py).
"""

from __future__ import annotations

from typing import Final, Literal

Outcome = Literal["found", "perhaps", "not_found"]
"""Of a question: an answer, a guess (the best candidates, to be shown as such), or nothing but the nearest passages."""

DecidedBy = Literal["attention", "reader", "search", "writer"]
"""Who chose the words of an answer: the attention of the model that wrote it, a reader that marked a sentence, search
alone, or a writer."""

Space = Literal["memory", "candidates"]
"""What attention chose from: all that is in scope, or the candidates of the search."""

DEFAULT_K = 8
"""Blocks that may be read at a time; passages of a search."""
DEFAULT_QUOTE: bool | None = None
"""Word for word from the documents (True), in the model's own words (False), or as suits the model (None)."""
DEFAULT_MAX_TOKENS: int | None = None
"""As suits who writes."""
QUOTED_TOKENS = 128
"""Longest answer of the model that searches, in its tokens."""
WRITTEN_TOKENS = 512
"""Longest answer of a writer, in its tokens."""
DEFAULT_POSITIONS: Final = "library"
"""Where blocks stand that attention reads; see `model.attention.positions`."""
DEFAULT_VOTERS: Final = "group"
"""Who chooses the blocks; see `model.attention.selection.SelectionPolicy`."""


def longest_answer(max_tokens: int | None, *, written: bool) -> int:
    """What `max_tokens` is where nobody says."""
    if max_tokens is not None:
        return max_tokens
    return WRITTEN_TOKENS if written else QUOTED_TOKENS
