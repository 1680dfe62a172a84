"""What axe, a checker of the accessibility guidelines, finds on every view: nothing, in light, dark and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from retrieval.library import Library
from tests.app.small_library import QUESTION, UNANSWERED, WALKS

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

from tests.browser.acting import ask, escape, in_its_own_words, view_whole  # noqa: E402

GUIDELINES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}


CLEAR = """() => [...document.querySelectorAll(".turn .actions")].at(-1)?.scrollIntoView({ block: "center" })"""
"""A button that happens to be half behind the question field is scrolled to by whoever wants it."""


def found_by_axe(page: Any) -> list[str]:
    page.evaluate(CLEAR)
    return violations(page)


def violations(page: Any) -> list[str]:
    if page.evaluate("typeof axe") == "undefined":
        spec = find_spec("axe_playwright_python")
        assert spec is not None and spec.origin is not None
        page.evaluate((Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("rules => axe.run(document, { resultTypes: ['violations'], runOnly: rules })", GUIDELINES)
    assert len(found["passes"]) > 10, "axe looked at the page"
    return [f"{one['id']}: {node['html'][:120]}" for one in found["violations"] for node in one["nodes"]]


def of_evidence(page: Any, look: str, way_in: str, tabs: tuple[str, ...]) -> dict[str, list[str]]:
    """What axe finds on every tab of the evidence, all that there are, and on a part of a passage."""
    if look == "phone":
        page.get_by_role("button", name=way_in).last.click()
    evidence = page.get_by_role("complementary", name="Evidence")
    expect(evidence).to_be_in_viewport(ratio=0.5)
    expect(evidence.get_by_role("tab")).to_have_count(len(tabs))
    found = {}
    for tab in tabs:
        page.get_by_role("tab", name=tab).click()
        found[f"{way_in}: {tab}"] = found_by_axe(page)
    page.locator(".passage-text mark").first.click()
    found[f"{way_in}: part of a passage"] = found_by_axe(page)
    return found


BAD = """() => {
    document.querySelector(".ask, .mount").insertAdjacentHTML("beforeend",
        `<div id="bad" style="display: flex"><p style="color: #ccc; background: #fff">Hardly to be read</p>
            <button style="width: 9px; height: 9px; padding: 0">a</button>
            <button style="width: 9px; height: 9px; padding: 0">b</button>
            <input type="text" style="height: 40px"><span role="slider">c</span></div>`); }"""


def test_axe_would_find_what_is_bad(serve: Callable[..., str], open_tab: Callable[..., Any], library: Library) -> None:
    page = open_tab(serve(library))
    expect(page.get_by_role("tab", name="Machine", exact=True)).to_be_visible()
    page.evaluate(BAD)
    found = {each.split(":")[0] for each in violations(page)}
    assert {"color-contrast", "target-size", "label", "aria-required-attr"} <= found


@pytest.mark.usefixtures("attention_decides")
@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, look: str
) -> None:
    url, found = serve(library), dict[str, list[str]]()
    page = open_tab(url, **LOOKS[look])
    ask(page, UNANSWERED)
    found["refusal"] = found_by_axe(page)
    page = open_tab(url, **LOOKS[look])  # another conversation
    ask(page, QUESTION)
    found["answer"] = found_by_axe(page)
    found |= of_evidence(page, look, "Passages found", ("Near misses", "Passages"))
    page.get_by_role("button", name="Show on the page").first.click()
    expect(page.locator(".viewer .box.answer").first).to_be_visible()
    found["page"] = found_by_axe(page)
    escape(page)
    if look == "phone":
        escape(page)
    in_its_own_words(url)
    page = open_tab(url, **LOOKS[look])
    ask(page, QUESTION)
    found["answer that attention chose"] = found_by_axe(page)
    found |= of_evidence(page, look, "What was read", ("Word by word", "Near misses", "Details", "Passages"))
    if look == "phone":
        escape(page)
    (document,) = library.documents.list(search=WALKS)
    library.documents.set_properties(document.id, {"author": ["Ann Lee"], "tag": ["outdoors"]})
    for name in ("Library", "History", "Settings", "Machine"):
        view_whole(page, name)
        found[name] = found_by_axe(page)
    view_whole(page, "Library")
    page.get_by_role("button", name="Tag outdoors").click()
    page.get_by_role("button", name="Properties of Walks around the lake").click()
    found["properties"] = found_by_axe(page)
    assert {name: each for name, each in found.items() if each} == {}
