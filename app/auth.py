"""Who is asking: accounts, or one password and one token for the whole server; sessions.

- Without accounts the server has one password and one token (settings), or none; whoever is let in is its one owner.
- With accounts each person signs in by name, each program by its user's token; password and token of the server open
  nothing any more. Accounts are read anew for every request: a new password or a removed account counts at once.
- Passwords are hashed in threads of their own, for each address in turn: nothing else waits for them. So are accounts
  looked up (`in_background`): a slow catalogue does not stop the loop that serves everybody.
- No files, no network, no documents: what a `Principal` may see is decided in `storage.catalogue.permissions`.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from cachetools import TTLCache

from app.limits.fair_queue import FairQueue, QueueFull
from app.limits.sign_in_limit import Attempt, SignInLimit, TooManyAttempts, network_of
from retrieval.auth.accounts import Accounts
from retrieval.errors import InvalidRequest, NotFound
from storage.records import ADMINISTRATOR, Principal, User

P = ParamSpec("P")
T = TypeVar("T")

SESSION_COOKIE = "cairn_session"
SESSION_SECONDS = 7 * 24 * 3600
MAX_SESSIONS = 1000
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


def for_this_machine_only(host: str, proxies: str) -> bool:
    """Whether everybody who is let in sits at this machine, as far as the settings tell."""
    return is_loopback(host) and not proxies


def check_binding(host: str, *, password: str | None, token: str | None, accounts: bool = False) -> None:
    """Refuse to be reachable from other machines without a password, a token or accounts. Raises ValueError saying what
    to do."""
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


def token_digest(token: str) -> str:
    """A fast hash suffices for a secret that nobody can guess."""
    return _digest(token).hex()


def hash_password(password: str) -> str:
    """argon2. Raises InvalidRequest for a password that is too short or too long."""
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        raise InvalidRequest(f"A password has {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH} characters.")
    return PasswordHasher().hash(password)


@dataclass(frozen=True)
class _Session:
    user_id: str | None
    password_hash: str
    """With which it was opened: another password ends it."""


class Authenticator:
    """Signs people and programs in.

    `password` (of the server) may be plain or an argon2 hash (`$argon2...`). `required` is False only while there are
    neither accounts nor secrets and `host` is this machine's own: then everybody who reaches the server is its owner.
    Sessions live in memory: a restart asks again.
    """

    def __init__(
        self,
        *,
        password: str | None = None,
        token: str | None = None,
        accounts: Accounts | None = None,
        host: str = "127.0.0.1",
        metrics_token: str | None = None,
        clock: Callable[[], float] = time.monotonic,
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
            self._hash = password if password.startswith("$argon2") else self._hasher.hash(password)
        self._token_digest = _digest(token) if token else None
        self._accounts, self._local = accounts, is_loopback(host)
        self._lock = threading.Lock()
        self._sessions: TTLCache[bytes, _Session] = TTLCache(MAX_SESSIONS, SESSION_SECONDS, clock)
        self._hashing = FairQueue(
            "cairn-sign-in", at_once=HASHES_AT_ONCE, each_waiting=HASHES_WAITING_EACH, waiting=HASHES_WAITING
        )
        self._lookups = ThreadPoolExecutor(LOOKUPS_AT_ONCE, thread_name_prefix="cairn-accounts")
        self._decoy = self._hasher.hash(secrets.token_urlsafe(32)) if accounts is not None else ""
        self._attempts = SignInLimit(clock)

    async def in_background(self, look: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something that asks for accounts, in threads that do nothing else."""
        return await asyncio.get_running_loop().run_in_executor(self._lookups, functools.partial(look, *args, **kwargs))

    @property
    def by_name(self) -> bool:
        """Whether there are accounts."""
        return self._accounts is not None and self._accounts.any

    @property
    def required(self) -> bool:
        """Also when the last account of a server on the network was removed: then nobody gets in."""
        return self._hash is not None or self._token_digest is not None or not self._local or self.by_name

    @property
    def has_password(self) -> bool:
        """Whether people can sign in with a browser."""
        return self._hash is not None or self.by_name

    def log_in(self, password: str, client: str, name: str = "") -> Future[str]:
        """Correct password -> new session cookie value, or WrongPassword. Raises TooManyAttempts at once."""
        attempt = self._attempts.begin(name.strip().lower() if self.by_name else "", client)
        return self._in_turn(client, lambda: self._log_in(password, name, attempt))

    def check_password(self, name: str, password: str, client: str) -> Future[User]:
        """Of somebody who is signed in and changes it: the account, or WrongPassword. Raises TooManyAttempts at
        once."""
        attempt = self._attempts.begin(name, client)
        return self._in_turn(client, lambda: self._check_password(name, password, attempt))

    def _in_turn(self, client: str, task: Callable[[], T]) -> Future[T]:
        try:
            return self._hashing.submit(network_of(client), task)
        except QueueFull:
            raise TooManyAttempts(1.0) from None

    def _log_in(self, password: str, name: str, attempt: Attempt) -> str:
        account = self._account(name) if self.by_name else None
        expected = self._hash if not self.by_name else account.password_hash if account else self._decoy
        if expected is None or len(password) > MAX_PASSWORD_LENGTH:
            raise WrongPassword
        # An unknown name takes as long as a wrong password: nobody learns who has an account.
        if not self._verified(expected, password) or (self.by_name and account is None):
            raise WrongPassword
        self._attempts.succeeded(attempt)
        session = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[_digest(session)] = _Session(account.id if account else None, expected)
        return session

    def _check_password(self, name: str, password: str, attempt: Attempt) -> User:
        account = self._account(name)
        if account is None or not self._verified(account.password_hash, password[:MAX_PASSWORD_LENGTH]):
            raise WrongPassword
        self._attempts.succeeded(attempt)
        return account

    def log_out(self, session: str) -> None:
        with self._lock:
            self._sessions.pop(_digest(session), None)

    def principal_of_session(self, session: str | None) -> Principal | None:
        """None if the session has ended or there never was one."""
        if not session:
            return None
        with self._lock:
            kept = self._sessions.get(_digest(session))
        if kept is None:
            return None
        if kept.user_id is None:
            return None if self.by_name else ADMINISTRATOR
        account = self._accounts.by_id(kept.user_id) if self._accounts else None
        if account is None or account.password_hash != kept.password_hash:
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
        account = self._accounts.of_token(token_digest(token)) if self._accounts is not None else None
        if account is not None:
            return Principal(account.id, account.name)
        if self._token_digest is None or self.by_name:
            return None
        return ADMINISTRATOR if hmac.compare_digest(_digest(token), self._token_digest) else None

    def opens_metrics(self, token: str) -> bool:
        """Whether it is the token for /metrics."""
        return self._metrics_digest is not None and hmac.compare_digest(_digest(token), self._metrics_digest)

    def _account(self, name: str) -> User | None:
        try:
            return self._accounts.named(name) if self._accounts else None
        except NotFound:
            return None

    def _verified(self, expected: str, password: str) -> bool:
        try:
            return self._hasher.verify(expected, password)
        except (VerificationError, InvalidHashError):
            return False


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
