"""Web pages that are added by their address: public servers alone are asked, wherever a name or a redirect leads."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2
import pytest

from app.api import web_page
from app.api.errors import Refused
from app.api.web_page import fetch_page

PUBLIC, HTML = "93.184.216.34", {"content-type": "text/html; charset=utf-8"}


def fetched(
    address: str,
    answer: Callable[[httpx2.Request], httpx2.Response | Awaitable[httpx2.Response]],
    found: dict[str, list[str]] | None = None,
    file: io.BytesIO | None = None,
) -> str:
    def resolve(host: str) -> list[str]:
        return (found or {}).get(host, [PUBLIC])

    transport = httpx2.MockTransport(answer)  # type: ignore[arg-type]
    return fetch_page(address, 1000, file or io.BytesIO(), resolve=resolve, transport=transport)


def never(request: httpx2.Request) -> httpx2.Response:
    raise AssertionError(f"{request.url} was asked")


def test_a_page_is_asked_at_the_address_that_was_checked_under_its_own_name() -> None:
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.url.host, request.headers["host"], request.extensions["sni_hostname"]))
        return httpx2.Response(200, headers=HTML, stream=httpx2.ByteStream(b"<p>Hello</p>"))

    file = io.BytesIO()
    assert fetched("example.org/a/news.php?id=1", answer, file=file) == "news.html"
    assert file.getvalue() == b"<p>Hello</p>"
    assert asked == [(PUBLIC, "example.org", "example.org")]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.8", "192.168.1.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1%eth0", "::ffff:127.0.0.1"],
)
def test_a_name_with_any_address_that_is_not_public_is_never_asked(address: str) -> None:
    with pytest.raises(Refused, match="not a public server"):
        fetched("https://inside.example", never, {"inside.example": [PUBLIC, address]})


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "ftp://example.org", "https://example.org:8443/", "https://me:it@example.org/", "https://"],
)
def test_other_schemes_ports_and_users_are_refused(address: str) -> None:
    with pytest.raises(Refused):
        fetched(address, never)


def test_a_redirect_is_followed_by_the_same_rules() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        host = request.headers["host"]
        if host == "example.org":
            return httpx2.Response(302, headers={"location": "http://other.example/page.html"})
        return httpx2.Response(200, headers=HTML, stream=httpx2.ByteStream(b"there"))

    assert fetched("example.org", answer) == "page.html"
    with pytest.raises(Refused, match="not a public server"):
        fetched("example.org", answer, {"other.example": ["127.0.0.1"]})
    with pytest.raises(Refused, match="from one address to the next"):
        fetched("example.org", lambda request: httpx2.Response(302, headers={"location": "/again"}))


@pytest.mark.parametrize("address", ["http://other.example:abc/", "https://[::1", "\x00", "https://xn--a/"])
def test_an_address_that_cannot_be_is_a_sentence_also_of_a_redirect(address: str) -> None:
    why = "is not the address of a web page|could not be fetched"
    with pytest.raises(Refused, match=why):
        fetched(address, never, {"xn--a": []})
    with pytest.raises(Refused, match=why):
        fetched("example.org", lambda request: httpx2.Response(302, headers={"location": address}), {"xn--a": []})


def test_what_is_too_long_of_another_kind_or_missing_is_a_sentence() -> None:
    for answer, why in (
        (httpx2.Response(200, headers=HTML, stream=httpx2.ByteStream(b"x" * 1001)), "too long"),
        (
            httpx2.Response(200, headers={"content-type": "video/mp4"}, stream=httpx2.ByteStream(b"x")),
            "video/mp4 cannot be read",
        ),
        (
            httpx2.Response(200, headers=HTML | {"content-encoding": "gzip"}, stream=httpx2.ByteStream(b"x")),
            "compressed",
        ),
        (httpx2.Response(404, stream=httpx2.ByteStream(b"no")), "its server answered 404"),
    ):
        with pytest.raises(Refused, match=why):
            fetched("example.org/film", lambda request, answer=answer: answer)  # type: ignore[misc]
    assert (
        fetched(
            "example.org/notes.md",
            lambda request: httpx2.Response(
                200, headers={"content-type": "text/plain"}, stream=httpx2.ByteStream(b"# A")
            ),
        )
        == "notes.md"
    )


def test_what_comes_is_in_the_file_before_more_is_asked_for() -> None:
    file = io.BytesIO()

    class Pieces(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for count in range(3):
                assert len(file.getvalue()) == 100 * count
                yield b"x" * 100

    fetched("example.org", lambda request: httpx2.Response(200, headers=HTML, stream=Pieces()), file=file)
    assert len(file.getvalue()) == 300


def test_a_server_whose_headers_never_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_page, "MOST_SECONDS", 0.05)

    async def answer(request: httpx2.Request) -> httpx2.Response:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(Refused, match="it took longer than 0.05 s"):
        fetched("example.org", answer)
