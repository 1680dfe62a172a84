"""Headers in which a reverse proxy says whom it speaks for: believed of declared proxies, removed from all others."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_NAMES = (b"forwarded", b"x-real-ip")


class ForwardedHeaders:
    """Outermost ASGI middleware. `proxies`: addresses and networks, separated by commas; "" for none."""

    def __init__(self, app: ASGIApp, proxies: str = ""):
        self._app = app
        self._believing = ProxyHeadersMiddleware(app, trusted_hosts=proxies) if proxies else None  # type: ignore[arg-type]

    def believes(self, address: str) -> bool:
        return self._believing is not None and address in self._believing.trusted_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if self._believing is not None and client and self.believes(client[0]):
            await self._believing(scope, receive, send)  # type: ignore[arg-type]
            return
        if "headers" in scope:
            own = [(name, value) for name, value in scope["headers"] if not _forwarded(name)]
            scope = {**scope, "headers": own}
        await self._app(scope, receive, send)


def _forwarded(name: bytes) -> bool:
    return name.startswith(b"x-forwarded-") or name in _NAMES


class DeclaredProxies:
    """A container of addresses, for `app.limits.connections`."""

    def __init__(self, proxies: str):
        self._believing = ForwardedHeaders(_nothing, proxies)

    def __contains__(self, address: object) -> bool:
        return isinstance(address, str) and self._believing.believes(address)


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """No app: only the list is wanted."""
