"""Authentication: accounts, or one password and one token for the whole server; sessions.

- Without accounts the server has the password and the token of its settings, and without these the owner's token, which
  is in the home (`owner_token`). Whoever signs in is its one owner. Nobody gets in without a secret.
- With accounts each user signs in by name, each program by its user's token; password and token of the server open
  nothing any more. Accounts are read anew for every request: a new password or a removed account counts at once.
- Sessions are in `retrieval.replicas`: all servers of a library know them, and a restart does not end them. Cookie and
  password together prove one; neither can be derived from what is stored.
- Sessions opened by single sign-on (`app.single_sign_on`) end with the link between account and identity.
- Passwords are hashed in separate threads, for each address in turn, so nothing else waits for them. Accounts are
  looked up there too (`in_background`): a slow catalogue does not stop the event loop.
- No network, no documents: `storage.catalogue.permissions` decides what a `Principal` may see.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import hmac
import ipaddress
import json
import os
import secrets
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from app.errors import SettingsError
from app.limits.fair_queue import FairQueue, QueueFull
from app.limits.sign_in_limit import Attempt, SignInLimit, TooManyAttempts, network_of
from app.settings import Settings
from retrieval.accounts import Accounts
from retrieval.errors import InvalidRequest
from retrieval.replicas import CatalogueValues
from storage.records import ADMINISTRATOR, Principal, User

P = ParamSpec("P")
T = TypeVar("T")

SESSION_COOKIE = "cairn_session"
SESSION_SECONDS = 7 * 24 * 3600
MAX_SESSIONS_EACH = 1000  # of one account, or of all who know the one password
KIND = "session"
TOKEN_FILE = "token"
PASSWORD_SALT = b"cairn server"  # of the server's password, in memory only: its hash is the same at all servers
HASHES_AT_ONCE = 2  # argon2 takes 64 MiB a time
HASHES_WAITING, HASHES_WAITING_EACH = 64, 8
LOOKUPS_AT_ONCE = 2
MIN_TOKEN_LENGTH = 16
MIN_PASSWORD_LENGTH = 8
MAX_PASSWORD_LENGTH = 1024


class WrongPassword(Exception):
    """Wrong name or password."""


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def for_this_machine_only(settings: Settings) -> bool:
    """Whether all users are at this machine, as far as the settings tell."""
    return is_loopback(settings.host) and not settings.proxies


def check_binding(host: str, *, password: str | None, token: str | None, accounts: bool = False) -> None:
    """Refuse to be reachable from other machines without a password, a token or accounts (single sign-on makes them).
    Raises ValueError saying what to do."""
    if is_loopback(host) or password or token or accounts:
        return
    raise ValueError(
        f"Serving on {host} would let everybody on the network read the library, so a password is needed. "
        f"Set one, for example CAIRN_PASSWORD={fresh_password()} (made for you just now), or a token for programs with "
        "CAIRN_TOKEN, or make accounts with `cairn user add NAME`, or stay on this machine with --host 127.0.0.1."
    )


def fresh_password() -> str:
    """A random password of about 95 bits, easy to read aloud."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(alphabet) for _ in range(5)) for _ in range(4))


def fresh_token() -> tuple[str, str]:
    """A random bearer token of 256 bits, and the digest under which it is kept."""
    token = f"cairn_{secrets.token_urlsafe(32)}"
    return token, token_digest(token)


def owner_token(home: Path) -> str:
    """The token in the home's file `token`, made if there is none: only the owner of the home can read it.

    Raises SettingsError for a file that others may read, or that holds no token.
    """
    path = home / TOKEN_FILE
    if not path.exists():
        made, name = tempfile.mkstemp(prefix=f".{TOKEN_FILE}-", dir=home)  # mode 0600
        try:
            with os.fdopen(made, "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
            with contextlib.suppress(FileExistsError):  # another process was first; a link never shows half a file
                os.link(name, path)
        finally:
            os.unlink(name)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise SettingsError(
            f"Others may read {path}, which opens this library. Remove it; the next start makes a new one."
        )
    token = path.read_text(encoding="ascii", errors="replace").strip()
    if len(token) < MIN_TOKEN_LENGTH:
        raise SettingsError(f"{path} holds no token. Remove it; the next start makes a new one.")
    return token


def token_digest(token: str) -> str:
    """Hash of a token, in hex, as it is stored; a fast one, as nobody can guess a token."""
    return _digest(token).hex()


def hash_password(password: str) -> str:
    """argon2. Raises InvalidRequest for a password that is too short or too long."""
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        raise InvalidRequest(f"A password has {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH} characters.")
    return PasswordHasher().hash(password)


@functools.cache
def _decoy() -> str:
    """The hash of no password, checked where no account has the name, so that both take the same time."""
    return PasswordHasher().hash(secrets.token_urlsafe(32))


class Authenticator:
    """Signs users and programs in.

    `password` (of the server) may be plain or an argon2 hash (`$argon2...`). With `single_sign_on` users are asked for
    their names even before there are accounts: signing in makes the first. `on_this_machine`: `token` is the owner's,
    and the server is for this machine alone. `values`: shared by all servers of the library.
    """

    def __init__(
        self,
        *,
        password: str | None = None,
        token: str | None = None,
        accounts: Accounts,
        values: CatalogueValues,
        on_this_machine: bool = False,
        single_sign_on: bool = False,
        metrics_token: str | None = None,
    ):
        if password and not password.startswith("$argon2") and len(password) < MIN_PASSWORD_LENGTH:
            raise ValueError(f"The password is too short: use {MIN_PASSWORD_LENGTH} characters or more.")
        if token and len(token) < MIN_TOKEN_LENGTH:
            raise ValueError(f"The token is too short: use {MIN_TOKEN_LENGTH} characters or more.")
        if metrics_token and len(metrics_token) < MIN_TOKEN_LENGTH:
            raise ValueError(f"The token for /metrics is too short: use {MIN_TOKEN_LENGTH} characters or more.")
        self._hasher = PasswordHasher()
        self._metrics_digest = _digest(metrics_token) if metrics_token else None
        self._hash = None
        if password:
            given = password.startswith("$argon2")
            self._hash = password if given else self._hasher.hash(password, salt=PASSWORD_SALT)
        self._token_digest = _digest(token) if token else None
        self._accounts, self._on_this_machine, self._single_sign_on = accounts, on_this_machine, single_sign_on
        self._values = values
        self._hashing = FairQueue(
            "cairn-sign-in", at_once=HASHES_AT_ONCE, each_waiting=HASHES_WAITING_EACH, waiting=HASHES_WAITING
        )
        self._lookups = ThreadPoolExecutor(LOOKUPS_AT_ONCE, thread_name_prefix="cairn-accounts")
        self._decoy = _decoy()
        self._attempts = SignInLimit(self._values)

    async def in_background(self, look: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that looks up accounts, in threads for this alone."""
        return await asyncio.get_running_loop().run_in_executor(self._lookups, functools.partial(look, *args, **kwargs))

    @property
    def has_accounts(self) -> bool:
        """Whether people sign in by name: there are accounts, or single sign-on will make them."""
        return self._single_sign_on or self._accounts.any

    @property
    def on_this_machine(self) -> bool:
        """Whether the owner's token alone opens the server."""
        return self._on_this_machine and not self.has_accounts

    @property
    def has_password(self) -> bool:
        """Whether people sign in with a password, or with the token."""
        return self._hash is not None or self.has_accounts

    def log_in(self, password: str, client: str, name: str = "") -> Future[str]:
        """Correct password, or the server's token -> new session cookie value, or WrongPassword. Raises TooManyAttempts
        at once."""
        attempt = self._attempts.begin(name.strip().lower() if self.has_accounts else "", client)
        return self._in_turn(client, lambda: self._log_in(password, name, attempt))

    def check_password(self, name: str, password: str, client: str) -> Future[User]:
        """The account of a signed-in user, if this is their password (asked for before it is changed); else
        WrongPassword. Raises TooManyAttempts at once."""
        attempt = self._attempts.begin(name, client)
        return self._in_turn(client, lambda: self._check_password(name, password, attempt))

    def _in_turn(self, client: str, task: Callable[[], T]) -> Future[T]:
        try:
            return self._hashing.submit(network_of(client), task)
        except QueueFull:
            raise TooManyAttempts(1.0) from None

    def _log_in(self, password: str, name: str, attempt: Attempt) -> str:
        session = self.session_of_token(password)
        if session is None:
            if self.has_accounts:
                account = self._checked_account(name, password)
                session = self._opened(account, account.password_hash, SESSION_SECONDS)
            elif self._hash is not None and self._verified(self._hash, password):
                session = self._opened(None, self._hash, SESSION_SECONDS)
            else:
                raise WrongPassword
        self._attempts.succeeded(attempt)
        return session

    def session_of_token(self, token: str) -> str | None:
        """Open a session for the server's token; returns its cookie's value. It ends when the token changes."""
        if self._token_digest is None or not self._is_token(token):
            return None
        return self._opened(None, self._token_digest.hex(), SESSION_SECONDS)

    def open_session(self, account: User, seconds: float) -> str:
        """Open a session for somebody who signed in elsewhere; returns its cookie's value."""
        return self._opened(account, account.password_hash, seconds, [account.issuer, account.subject])

    def _opened(
        self, account: User | None, password_hash: str, seconds: float, identity: list[str | None] | None = None
    ) -> str:
        """It ends with another password; with `identity` (issuer, subject), also with another identity."""
        session, user_id = secrets.token_urlsafe(32), account.id if account else None
        kept = {"user": user_id, "proof": _proof(session, password_hash), "identity": identity}
        key, owner = token_digest(session), user_id or ""
        self._values.put(KIND, key, json.dumps(kept), seconds=seconds, owner=owner, most=MAX_SESSIONS_EACH)
        return session

    def _check_password(self, name: str, password: str, attempt: Attempt) -> User:
        account = self._checked_account(name, password)
        self._attempts.succeeded(attempt)
        return account

    def _checked_account(self, name: str, password: str) -> User:
        """An unknown name, or an account without a password, takes as long as a wrong password: nobody learns which."""
        account = self._accounts.named(name)
        expected = account.password_hash if account else ""
        if not self._verified(expected or self._decoy, password) or account is None or not expected:
            raise WrongPassword
        return account

    def log_out(self, session: str) -> None:
        self._values.take(KIND, token_digest(session))

    def principal_of_session(self, session: str | None) -> Principal | None:
        """None if the session has ended or there never was one."""
        if not session:
            return None
        found, _ = self._values.read(KIND, [token_digest(session)])
        if not found:
            return None
        kept = json.loads(found[token_digest(session)])
        if kept["user"] is None:
            secrets_of_all = (self._hash, self._token_digest.hex() if self._token_digest else None)
            opens = not self.has_accounts and any(_proves(session, each, kept["proof"]) for each in secrets_of_all)
            return ADMINISTRATOR if opens else None
        account = self._accounts.by_id(kept["user"])
        if account is None or not _proves(session, account.password_hash, kept["proof"]):
            return None
        if kept["identity"] not in (None, [account.issuer, account.subject]):
            return None
        return Principal(account.id, account.name)

    def principal_of_token(self, token: str, client: str) -> Principal | None:
        """A right token always opens. Raises TooManyAttempts for a wrong one where this client guesses too fast."""
        principal = self.owner_of_token(token)
        if principal is None:
            self._attempts.wrong_token(client)
        return principal

    def owner_of_token(self, token: str) -> Principal | None:
        """One look into the catalogue for a user's token."""
        account = self._accounts.of_token(token_digest(token))
        if account is not None:
            return Principal(account.id, account.name)
        return ADMINISTRATOR if self._is_token(token) else None

    def _is_token(self, token: str) -> bool:
        """Whether it is the server's token, and opens the server."""
        right = self._token_digest is not None and hmac.compare_digest(_digest(token), self._token_digest)
        return right and not self.has_accounts

    def opens_metrics(self, token: str) -> bool:
        """Whether it is the token for /metrics."""
        return self._metrics_digest is not None and hmac.compare_digest(_digest(token), self._metrics_digest)

    def _verified(self, expected: str, password: str) -> bool:
        try:
            return len(password) <= MAX_PASSWORD_LENGTH and self._hasher.verify(expected, password)
        except (VerificationError, InvalidHashError):
            return False


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _proof(session: str, password_hash: str) -> str:
    """Whoever reads it can find out neither."""
    return hmac.new(session.encode(), password_hash.encode(), hashlib.sha256).hexdigest()


def _proves(session: str, password_hash: str | None, proof: str) -> bool:
    return password_hash is not None and hmac.compare_digest(_proof(session, password_hash), proof)
