"""A provider of OpenID Connect: its own description, its keys, its token endpoint.

- Asked only when somebody signs in, only at the addresses that its description at the configured issuer names.
- Every answer is limited in time and size; redirects are not followed; https, but for a provider on this machine.
- The description and the keys are kept for an hour. A token with an unknown key has the keys fetched again, at most
  every half minute: so new keys count at once, and nobody can make this server ask all the time.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import OAuth2Client
from joserfc.errors import JoseError
from joserfc.jwk import Key, KeySet

from app.auth import is_loopback
from retrieval.bounded_http import PLAIN, at_most

TIMEOUT_SECONDS = 10.0
KEPT_SECONDS = 3600.0
KEYS_AGAIN_SECONDS = 30.0
AGAIN_SECONDS = 10.0  # after a failure
MAX_ANSWER_BYTES = 1_000_000
ADDRESSES = {
    "authorization_endpoint": True,
    "token_endpoint": True,
    "jwks_uri": True,
    "userinfo_endpoint": False,
    "end_session_endpoint": False,
}
"""Those of a description that are used, and whether it must have them."""


class SignInFailed(Exception):
    """Why somebody could not sign in, in words for them. `detail`: for the log."""

    def __init__(self, message: str, detail: str = ""):
        super().__init__(message)
        self.detail = detail


@dataclass(frozen=True)
class Client:
    """What this server is to the provider. `secret` None: a public client, which PKCE alone protects."""

    id: str
    secret: str | None
    redirect_uri: str
    scopes: str


class Provider:
    """`issuer` as configured; its description must state exactly that. Threads may share it."""

    def __init__(self, issuer: str, client: Client, *, clock: Callable[[], float] = time.monotonic):
        self.issuer, self.client, self._clock = issuer, client, clock
        self._lock = threading.Lock()
        self._described: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, list[Key]] | None = None
        self._failed_at = float("-inf")

    def description(self) -> dict[str, Any]:
        """What `/.well-known/openid-configuration` says; its `ADDRESSES` were checked. Raises SignInFailed where the
        provider does not answer, or is another one."""
        with self._lock:
            now = self._clock()
            if self._described is None or now - self._described[0] > KEPT_SECONDS:
                if now - self._failed_at < AGAIN_SECONDS:
                    raise _silent("it failed a moment ago")
                try:
                    self._described = now, self._fetch_description()
                except SignInFailed:
                    self._failed_at = now
                    raise
            return self._described[1]

    def signing_keys(self, *, unknown: bool = False) -> list[Key]:
        """The provider's keys for signatures. `unknown`: a token names a key that was not among them, so they are
        fetched again. Raises SignInFailed."""
        uri = self.description()["jwks_uri"]
        with self._lock:
            age = float("inf") if self._keys is None else self._clock() - self._keys[0]
            if age > (KEYS_AGAIN_SECONDS if unknown else KEPT_SECONDS):
                self._keys = self._clock(), _key_list(self._get(uri))
            assert self._keys is not None
            return self._keys[1]

    def authorization_address(self, *, state: str, nonce: str, verifier: str) -> str:
        """Where the browser goes to sign in. Raises SignInFailed."""
        with self._client() as client:
            address, _ = client.create_authorization_url(
                self.description()["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
            )
            return str(address)

    def tokens(self, code: str, verifier: str) -> dict[str, Any]:
        """What the code is exchanged for. Raises SignInFailed."""
        try:
            with self._client() as client:
                token = client.fetch_token(self.description()["token_endpoint"], code=code, code_verifier=verifier)
        except (AuthlibBaseError, httpx2.HTTPError, ValueError, LookupError, TypeError, AttributeError) as error:
            # authlib looks into whatever JSON comes
            raise SignInFailed("The sign-in service did not accept this sign-in. Try again.", str(error)) from error
        if not isinstance(token.get("id_token"), str):
            raise SignInFailed("The sign-in service did not say who you are.", "no id_token")
        return dict(token)

    def user_info(self, access_token: str) -> dict[str, Any]:
        """More claims about whom the token is of; empty where the provider has no such address. Raises SignInFailed."""
        endpoint = self.description().get("userinfo_endpoint")
        return {} if endpoint is None else self._get(endpoint, {"Authorization": f"Bearer {access_token}"})

    def _client(self) -> OAuth2Client:
        secret = self.client.secret
        method = "none" if secret is None else "client_secret_basic"
        accepted = self.description().get("token_endpoint_auth_methods_supported", [method])
        if secret is not None and isinstance(accepted, list) and method not in accepted:
            method = "client_secret_post"
        return OAuth2Client(
            self.client.id, secret, token_endpoint_auth_method=method, scope=self.client.scopes,
            redirect_uri=self.client.redirect_uri, code_challenge_method="S256", response_type="code", **_bounds(),
        )  # fmt: skip

    def _fetch_description(self) -> dict[str, Any]:
        said = self._get(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if said.get("issuer") != self.issuer:
            raise _wrong(f"it calls itself {said.get('issuer')!r}, not {self.issuer!r}")
        for name, needed in ADDRESSES.items():
            address = said.get(name)
            if (needed or address is not None) and not (isinstance(address, str) and trustworthy(address)):
                raise _wrong(f"its {name} is {address!r}")
        return said

    def _get(self, address: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """A JSON object."""
        try:
            with httpx2.Client(**_bounds()) as client:
                answer = client.get(address, headers={"Accept": "application/json", **(headers or {})})
        except httpx2.HTTPError as error:
            raise _silent(f"{address}: {error}") from error
        if answer.status_code != 200:
            raise _silent(f"{address}: status {answer.status_code}")
        try:
            said = json.loads(answer.content)
        except ValueError as error:
            raise _wrong(f"{address}: no JSON") from error
        if not isinstance(said, dict):
            raise _wrong(f"{address}: no JSON object")
        return said


@cache
def _bounds() -> dict[str, Any]:
    """Of every client. Whom to trust is read once, since reading takes as long as asking does."""
    return {
        "timeout": TIMEOUT_SECONDS,
        "follow_redirects": False,
        "trust_env": False,
        "verify": httpx2.create_ssl_context(trust_env=False),
        "headers": PLAIN,
        "event_hooks": at_most(MAX_ANSWER_BYTES),
    }


def trustworthy(address: str) -> bool:
    """https, or a server on this machine."""
    parts = urlsplit(address)
    local = parts.scheme == "http" and is_loopback(parts.hostname or "")
    return bool(parts.hostname) and parts.username is None and (parts.scheme == "https" or local)


def _key_list(said: dict[str, Any]) -> list[Key]:
    keys = said.get("keys")
    usable = [one for one in keys if isinstance(one, dict) and one.get("use") != "enc" and one.get("kty") != "oct"] if (
        isinstance(keys, list)
    ) else []  # fmt: skip
    try:
        return list(KeySet.import_key_set({"keys": usable}))
    except (JoseError, ValueError, KeyError, TypeError) as error:
        raise _wrong(f"its keys cannot be used: {error}") from error


def _silent(detail: str) -> SignInFailed:
    return SignInFailed("The sign-in service does not answer. Try again in a moment.", detail)


def _wrong(detail: str) -> SignInFailed:
    return SignInFailed("The sign-in service is not set up as this server expects. Tell its administrator.", detail)
