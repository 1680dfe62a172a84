"""Bounds what another server may make this program read: so many bytes, and nothing that unpacks to more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import httpx2

PLAIN = {"Accept-Encoding": "identity"}
"""Headers of a request whose response must not be compressed."""


def at_most(most_bytes: int) -> dict[str, list[Callable[[Any], None]]]:
    """`event_hooks` for a client of httpx or httpx2: a longer or a compressed response ends with the client's
    `ReadError`."""

    def bound(response: Any) -> None:
        client = httpx2 if isinstance(response, httpx2.Response) else httpx
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise client.ReadError("the response is compressed, although it was requested uncompressed")
        pieces = response.stream

        def counted() -> Iterator[bytes]:
            left = most_bytes
            for piece in pieces:
                left -= len(piece)
                if left < 0:
                    raise client.ReadError("the response is too long")
                yield piece

        response.stream = _stream(client.SyncByteStream, counted(), pieces.close)

    return {"response": [bound]}


def _stream(kind: Any, pieces: Iterator[bytes], close: Callable[[], None]) -> Any:
    """Of the class that the client insists on."""
    made = type("Stream", (kind,), {"__iter__": lambda self: pieces, "close": lambda self: close()})
    return made()
