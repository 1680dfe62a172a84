"""What is shown of an answer's attention: words and not their pieces, heads by what they looked at, doubt in words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from retrieval.library import Library
from tests.app.small_library import QUESTION

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

from tests.browser.acting import ask, in_its_own_words, reload, view_whole  # noqa: E402

pytestmark = pytest.mark.usefixtures("attention_decides")

JARGON = re.compile(r"\bnats?\b|\blog-?prob|\blogits?\b|\b[0-9a-f]{32}\b|sha256", re.I)
CELL = re.compile(r"Head (\d+), passage (\d+): .*, ([\d.]+) times the average head")


def test_a_piece_of_a_word_stands_for_the_whole_word(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    url = serve(library)
    in_its_own_words(url)
    page = open_tab(url)
    ask(page, QUESTION)
    texts = [token.text for token in library.answers.get(library.answers.list()[0].id).tokens]
    whole, pieces = "".join(texts), 0
    for index, text in enumerate(texts):
        start = sum(map(len, texts[:index]))
        words = re.finditer(r"[\w'’-]+", whole)
        word = next((one for one in words if one.start() < start and start + len(text) <= one.end()), None)
        if word is None or not text.strip():
            continue
        pieces += 1
        page.locator(".answer-text .token").nth(index).click()
        expect(page.locator(".focus q")).to_have_text(word.group())
        expect(page.locator(".focus")).to_contain_text(f"For the word {word.group()}")
        page.keyboard.press("Escape")
    assert pieces > 0, "the answer has words of several pieces"


def _with_heat(page: Any, mass: Callable[[int, int], float]) -> None:
    """Answers come with so much attention for each head (from 0) and passage (from 0)."""

    def changed(route: Any) -> None:
        response = route.fetch()
        answer = response.json()
        for number, passage in enumerate(answer["passages"]):
            row = [mass(head, number) for head in range(answer["heads"])]
            answer["heat"].update({block: [row] for block in passage["block_ids"]})
        route.fulfill(response=response, json=answer)

    page.route(re.compile(r"/api/v1/answers/[0-9a-f]{32}$"), changed)


def test_heads_are_sorted_by_how_much_they_differ_and_folded_away_where_they_do_not(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    url = serve(library)
    in_its_own_words(url)
    page = open_tab(url)
    ask(page, QUESTION)
    answer = library.answers.get(library.answers.list()[0].id)
    assert answer.heads > 3 and len(answer.passages) > 2 and len(answer.layers) == 1
    _with_heat(page, lambda head, passage: {(2, 1): 0.3, (0, 2): 0.2}.get((head, passage), 0.1))
    reload(page)
    page.get_by_role("tab", name="Details").click()
    told = page.locator(".told li")
    expect(told).to_have_count(3)
    expect(told.nth(0)).to_have_text(re.compile(r"^Head 3 looked at passage 2 2\.\d times as much as the average head"))
    expect(told.nth(1)).to_have_text(re.compile(r"^Head 1 looked at passage 3 1\.\d times"))
    cells = [CELL.match(text) for text in page.locator(".heat .cell title").all_text_contents()]
    assert len(cells) == answer.heads * len(answer.passages) and all(cells)
    most = dict[int, float]()
    for cell in cells:
        assert cell is not None
        head, ratio = int(cell[1]), float(cell[3])
        most[head] = max(ratio, most.get(head, 0.0))
    assert list(most)[:2] == [3, 1] and list(most.values()) == sorted(most.values(), reverse=True)

    page.unroute_all()
    _with_heat(page, lambda _head, _passage: 0.1)
    reload(page)
    page.get_by_role("tab", name="Details").click()
    expect(page.get_by_text("All attention heads read the passages alike.")).to_be_visible()
    expect(page.locator(".heat")).to_be_hidden()
    page.get_by_text("Show the heads").click()
    expect(page.locator(".heat .cell").first).to_be_visible()


def test_beside_an_answer_there_are_words_and_no_figures_that_mean_nothing(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    url = serve(library)
    in_its_own_words(url)
    page = open_tab(url)
    ask(page, QUESTION)
    turn = page.locator(".turn")
    assert "%" not in turn.inner_text(), "shares of attention stand behind `How it was read`"
    turn.locator(".meter summary").click()
    assert "%" in turn.inner_text()
    said = page.locator("body").inner_text()
    for tab in ("Word by word", "Near misses", "Details"):
        page.get_by_role("tab", name=tab).click()
        said += page.locator("#evidence-panel").inner_text()
    for name in ("Library", "History", "Settings", "Machine"):
        view_whole(page, name)
        said += page.locator("body").inner_text()
        if name == "Settings":
            assert not re.search(r"\b(heads?|blocks?)\b", page.locator("body").inner_text(), re.I)
    assert JARGON.findall(said) == []
