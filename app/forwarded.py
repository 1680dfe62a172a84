"""Headers in which a reverse proxy says whom it speaks for: believed of declared proxies, removed from all others."""

from __future__ import annotations

from collections.abc import Container

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_NAMES = (b"forwarded", b"x-real-ip")


class ForwardedHeaders:
    """Outermost ASGI middleware. `proxies`: addresses and networks, separated by commas; "" for none."""

    def __init__(self, app: ASGIApp, proxies: str = ""):
        self._app = app
        self._believing = ProxyHeadersMiddleware(app, trusted_hosts=proxies) if proxies else None  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if self._believing is not None and client and client[0] in self._believing.trusted_hosts:
            await self._believing(scope, receive, send)  # type: ignore[arg-type]
            return
        if "headers" in scope:
            own = [(name, value) for name, value in scope["headers"] if not _forwarded(name)]
            scope = {**scope, "headers": own}
        await self._app(scope, receive, send)


def _forwarded(name: bytes) -> bool:
    return name.startswith(b"x-forwarded-") or name in _NAMES


def declared(proxies: str) -> Container[str]:
    """The proxies as a container of addresses."""

    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        """Only the list is wanted."""

    return ProxyHeadersMiddleware(nothing, trusted_hosts=proxies).trusted_hosts if proxies else ()  # type: ignore[arg-type]
