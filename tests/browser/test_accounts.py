"""Two people at one page: signing in by name, sharing a collection, settings of one's own. No model is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.auth import hash_password
from app.preferences import PreferenceFolder
from retrieval.library import Library
from storage.fingerprint import MemoryFingerprint
from storage.records import NewDocument, Principal
from tests.app.serving import served, settings_for
from tests.app.small_library import without_model

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

PASSWORD = "a quiet pile of stones"


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """Ann has a collection with a document in it; Ben has nothing."""
    with without_model(tmp_path / "home") as library:
        library.maintenance.doctor = dict  # type: ignore[assignment,method-assign]
        for name in ("ann", "ben"):
            library.accounts.create(name, hash_password(PASSWORD))
        catalogue, ann = library.view.catalogue, library.accounts.get("ann").id
        fingerprint = catalogue.put_fingerprint(MemoryFingerprint({"weights": "w"}))
        new = NewDocument("d" * 32, "plans.pdf", "Plans", "pdf", "0" * 64, fingerprint)
        catalogue.acting_for(Principal(ann, "ann")).add_document(new, collection="Reports")
        yield library


@pytest.fixture
def url(library: Library, tmp_path: Path) -> Iterator[str]:
    from app.api import build_app

    with served(build_app(settings_for(tmp_path / "home"), library)) as url:
        yield url


def sign_in(page: Any, name: str) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name=f"Account of {name}")).to_be_visible()
    framed(page)


def framed(page: Any) -> None:
    """Waits until all of the page has come: whoever signs out before has the rest of it refused."""
    expect(page.get_by_role("tab", name="Machine", exact=True)).to_be_visible()
    expect(page.locator("#cairn-shell")).to_have_count(0)
    page.wait_for_load_state()


def view(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def test_a_collection_is_shared_with_a_person_and_taken_back(
    url: str, open_tab: Callable[..., Any], watch: Any
) -> None:
    ann = open_tab(url)
    sign_in(ann, "ann")
    ben = open_tab(url)
    sign_in(ben, "ben")
    view(ben, "Library")
    expect(ben.locator(".documents")).to_contain_text("No documents yet")

    view(ann, "Library")
    ann.locator(".chip", has_text="Reports").click()
    expect(ann.locator(".sharing")).to_have_text("Only you see it")
    ann.get_by_role("button", name="Share Reports").click()
    ann.get_by_label("ben").check()
    ann.get_by_role("dialog").get_by_role("button", name="Share").click()
    expect(ann.locator(".sharing")).to_have_text("Shared with ben")

    ben.reload()
    view(ben, "Library")
    expect(ben.locator(".document")).to_contain_text("of ann")
    expect(ben.get_by_role("button", name="Delete Plans")).to_have_count(0)
    ben.locator(".chip", has_text="Reports · ann").click()
    expect(ben.locator(".sharing")).to_have_text("Shared by ann")
    expect(ben.get_by_role("button", name="Share Reports")).to_have_count(0)

    ann.get_by_role("button", name="Share Reports").click()
    ann.get_by_label("Everybody with an account").check()
    expect(ann.get_by_label("ben")).to_be_disabled()
    ann.get_by_role("dialog").get_by_role("button", name="Share").click()
    expect(ann.locator(".sharing")).to_have_text("Shared with everybody")


def test_settings_are_ones_own_and_the_note_says_what_is_stored(
    url: str, open_tab: Callable[..., Any], library: Library, watch: Any
) -> None:
    page = open_tab(f"{url}/#/settings")
    sign_in(page, "ann")
    view(page, "Settings")
    number = page.locator("#setting-top-k input[type=number]")
    expect(number).to_be_enabled()  # not before what is stored has arrived, which would undo the change
    for blocks in ("3", "5", "7"):
        number.fill(blocks)
        number.press("Enter")
        expect(page.locator("#setting-state")).to_have_text(f"Saved: {blocks} parts read at a time.")
        user = library.accounts.get("ann")
        stored = PreferenceFolder(library.replicas.blobs).of(Principal(user.id, "ann")).current
        assert stored.top_k == int(blocks), "what the note says is on disk when it is said"
    assert (
        PreferenceFolder(library.replicas.blobs).of(Principal(library.accounts.get("ben").id, "ben")).current.top_k == 8
    )


def test_signing_out_and_a_new_password(url: str, open_tab: Callable[..., Any], watch: Any) -> None:
    watch.expected_statuses.add(401)
    page = open_tab(url)
    sign_in(page, "ann")
    page.get_by_role("button", name="Account of ann").click()
    page.get_by_role("button", name="Change password").click()
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_role("button", name="Next").click()
    page.get_by_label("New password, 8 characters or more").fill("another quiet pile")
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page).to_have_url(re.compile("/login$"))
    page.get_by_label("Name").fill("ann")
    page.get_by_label("Password").fill("another quiet pile")
    page.keyboard.press("Enter")
    framed(page)
    page.get_by_role("button", name="Account of ann").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/login$"))
