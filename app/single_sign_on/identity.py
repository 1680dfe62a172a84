"""An ID token and what it says: whether it is meant for this server, this sign-in and this moment, and of whom.

Nothing is believed before its signature was checked with one of the provider's keys, in an algorithm with such a key:
never `none`, never with a shared secret.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from authlib.oidc.core.util import create_half_hash
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import Key

from app.single_sign_on.provider import Provider, SignInFailed
from storage.names import clean_name

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
CLOCK_SKEW_SECONDS = 60
MAX_TOKEN_BYTES = 64_000
MAX_SUBJECT_LENGTH = 255
MAX_GROUPS, MAX_GROUP_LENGTH = 1000, 200


@dataclass(frozen=True)
class Identity:
    """A person as the identity provider describes them. `username`: exactly what it calls them; `names`: what they may
    be called here, best first; `groups` None: it did not say."""

    issuer: str
    subject: str
    username: str
    names: tuple[str, ...]
    groups: tuple[str, ...] | None


def identity_of(
    provider: Provider, tokens: Mapping[str, Any], *, nonce: str, username_claim: str, groups_claim: str | None
) -> Identity:
    """Who signed in, from what their code was exchanged for. Raises SignInFailed."""
    token, access_token = str(tokens["id_token"]), tokens.get("access_token")
    claims = checked_claims(provider, token, nonce=nonce)
    if isinstance(access_token, str) and "at_hash" in claims:
        _check_access_token(token, claims["at_hash"], access_token)
    missing = username_claim not in claims or (groups_claim is not None and groups_claim not in claims)
    if missing and isinstance(access_token, str):
        more = provider.user_info(access_token)
        if more and more.get("sub") != claims["sub"]:
            raise _refused("the user info is of somebody else")
        claims = {**more, **claims}
    username = claims.get(username_claim)
    return Identity(
        provider.issuer,
        claims["sub"],
        username if isinstance(username, str) else "",
        _names(claims, username_claim),
        _groups(claims, groups_claim),
    )


def checked_claims(provider: Provider, token: str, *, nonce: str) -> dict[str, Any]:
    """The claims of an ID token that is signed, meant for this client and this sign-in, and valid now. Raises
    SignInFailed."""
    if len(token) > MAX_TOKEN_BYTES:
        raise _refused("the token is too long")
    try:
        claims = _signed_claims(provider, token)
        jwt.JWTClaimsRegistry(
            leeway=CLOCK_SKEW_SECONDS,
            iss={"essential": True, "value": provider.issuer},
            sub={"essential": True},
            aud={"essential": True, "value": provider.client.id},
            exp={"essential": True},
            iat={"essential": True},
        ).validate(claims)
    except (JoseError, ValueError, KeyError, TypeError) as error:
        raise _refused(str(error)) from error
    if not isinstance(claims.get("nonce"), str) or not hmac.compare_digest(claims["nonce"].encode(), nonce.encode()):
        raise _refused("the nonce is another one")
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if claims.get("azp", None if several else provider.client.id) != provider.client.id:
        raise _refused("the token was issued to another client")
    if not 0 < len(claims["sub"]) <= MAX_SUBJECT_LENGTH:
        raise _refused("the subject is empty or too long")
    return claims


def _signed_claims(provider: Provider, token: str) -> dict[str, Any]:
    """Raises what joserfc raises, SignInFailed without a key."""
    header = jws.extract_compact(token.encode()).headers()
    if header.get("alg") not in ALGORITHMS:
        raise _refused(f"the algorithm {header.get('alg')!r} is not accepted")
    key_id = header.get("kid")
    keys = _named(provider.signing_keys(), key_id) or _named(provider.signing_keys(unknown=True), key_id)
    failure: Exception = _refused(f"no key {key_id!r}")
    for key in keys:
        try:
            return dict(jwt.decode(token, key, algorithms=ALGORITHMS).claims)
        except (JoseError, ValueError, TypeError) as error:  # also a key of another kind than the algorithm's
            failure = error
    raise failure


def _named(keys: list[Key], key_id: object) -> list[Key]:
    return keys if key_id is None else [key for key in keys if key.kid == key_id]


def _check_access_token(token: str, said: object, access_token: str) -> None:
    """`said`: half of the access token's hash, as the ID token states it."""
    expected = create_half_hash(access_token, jws.extract_compact(token.encode()).headers()["alg"])
    if not (isinstance(said, str) and hmac.compare_digest(expected, said.encode())):
        raise _refused("the access token is another one")


def _names(claims: Mapping[str, Any], username: str) -> tuple[str, ...]:
    """In the letters of account names; e-mail addresses up to the sign."""
    found = []
    for claim in dict.fromkeys((username, "preferred_username", "email")):
        value = claims.get(claim)
        plain = re.sub(r"[^a-z0-9._-]+", "-", value.split("@")[0].strip().lower()) if isinstance(value, str) else ""
        plain = plain.strip("._-")[:60]
        if plain and plain not in found:
            found.append(plain)
    return tuple(found)


def _groups(claims: Mapping[str, Any], claim: str | None) -> tuple[str, ...] | None:
    if claim is None or claim not in claims:
        return None
    said = claims[claim]
    names = [said] if isinstance(said, str) else said
    usable = isinstance(names, list) and len(names) <= MAX_GROUPS
    if not usable or not all(isinstance(one, str) and 0 < len(one) <= MAX_GROUP_LENGTH for one in names):
        message = "What the sign-in service said about your groups cannot be used. Tell this server's administrator."
        raise SignInFailed(message, f"{claim} is not a list of at most {MAX_GROUPS} names")
    return tuple(dict.fromkeys(name for name in map(clean_name, names) if name))


def _refused(detail: str) -> SignInFailed:
    return SignInFailed("What the sign-in service said about you was not valid. Try again.", detail)
