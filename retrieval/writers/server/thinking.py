"""What a reasoning model writes before its answer is left out."""

from __future__ import annotations

OPENING, CLOSING = "<think>", "</think>"


class VisibleText:
    """Takes text piece by piece and gives what may be shown of it: all but a `<think>` part at the beginning."""

    def __init__(self) -> None:
        self._held, self._thinking, self._decided = "", False, False

    def feed(self, piece: str) -> str:
        """What became visible by this piece."""
        if self._decided:
            return piece
        self._held += piece
        if not self._thinking:
            begun = self._held.lstrip()
            if OPENING.startswith(begun[: len(OPENING)]) and len(begun) < len(OPENING):
                return ""
            self._thinking = begun.startswith(OPENING)
            if not self._thinking:
                return self._release(self._held)
        _, closed, after = self._held.partition(CLOSING)
        return self._release(after.lstrip()) if closed and after.strip() else ""

    def rest(self) -> str:
        """What is still held back at the end, unless it is part of the thinking."""
        return "" if self._thinking or self._decided else self._release(self._held)

    def _release(self, text: str) -> str:
        self._decided, self._held = True, ""
        return text
