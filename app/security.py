"""Who may talk to the web app, and what a browser may do with what it gets.

- `Access`: password (argon2), bearer token, sessions, rate limit. No files, no network.
- `Guard`: ASGI middleware; host, origin, path, size and credentials of a request are checked before any route sees it.
- `PageHeaders`: ASGI middleware; strict content security policy with one nonce a page, nothing foreign, nothing framed.
- Knows no documents and no questions: everybody who is let in sees the whole library.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("cairn.api")

INTERNAL = "Something went wrong on this machine. The server's log says what."
SESSION_COOKIE = "cairn_session"
SESSION_SECONDS = 7 * 24 * 3600
MAX_SESSIONS = 1000
FREE_ATTEMPTS = 5
ATTEMPT_WINDOW_SECONDS = 300.0
MAX_TRACKED_CLIENTS = 10_000
MIN_TOKEN_LENGTH = 16
MIN_PASSWORD_LENGTH = 8

PUBLIC_PATHS = frozenset({"/healthz", "/login", "/favicon.ico", "/ui/login.css", "/ui/mark.svg"})
# All that Gradio's own page needs. Its other routes (files, URL proxy, code editing, monitoring, history) stay shut.
GRADIO_PATHS = re.compile(
    r"/(config/?|theme\.css|favicon\.ico|manifest\.json|robots\.txt|(assets|static|svelte)/.*)?"
    r"|/gradio_api/(queue/(join|data)/?|heartbeat/[^/]+|startup-events|info/?|cancel|reset/?|theme\.css)"
)
OWN_PATHS = re.compile(r"/(api/v1|ui|mcp)(/.*)?|/(healthz|login|logout|docs)")
UPLOAD_PATHS = frozenset({"/api/v1/documents", "/api/v1/uploads", "/api/v1/estimate"})


class WrongPassword(Exception):
    """The password does not match."""


class TooManyAttempts(Exception):
    """This client must wait."""

    def __init__(self, wait_seconds: float):
        super().__init__(wait_seconds)
        self.wait_seconds = wait_seconds


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_binding(host: str, *, password: str | None, token: str | None) -> None:
    """Refuse to be reachable from other machines without a password or token. Raises ValueError saying what to do."""
    if is_loopback(host) or password or token:
        return
    raise ValueError(
        f"Serving on {host} would let everybody on the network read the library, so a password is needed. "
        f"Set one, for example CAIRN_PASSWORD={fresh_password()} (made for you just now), or a token for programs with "
        "CAIRN_TOKEN, or stay on this machine with --host 127.0.0.1."
    )


def fresh_password() -> str:
    """A random password of about 95 bits, easy to read aloud."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(alphabet) for _ in range(5)) for _ in range(4))


class AttemptLimit:
    """Counts failures per client in a sliding window; beyond `FREE_ATTEMPTS` a client waits, longer each time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._failures, self._lock = clock, dict[str, list[float]](), threading.Lock()

    def check(self, client: str) -> None:
        """Raises TooManyAttempts while `client` has to wait."""
        with self._lock:
            now = self._clock()
            recent = [at for at in self._failures.get(client, ()) if now - at < ATTEMPT_WINDOW_SECONDS]
            if len(recent) < FREE_ATTEMPTS:
                return
            wait = min(2.0 ** (len(recent) - FREE_ATTEMPTS + 2), ATTEMPT_WINDOW_SECONDS)
            if now - recent[-1] < wait:
                raise TooManyAttempts(wait - (now - recent[-1]))

    def failed(self, client: str) -> None:
        with self._lock:
            now = self._clock()
            if client not in self._failures and len(self._failures) >= MAX_TRACKED_CLIENTS:
                self._failures = {
                    key: times for key, times in self._failures.items() if now - times[-1] < ATTEMPT_WINDOW_SECONDS
                }
            recent = [at for at in self._failures.get(client, ()) if now - at < ATTEMPT_WINDOW_SECONDS]
            self._failures[client] = [*recent, now][-32:]

    def succeeded(self, client: str) -> None:
        with self._lock:
            self._failures.pop(client, None)


class Access:
    """Password and token of this server, and the sessions that it opened.

    `password` may be plain or an argon2 hash (`$argon2...`). Neither password nor token: everybody who reaches the
    server is let in, which `check_binding` allows on loopback only. Sessions live in memory: a restart asks again.
    """

    def __init__(
        self, *, password: str | None = None, token: str | None = None, clock: Callable[[], float] = time.monotonic
    ):
        if password and not password.startswith("$argon2") and len(password) < MIN_PASSWORD_LENGTH:
            raise ValueError(f"The password is too short: use {MIN_PASSWORD_LENGTH} characters or more.")
        if token and len(token) < MIN_TOKEN_LENGTH:
            raise ValueError(f"The token is too short: use {MIN_TOKEN_LENGTH} characters or more.")
        self._hasher = PasswordHasher()
        self._hash = None
        if password:
            self._hash = password if password.startswith("$argon2") else self._hasher.hash(password)
        self._token_digest = _digest(token) if token else None
        self._clock, self._lock, self._sessions = clock, threading.Lock(), dict[bytes, float]()
        self._verifying = threading.Semaphore(2)  # argon2 takes 64 MiB a time
        self.attempts = AttemptLimit(clock)

    @property
    def required(self) -> bool:
        return self._hash is not None or self._token_digest is not None

    @property
    def has_password(self) -> bool:
        return self._hash is not None

    def log_in(self, password: str, client: str) -> str:
        """Correct password -> new session cookie value. Raises WrongPassword or TooManyAttempts."""
        self.attempts.check(client)
        if self._hash is None or len(password) > 1024:
            raise WrongPassword
        try:
            with self._verifying:
                self._hasher.verify(self._hash, password)
        except (VerificationError, InvalidHashError) as error:
            self.attempts.failed(client)
            raise WrongPassword from error
        self.attempts.succeeded(client)
        session = secrets.token_urlsafe(32)
        with self._lock:
            now = self._clock()
            self._sessions = {key: until for key, until in self._sessions.items() if until > now}
            while len(self._sessions) >= MAX_SESSIONS:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[_digest(session)] = now + SESSION_SECONDS
        return session

    def log_out(self, session: str) -> None:
        with self._lock:
            self._sessions.pop(_digest(session), None)

    def session_is_valid(self, session: str | None) -> bool:
        if not session:
            return False
        with self._lock:
            return self._sessions.get(_digest(session), 0.0) > self._clock()

    def token_is_valid(self, token: str, client: str) -> bool:
        """Raises TooManyAttempts when this client guessed too often."""
        self.attempts.check(client)
        valid = self._token_digest is not None and hmac.compare_digest(_digest(token), self._token_digest)
        if not valid:
            self.attempts.failed(client)
        return valid


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def client_of(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client else "unknown"


def refusal(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """The one shape of an error in this app."""
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status, headers=headers)


class Guard:
    """Host, origin, path, size and credentials of every request, in that order.

    `host` is the address served on: on loopback without a password only local names are accepted as Host, which stops
    DNS rebinding; with one, a reverse proxy on this machine may serve any name.
    """

    def __init__(self, app: ASGIApp, *, access: Access, host: str, max_body_bytes: int, max_upload_bytes: int):
        self._app, self._access = app, access
        self._local_only = is_loopback(host) and not access.required
        self._max_body_bytes, self._max_upload_bytes = max_body_bytes, max_upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return
        connection = HTTPConnection(scope)
        problem = self._refuse(connection, scope["method"])
        if problem is not None:
            await problem(scope, receive, send)
            return
        await self._limited(scope, receive, send, connection)

    def _refuse(self, connection: HTTPConnection, method: str) -> Response | None:
        headers, path = connection.headers, connection.scope["path"]
        if self._local_only and not is_loopback(_host_name(headers)):
            return refusal(
                421, "wrong_host", "This server answers on this machine only. Open http://127.0.0.1 instead."
            )
        if not _same_origin(headers, method):
            return refusal(403, "cross_site", "Another web site asked for this, so it was refused.")
        if not (OWN_PATHS.fullmatch(path) or GRADIO_PATHS.fullmatch(path)):
            return refusal(404, "not_found", "There is nothing here.")
        if path in PUBLIC_PATHS or not self._access.required:
            return None
        scheme, _, value = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and value:
            try:
                if self._access.token_is_valid(value.strip(), client_of(connection)):
                    return None
            except TooManyAttempts as wait:
                return too_many(wait)
        elif self._access.session_is_valid(connection.cookies.get(SESSION_COOKIE)):
            return None
        if method in ("GET", "HEAD") and "text/html" in headers.get("accept", "") and self._access.has_password:
            return RedirectResponse("/login", status_code=303)
        return refusal(401, "not_signed_in", "Sign in first, or send a token.", {"WWW-Authenticate": "Bearer"})

    async def _limited(self, scope: Scope, receive: Receive, send: Send, connection: HTTPConnection) -> None:
        limit = self._max_upload_bytes if scope["path"] in UPLOAD_PATHS else self._max_body_bytes
        declared = connection.headers.get("content-length", "0")
        too_large = refusal(413, "too_large", f"The request is too large: at most {limit / 1e6:,.0f} MB are accepted.")
        if not declared.isdigit() or int(declared) > limit:
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
            if received <= limit:
                raise
            if not refused:
                await too_large(scope, receive, send)


def too_many(wait: TooManyAttempts) -> Response:
    seconds = max(1, round(wait.wait_seconds))
    return refusal(429, "too_many_attempts", "Too many wrong attempts. Wait a little.", {"Retry-After": str(seconds)})


def _host_name(headers: Headers) -> str:
    return urlsplit(f"//{headers.get('host', '')}").hostname or ""


def _same_origin(headers: Headers, method: str) -> bool:
    origin = headers.get("origin")
    if origin is not None:
        return urlsplit(origin).netloc == headers.get("host", "")
    if method in ("GET", "HEAD"):
        return True
    return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def content_policy(nonce: str) -> str:
    """Scripts: our own files and the page's inline ones. Styles: Gradio sets them inline. Nothing from elsewhere."""
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; "
        "form-action 'self'; base-uri 'self'; frame-ancestors 'none'; object-src 'none'"
    )


class PageHeaders:
    """Security headers on every response; a nonce on every script of an HTML page that Gradio rendered."""

    def __init__(self, app: ASGIApp):
        self._app = app

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
                    body = _own_scripts_only(bytes(page), nonce)
                    MutableHeaders(scope=start)["content-length"] = str(len(body))
                    await send(start)
                    await send({"type": "http.response.body", "body": body})

        try:
            await self._app(scope, receive, with_headers)
        except Exception:  # here and not in the framework's handler, which would answer without these headers
            if sent:
                raise
            log.exception("request failed")
            await refusal(500, "internal", INTERNAL)(scope, receive, with_headers)

    def _set(self, headers: MutableHeaders, nonce: str, path: str) -> None:
        headers["Content-Security-Policy"] = content_policy(nonce)
        headers["X-Content-Type-Options"] = "nosniff"
        headers["X-Frame-Options"] = "DENY"
        headers["Referrer-Policy"] = "same-origin"  # without any, forms would say "Origin: null"
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers["Permissions-Policy"] = "camera=(), microphone=(), geolocation=(), payment=(), usb=()"
        if path.startswith("/api/") and "cache-control" not in headers:
            headers["Cache-Control"] = "no-store"


_FOREIGN_META = re.compile(rb"<meta\b[^>]*\b(?:og:|twitter:)[^>]*>", re.IGNORECASE)
_SCRIPT = re.compile(rb"<script(?=[\s>])", re.IGNORECASE)


def _own_scripts_only(page: bytes, nonce: str) -> bytes:
    return _SCRIPT.sub(b'<script nonce="' + nonce.encode() + b'"', _FOREIGN_META.sub(b"", page))


def sse(event: str, payload: object) -> bytes:
    """One server-sent event; the payload is JSON on one line."""
    return f"event: {event}\ndata: {json.dumps(payload, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()
