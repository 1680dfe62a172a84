"""What tests do at the page, as a person would."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect

expect.set_options(timeout=15_000)


def view(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def ask(page: Any, question: str) -> None:
    page.get_by_label("Question").fill(question)
    page.keyboard.press("Enter")
    expect(page.locator(".turn .actions")).to_have_count(page.locator(".turn").count() or 1)


def add_files(page: Any, *files: tuple[str, bytes]) -> None:
    page.locator("#file-input").set_input_files(
        [{"name": name, "mimeType": "application/pdf", "buffer": content} for name, content in files]
    )
