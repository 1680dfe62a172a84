"""Fetches a web page by its address, once, and adds it like an uploaded file.

Only public servers are asked, whatever a name resolves to and wherever it redirects:

- http and https on their own ports, without a user in the address and without the proxy of the environment;
- every address that the host's name has must be public, and the connection goes to the very address that was checked;
- redirects are followed one by one by the same rules, a few at most; time and size are bounded, and what comes goes
  into a file at once.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import PurePosixPath
from typing import BinaryIO
from urllib.parse import unquote

import httpx2

from app.api.errors import Refused
from retrieval.bounded_http import PLAIN
from retrieval.errors import ExtractError
from retrieval.extraction.formats import format_of

MOST_REDIRECTS = 5
TIMEOUT_SECONDS = 10.0
MOST_SECONDS = 60.0
_PORTS = {"http": 80, "https": 443}
_SUFFIX_OF = {"text/html": ".html", "application/xhtml+xml": ".html", "application/pdf": ".pdf", "text/plain": ".txt"}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

Resolve = Callable[[str], list[str]]


def addresses_of(host: str) -> list[str]:
    """What a name resolves to. Raises OSError."""
    return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})


def fetch_page(
    address: str,
    most_bytes: int,
    file: BinaryIO,
    *,
    resolve: Resolve = addresses_of,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> str:
    """Writes the web page at a public address to `file`; returns a file name with the ending of its kind. Raises
    `Refused` for an address that is not allowed, and for what cannot be fetched or read."""
    url = _url(address)
    try:
        return asyncio.run(_fetched(url, most_bytes, file, resolve, transport))
    except TimeoutError as error:
        raise _refused(url, f"it took longer than {MOST_SECONDS:g} s") from error


async def _fetched(
    url: httpx2.URL, most_bytes: int, file: BinaryIO, resolve: Resolve, transport: httpx2.AsyncBaseTransport | None
) -> str:
    """Raises `TimeoutError` after `MOST_SECONDS`, whatever it waits for then: each byte of a header may come late."""
    async with (
        asyncio.timeout(MOST_SECONDS),
        httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False, transport=transport) as client,
    ):
        for _ in range(MOST_REDIRECTS + 1):
            async with _asked(client, url, resolve) as response:
                if response.status_code in _REDIRECTS and "location" in response.headers:
                    url = _url(response.headers["location"], url)
                    continue
                if response.status_code != 200:
                    raise _refused(url, f"its server answered {response.status_code}")
                name = _name(url, response.headers.get("content-type", ""))
                await _write(response, most_bytes, file)
                return name
    raise _refused(url, "it leads from one address to the next")


async def _write(response: httpx2.Response, most_bytes: int, file: BinaryIO) -> None:
    """Raises `ReadError` for a longer or a compressed response."""
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise httpx2.ReadError("the response is compressed, although it was requested uncompressed")
    left = most_bytes
    async for piece in response.aiter_raw():
        left -= len(piece)
        if left < 0:
            raise httpx2.ReadError("the response is too long")
        file.write(piece)


def _url(address: str, page: httpx2.URL | None = None) -> httpx2.URL:
    """`page`: the one that redirects to this address."""
    given = address.strip()
    try:
        url = page.join(given) if page else httpx2.URL(given if "://" in given else f"https://{given}")
    except httpx2.InvalidURL as error:
        raise Refused(422, "invalid_request", f"{given} is not the address of a web page.") from error
    if url.scheme not in _PORTS or not url.host:
        raise Refused(
            422, "invalid_request", f"{given} is not the address of a web page: it begins with https:// or http://."
        )
    if url.userinfo or url.port not in (None, _PORTS[url.scheme]):
        raise Refused(422, "invalid_request", f"{given} names a user or a port. Only public web pages are fetched.")
    return url


@asynccontextmanager
async def _asked(client: httpx2.AsyncClient, url: httpx2.URL, resolve: Resolve) -> AsyncIterator[httpx2.Response]:
    """The response of the server behind an address that was checked."""
    host = url.host
    checked = _public(url, resolve)
    request = client.build_request(
        "GET",
        url.copy_with(host=checked),
        headers={**PLAIN, "Host": url.netloc.decode("ascii"), "Accept": "text/html,*/*;q=0.5", "User-Agent": "Cairn"},
        extensions={"sni_hostname": host},
    )
    try:
        response = await client.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()
    except httpx2.HTTPError as error:
        raise _refused(url, str(error) or type(error).__name__) from error


def _public(url: httpx2.URL, resolve: Resolve) -> str:
    try:
        found = resolve(url.host)
    except (OSError, UnicodeError) as error:
        raise _refused(url, "there is no such server, or no network") from error
    for each in found:
        address = ipaddress.ip_address(each.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None) or address
        if not mapped.is_global or mapped.is_multicast:
            raise Refused(
                422,
                "invalid_request",
                f"{url.host} is not a public server. Only public web pages are fetched: save this one as a file.",
            )
    if not found:
        raise _refused(url, "there is no such server")
    return found[0]


def _name(url: httpx2.URL, content_type: str) -> str:
    """Raises `Refused` for a kind that cannot be read."""
    kind = content_type.partition(";")[0].strip().lower()
    last = PurePosixPath(unquote(url.path)).name
    suffix = _SUFFIX_OF.get(kind)
    if suffix in (None, ".txt"):
        try:
            format_of(last)
            return last
        except ExtractError as error:
            if suffix is None:
                raise Refused(
                    415, "unknown_kind", f"{url}: {kind or 'a file without a kind'} cannot be read."
                ) from error
    stem = re.sub(r"\.(?:html?|xhtml|php|aspx?|pdf|txt)$", "", last, flags=re.IGNORECASE) or url.host
    return f"{stem}{suffix}"


def _refused(url: httpx2.URL, why: str) -> Refused:
    return Refused(422, "unreachable_page", f"{url.host} could not be fetched: {why}.")
