"""A provider of OpenID Connect that really runs: discovery, authorization code with PKCE, signed tokens, user info.

A test says who sits at the browser (`person`), and how the provider misbehaves (`claims`, `sign`, `described`).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode

from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.app.serving import served

CLIENT_ID, CLIENT_SECRET = "cairn", "a secret of the client"
ALGORITHMS = ["RS256", "RS384", "ES256", "HS256", "none"]


@functools.cache
def made_key(name: str, number: int = 0) -> RSAKey:
    """Another one for each name and number; made once, which takes a while."""
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"})


class ProviderServer:
    def __init__(self) -> None:
        self.issuer = ""
        self.keys = [made_key("first")]
        self.person: dict[str, Any] = {"sub": "1", "preferred_username": "ann", "groups": ["water"]}
        self.described: dict[str, Any] = {}
        self.claims: Callable[[dict[str, Any]], dict[str, Any]] = lambda claims: claims
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        self.user_info: dict[str, Any] | None = None
        self.error = ""
        self.asked: Counter[str] = Counter()
        self.codes: dict[str, dict[str, str]] = {}

    def signed(self, claims: dict[str, Any], **header: Any) -> str:
        key = self.keys[-1]
        return jwt.encode({"alg": "RS256", "kid": key.kid, **header}, claims, key, algorithms=ALGORITHMS)

    def app(self) -> Starlette:
        routes = [
            Route("/.well-known/openid-configuration", self._description),
            Route("/keys", self._keys),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
            Route("/userinfo", self._user_info),
        ]
        return Starlette(routes=routes)

    async def _description(self, request: Request) -> Response:
        self.asked["description"] += 1
        said = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "end_session_endpoint": f"{self.issuer}/end",
            "authorization_response_iss_parameter_supported": True,
        }
        return JSONResponse(said | self.described)

    async def _keys(self, request: Request) -> Response:
        self.asked["keys"] += 1
        return JSONResponse({"keys": [key.as_dict(private=False) for key in self.keys]})

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["client_id"] == CLIENT_ID and asked["response_type"] == "code"
        assert "openid" in asked["scope"].split() and asked["code_challenge_method"] == "S256"
        back = {"state": asked["state"], "iss": self.issuer}
        if self.error:
            back |= {"error": self.error, "error_description": "<script>alert(1)</script>"}
        else:
            back["code"] = secrets.token_urlsafe(16)
            self.codes[back["code"]] = asked
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(back)}", status_code=303)

    async def _token(self, request: Request) -> Response:
        self.asked["token"] += 1
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        asked = self.codes.pop(form.get("code", ""), None)
        basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".replace(" ", "%20").encode()).decode()
        plain = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        known = request.headers.get("authorization") in (f"Basic {basic}", f"Basic {plain}")
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or not known:
            return JSONResponse({"error": "invalid_grant" if known else "invalid_client"}, status_code=400)
        if challenge != asked["code_challenge"] or form.get("redirect_uri") != asked["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "exp": now + 300, "iat": now, "nonce": asked["nonce"]}
        token = self.sign(self.claims(claims | self.person))
        return JSONResponse({"access_token": "access", "token_type": "Bearer", "id_token": token})

    async def _user_info(self, request: Request) -> Response:
        self.asked["userinfo"] += 1
        assert request.headers["authorization"] == "Bearer access"
        return JSONResponse(self.user_info or {"sub": self.person["sub"]})


@contextmanager
def running_provider() -> Iterator[ProviderServer]:
    provider = ProviderServer()
    with served(provider.app()) as address:
        provider.issuer = address
        yield provider
