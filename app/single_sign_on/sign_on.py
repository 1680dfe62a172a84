"""SignOn: from the button on the page to an account, in two steps with the provider between them.

- Each sign-in has a state, a nonce and a PKCE verifier of its own, which serve once, for ten minutes, and only in the
  browser that began: its cookie is compared.
- An account is found by issuer and subject alone. The first time, an existing account is linked only if its owner asked
  for it while signed in, if the administrator named the subject (`cairn user link`), or if the settings declare that
  the provider's user names are this server's. E-mail addresses never open an account.
"""

from __future__ import annotations

import hmac
import json
import secrets
from typing import Any
from urllib.parse import urlsplit

from app.auth import token_digest
from app.limits.sign_in_limit import network_of
from app.settings import Settings
from app.single_sign_on.identity import Identity, identity_of
from app.single_sign_on.provider import Provider, SignInFailed
from retrieval.accounts import NAME, Accounts
from retrieval.errors import InvalidRequest
from retrieval.replicas import CatalogueValues
from storage.records import User

BEGUN_SECONDS = 600.0
KIND = "sign-in"
MAX_BEGUN, MAX_BEGUN_EACH = 5000, 20
MAX_SAME_NAMES = 100
NAMES_ITSELF = (
    "authorization_response_iss_parameter_supported"  # whether answers say which issuer they are of (RFC 9207)
)
STALE = "This sign-in took too long, was used already, or was begun in another browser. Begin again."
REFUSALS = {
    "access_denied": "The sign-in service did not let you in, or you stopped there.",
    "login_required": "The sign-in service wants you to sign in there first. Begin again.",
    "temporarily_unavailable": "The sign-in service does not answer. Try again in a moment.",
    "server_error": "The sign-in service had a problem. Try again in a moment.",
}


class SignOn:
    """Who gets an account, and what people and groups are called, is up to the settings (`oidc_...`). `address`: the
    origin under which people open this server."""

    def __init__(
        self, provider: Provider, accounts: Accounts, values: CatalogueValues, settings: Settings, *, address: str
    ):
        self.title, self.session_seconds = settings.oidc_title, settings.oidc_session_hours * 3600
        self.address, self._host = address, urlsplit(address).netloc.lower()
        self._provider, self._accounts, self._values, self._settings = provider, accounts, values, settings

    def begin(self, client: str, user_id: str | None = None) -> tuple[str, str]:
        """(the provider's address for this sign-in, secret for the browser's cookie). Raises SignInFailed."""
        state, browser, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        verifier = secrets.token_urlsafe(48)
        address = self._provider.authorization_address(state=state, nonce=nonce, verifier=verifier)
        if self._values.count(KIND) >= MAX_BEGUN:
            raise SignInFailed("Too many people are signing in. Try again in a few minutes.", "too many were begun")
        secret = {"browser": token_digest(browser), "nonce": nonce, "verifier": verifier}
        begun = json.dumps(secret | {"user_id": user_id})  # the provider's answer may reach another server
        # Who begins again and again loses their own older ones, and nobody else's.
        network = network_of(client)
        self._values.put(KIND, token_digest(state), begun, seconds=BEGUN_SECONDS, owner=network, most=MAX_BEGUN_EACH)
        return address, browser

    def complete(self, answer: dict[str, str], browser: str) -> tuple[User, bool]:
        """What the provider had the browser bring: `code` or `error`, `state`, perhaps `iss`. Returns the account, and
        whether it was signed in already, to be linked, so that no session is needed. Raises SignInFailed."""
        begun = self._taken(answer.get("state", ""), browser)
        issuer = answer.get("iss")
        if issuer is None and self._provider.description().get(NAMES_ITSELF) is True:
            raise SignInFailed(STALE, "the answer does not name its issuer")
        if issuer not in (None, self._provider.issuer):
            raise SignInFailed(STALE, f"the answer is of another issuer: {issuer!r}")
        if error := answer.get("error"):
            raise SignInFailed(
                REFUSALS.get(error, "The sign-in service refused. Tell this server's administrator."), error
            )
        if not answer.get("code"):
            raise SignInFailed(STALE, "no code")
        tokens = self._provider.tokens(answer["code"], begun["verifier"])
        identity = identity_of(
            self._provider,
            tokens,
            nonce=begun["nonce"],
            username_claim=self._settings.oidc_username_claim,
            groups_claim=self._settings.oidc_groups_claim,
        )
        self._check_groups(identity)
        account = self._linked(identity, begun["user_id"]) if begun["user_id"] else self._account(identity)
        self._accounts.set_groups(account, identity.groups or ())
        return account, begun["user_id"] is not None

    def is_at(self, host: str) -> bool:
        """Whether a request with this `Host` came to `address`."""
        return host.lower() == self._host

    def is_linked(self, account: User) -> bool:
        return account.subject is not None and account.issuer == self._provider.issuer

    def end_address(self) -> str | None:
        """Where people end their session at the provider; None where it has no such address. Raises SignInFailed."""
        return self._provider.description().get("end_session_endpoint")

    @property
    def client_id(self) -> str:
        return self._provider.client.id

    def _taken(self, state: str, browser: str) -> dict[str, Any]:
        """What was begun under this state; it serves once, whatever comes of it."""
        key = token_digest(state)
        found, _ = self._values.read(KIND, [key])
        begun: dict[str, Any] | None = json.loads(found[key]) if found else None
        if begun is None or not hmac.compare_digest(begun["browser"], token_digest(browser)):
            raise SignInFailed(STALE, "unknown state, too late, or another browser")
        if self._values.take(KIND, key) is None:
            raise SignInFailed(STALE, "used already")
        return begun

    def _check_groups(self, identity: Identity) -> None:
        allowed = allowed_groups(self._settings)
        if allowed and not allowed.intersection(identity.groups or ()):
            raise SignInFailed("Your groups do not open this server. Ask its administrator.", f"{identity.groups}")

    def _linked(self, identity: Identity, user_id: str) -> User:
        """The account whose owner asked for the link while signed in."""
        account, holder = self._accounts.by_id(user_id), self._of(identity)
        if account is None:
            raise SignInFailed(STALE, "the account is gone")
        if holder is not None and holder.id != account.id:
            raise SignInFailed(f"You have another account here already, {holder.name}. Ask the administrator.")
        return self._link(account, identity)

    def _account(self, identity: Identity) -> User:
        account = self._of(identity)
        if account is not None:
            return account
        same = self._accounts.named(identity.names[0]) if identity.names else None
        if same is not None and same.subject is None:
            if self._settings.oidc_link_names and identity.username == same.name:
                return self._link(same, identity)
            raise SignInFailed(
                f"There is an account {same.name} here that is not linked to yours at {self.title}. If it is yours, "
                "sign in with its password and choose "
                f"“Link to {self.title}” in your account. Or ask the administrator.",
                _how_to_link(identity, same.name),
            )
        if not self._settings.oidc_new_accounts:
            raise SignInFailed(
                f"You have no account here. Ask the administrator to link one to you ({identity.subject}).",
                _how_to_link(identity, "NAME"),
            )
        return self._new(identity)

    def _new(self, identity: Identity) -> User:
        """An account without a password. Two people of one name get different ones."""
        names = [name for name in identity.names if NAME.fullmatch(name)] or ["user"]
        for number in range(1, MAX_SAME_NAMES):
            name = names[0] if number == 1 else f"{names[0]}-{number}"
            if self._accounts.named(name) is None:
                try:
                    return self._accounts.create(name, "", issuer=identity.issuer, subject=identity.subject)
                except InvalidRequest:  # somebody else took the name, or this identity, at the same moment
                    if (account := self._of(identity)) is not None:
                        return account
        raise SignInFailed("No name is left for your account. Ask the administrator.", names[0])

    def _link(self, account: User, identity: Identity) -> User:
        try:
            self._accounts.link(account, identity.issuer, identity.subject)
        except InvalidRequest as error:
            raise SignInFailed(
                f"Your account {account.name} is linked to somebody else at {self.title}. Ask the administrator.",
                str(error),
            ) from error
        return self._of(identity) or account

    def _of(self, identity: Identity) -> User | None:
        return self._accounts.of_identity(identity.issuer, identity.subject)


def allowed_groups(settings: Settings) -> frozenset[str]:
    """Of which somebody must be in one, unless it is empty."""
    return frozenset(name.strip() for name in settings.oidc_allowed_groups.split(",") if name.strip())


def _how_to_link(identity: Identity, name: str) -> str:
    return f"`cairn user link {name} --subject {identity.subject}` links an account to this person"
