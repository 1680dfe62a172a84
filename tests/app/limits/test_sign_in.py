"""Guessing: how often one may be wrong, who is held up by it, and who is not."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

import app.auth
from app.api import build_app
from app.auth import WrongPassword
from app.limits.sign_in_limit import FREE_ATTEMPTS_IN_ALL, SignInLimit, TooManyAttempts, network_of
from retrieval.accounts import Accounts
from retrieval.library import Library
from storage.records import ADMINISTRATOR
from tests.app.own_values import OwnValues, authenticator
from tests.app.serving import served, settings_for
from tests.waiting import until

PASSWORD, TOKEN = "a quiet pile of stones", "token-for-programs-0123456789"
WRONG = "wrong password"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


class TestLimit:
    def test_an_attempt_counts_from_its_beginning_however_many_come_at_once(self, clock: Clock) -> None:
        limit = SignInLimit(OwnValues(clock))
        barrier = threading.Barrier(50)

        def attempt(_number: int) -> bool:
            barrier.wait()
            try:
                limit.begin("ann", "10.0.0.1")
            except TooManyAttempts:
                return False
            return True

        with ThreadPoolExecutor(50) as threads:
            assert sum(threads.map(attempt, range(50))) == 5

    def test_one_must_wait_longer_each_time_and_is_forgiven_after_a_while(self, clock: Clock) -> None:
        limit = SignInLimit(OwnValues(clock))
        for _ in range(5):
            limit.begin("ann", "10.0.0.1")
        waits = []
        for _ in range(3):
            with pytest.raises(TooManyAttempts) as refused:
                limit.begin("ann", "10.0.0.1")
            waits.append(refused.value.wait_seconds)
            clock.now += refused.value.wait_seconds
            limit.begin("ann", "10.0.0.1")
        assert waits == sorted(waits) and waits[0] >= 1 and waits[2] > 2 * waits[0]
        clock.now += 301
        limit.begin("ann", "10.0.0.1")

    def test_guesses_from_many_addresses_at_one_account_are_counted_together(self, clock: Clock) -> None:
        limit = SignInLimit(OwnValues(clock))
        for number in range(FREE_ATTEMPTS_IN_ALL):
            limit.begin("ann", f"10.0.0.{number}")
        with pytest.raises(TooManyAttempts):
            limit.begin("ann", "10.0.1.1")
        limit.begin("bob", "10.0.1.1")

    def test_guesses_at_many_accounts_from_one_address_are_counted_together(self, clock: Clock) -> None:
        limit = SignInLimit(OwnValues(clock))
        for number in range(FREE_ATTEMPTS_IN_ALL):
            limit.begin(f"user{number}", "10.0.0.1")
        with pytest.raises(TooManyAttempts):
            limit.begin("ann", "10.0.0.1")

    def test_nobody_locks_a_person_out_of_where_they_signed_in_before(self, clock: Clock) -> None:
        limit = SignInLimit(OwnValues(clock))
        limit.succeeded(limit.begin("ann", "10.0.0.1"))
        for number in range(FREE_ATTEMPTS_IN_ALL):
            limit.begin("ann", f"10.0.9.{number}")
            limit.begin(f"user{number}", "10.0.0.1")
        limit.begin("ann", "10.0.0.1")

    def test_a_clock_that_is_put_back_keeps_nobody_out(self, clock: Clock) -> None:
        limit = SignInLimit(OwnValues(clock))
        clock.now += 365 * 24 * 3600
        with pytest.raises(TooManyAttempts):
            for _ in range(6):
                limit.begin("ann", "10.0.0.1")
        clock.now -= 365 * 24 * 3600
        limit.begin("ann", "10.0.0.1")
        with pytest.raises(TooManyAttempts) as refused:
            for _ in range(60):
                limit.begin("ann", "10.0.0.1")
        assert 0 < refused.value.wait_seconds <= 300

    def test_right_passwords_use_nothing_up(self, clock: Clock) -> None:
        limit = SignInLimit(OwnValues(clock))
        for number in range(3 * FREE_ATTEMPTS_IN_ALL):
            limit.succeeded(limit.begin(f"user{number}", "10.0.0.1"))

    @pytest.mark.parametrize(
        ("one", "other", "same"),
        [("2001:db8::1", "2001:db8::ffff:2", True), ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
         ("::ffff:10.0.0.1", "10.0.0.1", True), ("10.0.0.1", "10.0.0.2", False), ("fe80::1%a", "fe80::1%b", True)],
    )  # fmt: skip
    def test_a_network_that_one_person_has_as_a_whole_is_one_address(self, one: str, other: str, same: bool) -> None:
        assert (network_of(one) == network_of(other)) is same


class TestAuthenticator:
    def test_a_hundred_parallel_guesses_are_five(self) -> None:
        signing = authenticator(password=PASSWORD)

        def guess(_number: int) -> type[Exception] | None:
            try:
                signing.log_in(WRONG, "a").result()
            except (WrongPassword, TooManyAttempts) as error:
                return type(error)
            return None

        with ThreadPoolExecutor(100) as threads:
            outcomes = list(threads.map(guess, range(100)))
        assert (outcomes.count(WrongPassword), outcomes.count(TooManyAttempts)) == (5, 95)

    def test_a_right_token_opens_however_many_wrong_ones_came_before(self) -> None:
        signing = authenticator(token=TOKEN)
        for _ in range(5):
            assert signing.principal_of_token("wrong", "a") is None
        with pytest.raises(TooManyAttempts):
            signing.principal_of_token("wrong", "a")
        assert signing.principal_of_token(TOKEN, "a") == ADMINISTRATOR

    def test_wrong_tokens_do_not_hold_up_signing_in(self) -> None:
        signing = authenticator(password=PASSWORD, token=TOKEN)
        for _ in range(5):
            signing.principal_of_token("wrong", "a")
        assert signing.log_in(PASSWORD, "a").result()

    def test_guessing_at_one_address_does_not_hold_up_another(self) -> None:
        signing = authenticator(password=PASSWORD)
        for _ in range(5):
            with pytest.raises(WrongPassword):
                signing.log_in(WRONG, "a").result()
        with pytest.raises(TooManyAttempts):
            signing.log_in(PASSWORD, "a")
        assert signing.log_in(PASSWORD, "b").result()


class HeldHasher:
    """Takes until the test lets it go on."""

    go_on = threading.Event()

    def hash(self, password: str, *, salt: bytes | None = None) -> str:
        return password

    def verify(self, expected: str, password: str) -> bool:
        return self.go_on.wait(60) and expected == password


def test_nothing_else_waits_while_passwords_are_hashed(
    library: Library, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.auth, "PasswordHasher", HeldHasher)
    settings = settings_for(home, host="0.0.0.0", password=PASSWORD, token=TOKEN)
    built = build_app(settings, library, page=False)  # type: ignore[arg-type]
    with served(built) as url, ThreadPoolExecutor(60) as threads:
        guesses = [threads.submit(httpx2.post, f"{url}/login", data={"password": WRONG}, timeout=60) for _ in range(60)]
        until(lambda: sum(guess.done() for guess in guesses) == 55)
        assert httpx2.get(f"{url}/healthz").status_code == 200
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx2.get(f"{url}/api/v1/documents", headers=headers).status_code == 200
        HeldHasher.go_on.set()
        statuses = [guess.result().status_code for guess in guesses]
    assert statuses.count(401) == 5 and statuses.count(429) == 55


def test_nothing_else_waits_while_the_catalogue_is_slow_to_say_who_asks(
    library: Library, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = threading.Event()
    looking = threading.Semaphore(0)

    def slowly(_accounts: Accounts, _digest: str) -> None:
        looking.release()
        found.wait(60)

    monkeypatch.setattr(Accounts, "of_token", slowly)
    settings = settings_for(home, password=PASSWORD)
    built = build_app(settings, library, page=False)  # type: ignore[arg-type]
    with served(built) as url, ThreadPoolExecutor(4) as threads:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        asking = threads.submit(httpx2.get, f"{url}/api/v1/documents", headers=headers, timeout=60)
        assert looking.acquire(timeout=30)
        try:
            assert httpx2.get(f"{url}/healthz", timeout=10).status_code == 200
        finally:
            found.set()
        assert asking.result().status_code == 401
