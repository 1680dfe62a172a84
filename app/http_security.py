"""Checks every request before any route sees it, and limits what a browser may do with a response.

- `AccessMiddleware`: host, origin, path, size and credentials; the caller is noted as `principal_of(connection)`.
- `PageHeaders`: strict content security policy with one nonce a page, nothing foreign, nothing framed.
- `RequestShares`: each user has a few requests at work at a time; further ones wait, and do not hold up those of
  others. Routes run in a shared pool of threads, which forty slow requests of one user would fill.
- Knows no documents and no questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Container
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.auth import SESSION_COOKIE, SESSION_SECONDS, Authenticator, is_loopback
from app.limits.sign_in_limit import TooManyAttempts, network_of
from app.operations.requests import NOTED
from storage.errors import CatalogueUnavailable
from storage.records import ADMINISTRATOR, Principal

log = logging.getLogger("cairn.api")

INTERNAL = "Something went wrong on this machine. See the server's log."
UNAVAILABLE = "The library cannot be used at the moment. The server's log says why; try again later."
PRINCIPAL = "cairn.principal"
NOBODY = Principal("")  # on public paths: no account has this id, so it sees nothing that is anybody's

SIGN_ON_PATH = "/login/sso"
PUBLIC_PATHS = frozenset(
    {"/healthz", "/readyz", "/login", "/favicon.ico", "/ui/login.css", "/ui/mark.svg", SIGN_ON_PATH}
    | {f"{SIGN_ON_PATH}/{step}" for step in ("callback", "end")}
)
GRADIO_STREAM = "/gradio_api/queue/data"
# All that Gradio's own page needs. Its other routes (files, URL proxy, code editing, monitoring, history) stay shut.
GRADIO_PATHS = re.compile(
    r"/(config/?|theme\.css|favicon\.ico|manifest\.json|robots\.txt|(assets|static|svelte)(/[!-.0-~]{1,200}){1,8})?"
    rf"|{GRADIO_STREAM}/?|/gradio_api/(queue/join/?|heartbeat/[!-.0-~]{{1,200}}|startup-events|info/?|cancel|reset/?|theme\.css)"
)
OWN_PATHS = re.compile(
    r"/(api/v1|ui|mcp)(/.*)?|/v1/(models|chat/completions)|/(healthz|readyz|metrics|login(/sso(/callback|/end)?)?|logout|docs)"
)
METRICS_PATH = "/metrics"
MAX_PUBLIC_BODY_BYTES = 10_000
_LENGTH = re.compile(r"[0-9]{1,18}")  # `isdigit` takes a superscript for a number
FOR_GOOD = "private, max-age=31536000, immutable"
"""Cache-Control of files with a digest in their name."""
LOOK_SECONDS = 1.0
"""Between two checks that the caller is still let in, while a response is sent."""
_SHUT = {"error": {"code": "not_signed_in", "message": "You are not signed in any more."}}
SHUT_EVENT = f"event: error\ndata: {json.dumps(_SHUT)}\n\n".encode()
UPLOAD_PATHS = frozenset({"/api/v1/documents", "/api/v1/uploads", "/api/v1/estimate", "/api/v1/bundle"})


def principal_of(connection: HTTPConnection) -> Principal:
    """The caller, as `AccessMiddleware` found out. Never guessed: KeyError for a request that did not pass it."""
    principal = connection.scope[PRINCIPAL]
    assert isinstance(principal, Principal)
    return principal


def person_of(connection: HTTPConnection) -> str:
    """Whose share of the machine a request uses: the account's, and without accounts the address's."""
    return principal_of(connection).user_id or network_of(client_of(connection))


def client_of(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client else "unknown"


def set_session(response: Response, session: str, connection: HTTPConnection, seconds: float) -> None:
    response.set_cookie(
        SESSION_COOKIE,
        session,
        max_age=int(seconds),
        httponly=True,
        samesite="strict",
        secure=connection.url.scheme == "https",
    )


def refusal(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """The one shape of an error in this app."""
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status, headers=headers)


class ForwardedHeaders(ProxyHeadersMiddleware):
    """Outermost ASGI middleware. `trusted_hosts`: addresses and networks, separated by commas; "" for none. What others
    send in these headers is removed."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        client = scope.get("client")
        if "headers" in scope and not (client and client[0] in self.trusted_hosts):
            own = [(name, value) for name, value in scope["headers"] if not _forwarded(name)]
            scope = {**scope, "headers": own}
        await super().__call__(scope, receive, send)  # type: ignore[arg-type]


def _forwarded(name: bytes) -> bool:
    return name.startswith(b"x-forwarded-") or name in (b"forwarded", b"x-real-ip")


def declared_proxies(proxies: str) -> Container[str]:
    """The addresses and networks of the proxies, for `app.limits.connections`."""
    return ProxyHeadersMiddleware(None, trusted_hosts=proxies).trusted_hosts  # type: ignore[arg-type,return-value]


class AccessMiddleware:
    """Host, origin, path, size and credentials of every request, in that order.

    `host` is the address served on: on loopback, where the owner's token alone opens, only local names are accepted as
    Host, which stops DNS rebinding; with a password or accounts, a reverse proxy on this machine may serve any name.
    """

    def __init__(
        self, app: ASGIApp, *, authenticator: Authenticator, host: str, max_body_bytes: int, max_upload_bytes: int
    ):
        self._app, self._authenticator = app, authenticator
        self._local = is_loopback(host)
        self._max_body_bytes, self._max_upload_bytes = max_body_bytes, max_upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return
        connection = HTTPConnection(scope)
        noted = scope.get(NOTED, {})
        noted["address"] = client_of(connection)
        found = self._at_sight(connection, scope["method"])
        if found is None:
            found = await self._authenticator.in_background(self._identified, connection, scope["method"])
        if isinstance(found, Response):
            await found(scope, receive, send)
            return
        scope[PRINCIPAL] = found
        noted["account"] = found.name
        if found is not NOBODY:
            send = self._while_let_in(connection, found, send)
        if GRADIO_PATHS.fullmatch(scope["path"]):
            scope = _of_gradio(scope)
        with contextlib.suppress(_Shut):
            await self._limited(scope, receive, send, connection)

    def _while_let_in(self, connection: HTTPConnection, found: Principal, send: Send) -> Send:
        """`send` for a long response: it ends once the caller is not let in any more."""
        looked, events = time.monotonic(), False

        async def checked(message: Message) -> None:
            nonlocal looked, events
            if message["type"] == "http.response.start":
                events = Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream")
            elif message.get("more_body") and time.monotonic() - looked >= LOOK_SECONDS:
                looked = time.monotonic()
                if await self._authenticator.in_background(self._let_in_now, connection) != found:
                    await send({"type": "http.response.body", "body": SHUT_EVENT if events else b""})
                    raise _Shut
            await send(message)

        return checked

    def _let_in_now(self, connection: HTTPConnection) -> Principal | None:
        """The present owner of the request's token or cookie."""
        token = _bearer(connection.headers)
        if not token:
            return self._authenticator.principal_of_session(connection.cookies.get(SESSION_COOKIE))
        if connection.scope["path"] == METRICS_PATH and self._authenticator.opens_metrics(token):
            return ADMINISTRATOR
        return self._authenticator.owner_of_token(token)

    def _at_sight(self, connection: HTTPConnection, method: str) -> Response | Principal | None:
        """The result where no look into the catalogue is needed; else None."""
        headers, path = connection.headers, connection.scope["path"]
        if "transfer-encoding" in headers and "content-length" in headers:  # a proxy could see two requests in one
            return refusal(400, "two_lengths", "A request has one length.", {"Connection": "close"})
        if not _same_origin(headers, method):
            return refusal(403, "cross_site", "The request came from another web site and was refused.")
        if not (OWN_PATHS.fullmatch(path) or GRADIO_PATHS.fullmatch(path)):
            return refusal(404, "not_found", "Not found.")
        return NOBODY if path in PUBLIC_PATHS and not self._other_host(headers) else None

    def _other_host(self, headers: Headers) -> bool:
        return self._local and not is_loopback(_host_name(headers))

    def _identified(self, connection: HTTPConnection, method: str) -> Response | Principal:
        """The caller, or why there is none."""
        headers = connection.headers
        if self._other_host(headers) and self._authenticator.on_this_machine:
            return refusal(
                421, "wrong_host", "This server answers on this machine only. Open http://127.0.0.1 instead."
            )
        if connection.scope["path"] in PUBLIC_PATHS:
            return NOBODY
        token = _bearer(headers)
        if token and connection.scope["path"] == METRICS_PATH and self._authenticator.opens_metrics(token):
            return ADMINISTRATOR
        carried = connection.query_params.get("token", "") if connection.scope["path"] == "/" else ""
        try:
            if carried and self._authenticator.principal_of_token(carried, client_of(connection)) == ADMINISTRATOR:
                return self._without_the_token(connection, carried)
            if token:
                principal = self._authenticator.principal_of_token(token, client_of(connection))
            else:
                principal = self._authenticator.principal_of_session(connection.cookies.get(SESSION_COOKIE))
        except TooManyAttempts as wait:
            return too_many(wait)
        if principal is not None:
            return principal
        if method in ("GET", "HEAD") and "text/html" in headers.get("accept", ""):
            return RedirectResponse("/login", status_code=303)
        how = "Sign in first, or send a token"
        how += " (`cairn token` prints it)." if self._authenticator.on_this_machine else "."
        return refusal(401, "not_signed_in", how, {"WWW-Authenticate": "Bearer"})

    def _without_the_token(self, connection: HTTPConnection, token: str) -> Response:
        """The page again, with a session in place of the token in its address, where histories would keep it."""
        session = self._authenticator.session_of_token(token)
        response = RedirectResponse("/", status_code=303)
        if session is not None:  # None: another thread made the first account just now
            set_session(response, session, connection, SESSION_SECONDS)
        return response

    def _limit_of(self, path: str) -> int:
        """Bytes of the body. Public paths take one without signing in."""
        if path in PUBLIC_PATHS:
            return MAX_PUBLIC_BODY_BYTES
        return self._max_upload_bytes if path in UPLOAD_PATHS else self._max_body_bytes

    async def _limited(self, scope: Scope, receive: Receive, send: Send, connection: HTTPConnection) -> None:
        limit = self._limit_of(scope["path"])
        declared = connection.headers.get("content-length", "0")
        too_large = refusal(413, "too_large", f"The request is too large: at most {limit / 1e6:,g} MB are accepted.")
        if not _LENGTH.fullmatch(declared) or int(declared) > limit:
            await too_large(scope, receive, send)
            return
        received, refused = 0, False

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            # To the route it looks as if the sender had hung up; whatever it makes of that is replaced below.
            return {"type": "http.disconnect"} if received > limit else message

        async def answered(message: Message) -> None:
            nonlocal refused
            if received <= limit:
                await send(message)
            elif not refused:
                refused = True
                await too_large(scope, receive, send)

        try:
            await self._app(scope, counted, answered)
        except ClientDisconnect:
            if received > limit and not refused:
                await too_large(scope, receive, send)


def _of_gradio(scope: Scope) -> Scope:
    """Without what nobody means: other pages, links to states, and where Gradio is to believe that it is served."""
    query = scope["query_string"] if scope["path"].startswith(GRADIO_STREAM) else b""
    own = [(name, value) for name, value in scope["headers"] if name != b"x-gradio-server"]
    return {**scope, "query_string": query, "headers": own}


class _Shut(OSError):
    """Ends a response as a reader that went away would."""


def _bearer(headers: Headers) -> str:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


def too_many(wait: TooManyAttempts) -> Response:
    seconds = max(1, round(wait.wait_seconds))
    return refusal(429, "too_many_attempts", "Too many wrong attempts. Wait a moment.", {"Retry-After": str(seconds)})


def _host_name(headers: Headers) -> str:
    return _split(f"//{headers.get('host', '')}").hostname or ""


def _split(address: str) -> SplitResult:
    """Of whatever was sent; what is none ("//[") has no parts."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _same_origin(headers: Headers, method: str) -> bool:
    origin = headers.get("origin")
    if origin is not None:
        return (place := _split(origin).netloc) != "" and place == headers.get("host", "")
    if headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none"):
        return True
    # Following a link from elsewhere is fine; loading anything from here into another site's page is not.
    return method in ("GET", "HEAD") and headers.get("sec-fetch-mode") == "navigate"


def content_policy(nonce: str) -> str:
    """Scripts: our own files and the page's inline ones. Styles: Gradio sets them inline. Nothing from elsewhere."""
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; "
        "form-action 'self'; base-uri 'self'; frame-ancestors 'none'; object-src 'none'"
    )


class PageHeaders:
    """Security headers on every response; a nonce on every script of an HTML page that Gradio rendered."""

    def __init__(self, app: ASGIApp, *, rewrite: Callable[[bytes], bytes] = lambda page: page):
        """`rewrite`: what is made of an HTML page."""
        self._app, self._rewrite = app, rewrite

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        start: Message | None = None
        sent = False
        page = bytearray()

        async def with_headers(message: Message) -> None:
            nonlocal start, sent
            sent = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                self._set(headers, nonce, scope["path"])
                if headers.get("content-type", "").startswith("text/html"):
                    start = message  # held back: the length is known only after the rewrite
                    return
                await send(message)
            elif start is None:
                await send(message)
            else:
                page.extend(message.get("body", b""))
                if not message.get("more_body"):
                    body = _own_scripts_only(self._rewrite(bytes(page)), nonce)
                    MutableHeaders(scope=start)["content-length"] = str(len(body))
                    await send(start)
                    await send({"type": "http.response.body", "body": body})

        try:
            await self._app(scope, receive, with_headers)
        except Exception as error:  # here and not in the framework's handler, which would answer without these headers
            causes: list[BaseException] = [error]
            while (cause := causes[-1].__cause__) is not None:  # Starlette wraps it for each app that it passes
                causes.append(cause)
            refused = causes[-1]
            if sent and isinstance(refused, HTTPException):  # of Gradio, amid a stream that it had begun
                log.info("a stream was ended: %s", refused.detail)
                await with_headers({"type": "http.response.body", "body": b""})
                return
            if sent:
                raise
            away = next((one for one in causes if isinstance(one, CatalogueUnavailable)), None)
            if away is None:
                log.exception("request failed")
            else:  # when it was asked who asks
                log.error("%s", away)
            answer = refusal(500, "internal", INTERNAL) if away is None else refusal(503, "unavailable", UNAVAILABLE)
            await answer(scope, receive, with_headers)

    def _set(self, headers: MutableHeaders, nonce: str, path: str) -> None:
        headers["Content-Security-Policy"] = content_policy(nonce)
        headers["X-Content-Type-Options"] = "nosniff"
        headers["X-Frame-Options"] = "DENY"
        headers["Referrer-Policy"] = "same-origin"  # without any, forms would say "Origin: null"
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers["Permissions-Policy"] = "camera=(), microphone=(), geolocation=(), payment=(), usb=()"
        if path.startswith(("/assets/", "/svelte/")):  # their names carry digests
            headers["Cache-Control"] = FOR_GOOD
        elif path.startswith("/api/") and not headers.get("cache-control", "").startswith("private"):
            headers["Cache-Control"] = "no-store"


_FOREIGN_META = re.compile(rb"<meta\b[^>]*\b(?:og:|twitter:)[^>]*>", re.IGNORECASE)
_SCRIPT = re.compile(rb"<script(?=[\s>])", re.IGNORECASE)


def _own_scripts_only(page: bytes, nonce: str) -> bytes:
    return _SCRIPT.sub(b'<script nonce="' + nonce.encode() + b'"', _FOREIGN_META.sub(b"", page))


AT_ONCE, WAITING = 8, 100
_SHARED = ("/api/v1/", "/mcp", "/v1/models")
_PAGE_STREAMS = ("/gradio_api/heartbeat/", GRADIO_STREAM)  # of the settings page: one or two a tab
MOST_PAGE_STREAMS = 40
_STREAMS = frozenset({"/api/v1/ask", "/api/v1/events"})  # open for long; they count those of a person themselves


class RequestShares:
    """ASGI middleware inside `AccessMiddleware`, for the requests that take threads. Beyond `WAITING`: status 429."""

    def __init__(self, app: ASGIApp):
        self._app = app
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._present: Counter[str] = Counter()
        self._pages: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http" and path.startswith(_PAGE_STREAMS):
            await self._stream(scope, receive, send)
            return
        if scope["type"] != "http" or not path.startswith(_SHARED) or path in _STREAMS:
            await self._app(scope, receive, send)
            return
        person = person_of(HTTPConnection(scope))
        if self._present[person] >= AT_ONCE + WAITING:
            await _too_many("Too many of your requests are at work. Wait for their answers.")(scope, receive, send)
            return
        self._present[person] += 1
        try:
            async with self._turns.setdefault(person, asyncio.Semaphore(AT_ONCE)):
                await self._app(scope, receive, send)
        finally:
            self._present[person] -= 1
            if not self._present[person]:
                del self._present[person], self._turns[person]

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        person = person_of(HTTPConnection(scope))
        if self._pages[person] >= MOST_PAGE_STREAMS:
            await _too_many("Too many pages of yours are open. Close some.")(scope, receive, send)
            return
        self._pages[person] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._pages[person] -= 1
            self._pages = +self._pages


def _too_many(message: str) -> JSONResponse:
    return refusal(429, "too_many_requests", message, {"Retry-After": "2"})
