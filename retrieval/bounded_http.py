"""Bounds what another server may make this program read: so many bytes, and nothing that unpacks to more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx2

PLAIN = {"Accept-Encoding": "identity"}
"""Headers of a request whose response must not be compressed."""


def at_most(most_bytes: int) -> dict[str, list[Callable[[httpx2.Response], None]]]:
    """`event_hooks` for a client: a longer or a compressed response ends with `httpx2.ReadError`."""

    def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise httpx2.ReadError("the response is compressed, although it was requested uncompressed")
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _Bounded(response.stream, most_bytes)

    return {"response": [bound]}


class _Bounded(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, most_bytes: int):
        self._stream, self._most_bytes = stream, most_bytes

    def __iter__(self) -> Iterator[bytes]:
        left = self._most_bytes
        for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise httpx2.ReadError("the response is too long")
            yield piece

    def close(self) -> None:
        self._stream.close()
