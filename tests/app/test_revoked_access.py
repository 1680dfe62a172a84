"""What ends while it is used: a token, an account, what is shared. Nothing streams on, and nothing is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app import http_security
from app.api import build_app
from app.auth import fresh_token
from retrieval import library as asked_library
from retrieval.errors import AccessChanged, DeletedMeanwhile
from retrieval.library import Library
from storage.records import Principal, User
from tests.app.serving import served, settings_for
from tests.app.small_library import QUESTION, slowed
from tests.waiting import until


@pytest.fixture
def ben(library: Library) -> User:
    """Somebody with whom Ann shares everything there is."""
    ann = library.accounts.create("ann", "no password")
    library.accounts.transfer_ownership(ann)
    ben = library.accounts.create("ben", "no password")
    hers = library.as_seen_by(Principal(ann.id, ann.name))
    collection = hers.collections.create("Shared")
    for document in hers.documents.list():
        hers.documents.move(document.id, collection.id)
    hers.collections.share(collection.id, people=["ben"])
    return ben


def unshare(library: Library) -> None:
    ann = library.accounts.get("ann")
    hers = library.as_seen_by(Principal(ann.id, ann.name))
    hers.collections.share(hers.collections.list()[0].id, people=[])


def remove(library: Library) -> None:
    library.accounts.delete(library.accounts.get("ben"))


@pytest.fixture(params=[unshare, remove])
def ended(request: pytest.FixtureRequest) -> Any:
    return request.param


def asked_by(library: Library, user: User) -> Iterator[Any]:
    return library.as_seen_by(Principal(user.id, user.name)).ask(QUESTION)


def test_an_answer_ends_when_its_asker_may_no_longer_read(
    library: Library, ben: User, ended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_library, "ACCESS_SECONDS", 0.0)
    items = asked_by(library, ben)
    next(items)
    ended(library)
    with pytest.raises(AccessChanged):
        list(items)
    assert library.answers.list() == []


def test_an_answer_that_came_to_its_end_meanwhile_is_not_kept(
    library: Library, ben: User, ended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_library, "ACCESS_SECONDS", 1e9)
    items = asked_by(library, ben)
    next(items)
    ended(library)
    with pytest.raises(DeletedMeanwhile):
        list(items)
    assert library.answers.list() == []


@pytest.mark.parametrize("path", ["/api/v1/ask", "/v1/chat/completions"])
def test_a_stream_ends_when_its_token_is_replaced(
    library: Library, home: Path, ben: User, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_security, "LOOK_SECONDS", 0.0)
    token, digest = fresh_token()
    library.accounts.set_token_digest(ben, digest)
    slowed(library, 0.2)
    seen_by = library.as_seen_by
    monkeypatch.setattr(library, "as_seen_by", lambda principal: slow(seen_by(principal)))
    body = {"question": QUESTION, "model": "cairn", "messages": [{"role": "user", "content": QUESTION}], "stream": True}
    body = {name: body[name] for name in (("question",) if path.endswith("ask") else ("model", "messages", "stream"))}
    app = build_app(settings_for(home), library, page=False)
    with served(app) as url:
        bearer, lines = {"Authorization": f"Bearer {token}"}, []
        with httpx2.stream("POST", f"{url}{path}", json=body, headers=bearer, timeout=30) as response:
            for line in response.iter_lines():
                lines.append(line)
                if len(lines) == 4:
                    library.accounts.set_token_digest(ben, fresh_token()[1])
        assert "not_signed_in" in lines[-2] or "not_signed_in" in lines[-1], lines
        until(lambda: app.state.ask_queue.counts() == (0, 0))
    assert library.answers.list() == [] or "answer" not in " ".join(lines)


def slow(library: Library) -> Library:
    slowed(library, 0.2)
    return library
