"""Asking at the page: the answer, what was read for it, and what can be done with both."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.exports.answers import answer_as_html
from retrieval.library import Library
from retrieval.suggestions.questions import describe, keep
from retrieval.types.answers import EARLIER_VERSION, FROM_ITSELF, NOTHING_FOUND, ONE_SENTENCE, OUTCOMES, WHO_CHOSE
from tests.app.serving import BEARER
from tests.app.small_library import QUESTION, RESERVOIR, UNANSWERED, WALKS, held, pdf_of

pytest.importorskip("playwright")
from playwright.sync_api import expect  # noqa: E402

from tests.browser.acting import ask, escape, held_back, in_its_own_words, reload, view  # noqa: E402
from tests.browser.pages import squeezed, text_under  # noqa: E402

BEES = "There are fourteen hives behind the mill. The bees fly from March to September."


@pytest.mark.usefixtures("attention_decides")
def test_an_answer_that_attention_chose_shows_what_it_read_word_by_word(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    url = serve(library)
    in_its_own_words(url)
    page = open_tab(url)
    ask(page, QUESTION)
    expect(page.locator(".who-chose")).to_have_text(WHO_CHOSE["attention"])
    tokens, marks = page.locator(".answer-text .token"), page.locator(".passage-text mark")
    assert tokens.count() > 4 and page.locator(".passage").count() > 4
    page.locator(".meter summary").click()
    expect(page.locator(".meter-text")).to_contain_text("of the attention was on the documents")

    whole_answer = page.locator(".score-text").all_inner_texts()
    tokens.nth(2).click()
    expect(page.locator(".focus q")).to_have_text(re.compile(r"^\w+$"))
    expect(page.locator(".score-text")).not_to_have_text(whole_answer)  # the numbers are those of the word
    escape(page)

    marks.first.click()
    expect(page.locator(".block-card")).to_contain_text("Attention")
    assert all(re.search(r"\w", word) for word in page.locator(".block-card .word").all_inner_texts())
    expect(page.locator(".token.uses")).not_to_have_count(0)  # the words that used the block light up
    page.get_by_role("button", name="Measure effect").click()
    expect(page.locator(".block-card")).to_contain_text("Without this part the answer would have been")
    expect(page.locator(".block-card")).not_to_contain_text("nats", use_inner_text=True)

    page.get_by_role("tab", name="Details").click()
    answer = library.answers.get(library.answers.list()[0].id)
    expect(page.locator(".heat .cell")).to_have_count(answer.heads * len(answer.passages))  # one memory layer
    page.get_by_role("tab", name="Word by word").click()
    expect(page.locator(".timeline .row")).to_have_count(sum(len(passage.blocks) for passage in answer.passages))
    page.get_by_role("tab", name="Near misses").click()
    expect(page.locator(".passage.missed")).to_have_count(len(answer.near_misses))


def test_an_answer_that_the_model_wrote_from_itself_says_so_and_shows_nothing_of_its_attention(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    url = serve(library)
    in_its_own_words(url)
    page = open_tab(url)
    ask(page, QUESTION)
    answer = library.answers.get(library.answers.list()[0].id)
    assert answer.decided_by == "attention" and answer.check is not None and not answer.check.decided
    expect(page.locator(".who-chose")).to_have_text(FROM_ITSELF)
    assert answer.passages and answer.heat, "there would be something to show"
    for hidden in (".passage", ".source", ".meter", ".heat", ".open-evidence"):
        expect(page.locator(hidden)).to_have_count(0)
    for tab in ("Word by word", "Details"):
        expect(page.get_by_role("tab", name=tab)).to_have_count(0)
    page.locator(".answer-text .token").nth(2).click()
    expect(page.locator(".focus q")).to_have_count(0)
    exported = answer_as_html(library, answer)
    assert FROM_ITSELF in exported and "Attention by layer and head" not in exported


def test_a_passage_is_taken_away_and_the_sentence_chosen_again(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, QUESTION)
    quoted, *_, last = page.locator(".passage").all()
    quoted.get_by_role("button", name="Leave it out").click()
    said = quoted.locator(".effect")
    expect(said).to_contain_text(re.compile("Without this passage (the answer is another one: |there is no answer)"))
    expect(said).to_contain_text(re.compile(r"Cairn is \d\d.% sure of this answer[,;] .+%"))
    expect(said).not_to_contain_text("1981")
    last.get_by_role("button", name="Leave it out").click()
    expect(last.locator(".effect")).to_contain_text("Without this passage the answer is the same")


def test_a_quoted_sentence_is_shown_with_the_readers_probabilities_and_no_attention(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    page = open_tab(serve(library))
    ask(page, QUESTION)
    answer = library.answers.get(library.answers.list()[0].id)
    assert answer.decided_by == "reader" and not answer.heat
    expect(page.locator(".who-chose")).to_contain_text(WHO_CHOSE["reader"])
    expect(page.locator(".evidence")).to_contain_text("Passages found")
    assert page.locator(".evidence").get_by_role("tab").all_inner_texts()[0] == "Passages"
    expect(page.locator(".evidence").get_by_role("tab")).to_have_count(2)
    scores = [passage.score for passage in answer.passages]
    assert answer.quotation is not None and answer.passages[0].holds(answer.quotation.passage)
    assert scores == sorted(scores, reverse=True), "none is above the one that is quoted"
    assert scores[0] == pytest.approx(answer.probability)
    expect(page.locator(".score-text").first).to_have_text(re.compile(r"\d\d.%$"))
    page.locator(".passage-text mark").first.click()
    expect(page.locator(".block-card")).to_contain_text("Probability")
    expect(page.get_by_role("button", name="Measure effect")).to_have_count(0)
    expect(page.locator(".meter")).to_have_count(0)
    exported = answer_as_html(library, answer)
    assert WHO_CHOSE["reader"] in exported and "Attention by layer and head" not in exported
    assert re.search(r"Written on \d+ [A-Z][a-z]+ 20\d\d, \d\d:\d\d UTC by [^/,]+, memory", exported)

    others = page.locator(".others li")
    expect(others).to_have_count(len(answer.other_sentences))
    expect(others.first.locator(".exact")).not_to_be_empty()
    others.first.get_by_role("button").click()
    expect(page.locator(".viewer .box").first).to_be_visible()
    escape(page)
    expect(page.locator(".viewer")).to_have_count(0)

    page.get_by_role("tab", name="Passages").click()
    page.get_by_role("button", name="Show on the page").first.click()
    box = page.locator(".viewer .box").first
    expect(box).to_be_visible()
    expect(page.locator(".viewer .page-words mark").first).to_be_visible()
    position = page.locator(".viewer .position")
    shown = position.inner_text()
    page.locator(".viewer button[aria-label$=' page']:enabled").first.click()
    expect(position).not_to_have_text(shown)
    expect(position).to_have_text(re.compile(r"^Page \d of \d$"))
    escape(page)
    expect(page.locator(".viewer")).to_have_count(0)

    for kind in ("HTML", "JSON"):
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Export {kind}").click()
        file = tmp_path / f"export.{kind}"
        download.value.save_as(file)
        assert QUESTION in file.read_text(encoding="utf-8")
    assert json.loads((tmp_path / "export.JSON").read_text())["format"] == "cairn-answer/2"


@pytest.mark.parametrize(("source", "kind"), [("renamed.txt", "pdf"), ("renamed.pdf", "txt")])
def test_the_kind_of_a_document_and_not_its_name_decides_whether_pages_have_pictures(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path, source: str, kind: str
) -> None:
    path = tmp_path / f"bees.{kind}"
    path.write_bytes(pdf_of([BEES]) if kind == "pdf" else BEES.encode())
    library.documents.delete([one.id for one in library.documents.list()])
    library.jobs.run(library.documents.submit(path, source=source).id)
    page = open_tab(serve(library))
    view(page, "Library")
    page.locator(".document .item-title").click()
    expect(page.locator(".viewer .page-words")).to_be_visible()
    expect(page.locator(".viewer .page-image")).to_be_visible(visible=kind == "pdf")
    escape(page)

    view(page, "Ask")
    ask(page, "How many hives are there?")
    page.get_by_role("button", name="Show on the page").first.click()
    expect(page.locator(".viewer .page-words mark").first).to_be_visible()
    expect(page.locator(".viewer .page-image")).to_be_visible(visible=kind == "pdf")


def test_writing_can_be_stopped_and_gone_on_with(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    let_go = held(library)
    page = open_tab(serve(library))
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator(".streaming .token")).not_to_have_count(0)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".turn .actions")).to_be_visible()
    assert page.locator(".answer-text .token").count() < 12
    let_go()
    expect(page.locator(".turn .interrupted")).to_be_visible()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".turn .interrupted")).to_have_count(0)
    expect(page.locator(".turn .actions")).to_have_count(1)
    assert page.locator(".answer-text .token").count() >= 12
    ask(page, "And by how much?")
    page.get_by_role("button", name="New conversation").click()
    ask(page, "Something else?")
    third, second, first = (one.conversation_id for one in library.answers.list())
    assert first == second != third


def test_evidence_and_the_question_field_stay_in_sight_in_a_long_conversation(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library), viewport={"width": 1360, "height": 700})
    ask(page, QUESTION)
    ask(page, "How long is the path?")
    evidence, field = page.get_by_role("complementary", name="Evidence"), page.get_by_label("Question")
    for top in (0, 400, 100_000):
        page.evaluate("top => scrollTo({ top, behavior: 'instant' })", top)
        expect(evidence).to_be_in_viewport(ratio=0.8)
        expect(field).to_be_in_viewport(ratio=1)
    assert page.evaluate("scrollY") > 200, "there was something to scroll"
    page.locator(".answer-text").first.click()
    expect(page.locator(".passage-title").first).to_have_text("Handbook of the reservoir")


def test_what_an_earlier_version_says_is_shown_with_its_file_and_leads_there(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    for which, months in (("2023", "eighteen"), ("2026", "thirty")):
        file = tmp_path / f"records {which}.txt"
        file.write_text(f"Keeping of records\n\nRecords of visitors are kept for {months} months.\n")
        library.jobs.run(library.documents.submit(file).id)
    page = open_tab(serve(library))
    ask(page, "How long are records of visitors kept?")
    expect(page.locator(".answer-text")).to_contain_text("thirty")
    earlier = page.get_by_role("region", name="Earlier version")
    expect(earlier).to_contain_text(EARLIER_VERSION)
    expect(earlier).to_contain_text("records 2023.txt")
    expect(page.get_by_role("region", name="Other sentences")).not_to_contain_text("eighteen")
    earlier.get_by_role("button").click()
    expect(page.locator(".viewer")).to_contain_text("kept for eighteen months")


def test_a_question_can_be_kept_to_chosen_documents(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, watch: Any, tmp_path: Path
) -> None:
    (tmp_path / "waits.txt").write_text("Nobody has read this.")
    library.documents.submit(tmp_path / "waits.txt")
    page = open_tab(serve(library))
    page.locator("#scope").click()
    expect(page.locator(".pick")).to_have_count(2)  # what is still to be read cannot be chosen
    find = page.get_by_label("Find a document")
    with held_back(page, "search=allotment"):
        with page.expect_request(re.compile("search=allotment")):
            find.fill("allotment")
        find.fill("kiosk")
        expect(page.locator(".pick")).to_have_count(1)
    page.wait_for_load_state("networkidle")
    expect(page.get_by_label("Handbook of the reservoir")).to_have_count(0)  # an answer that comes late
    page.get_by_label("Walks around the lake").check()
    page.get_by_role("button", name="Use these").click()
    expect(page.locator("#scope")).to_contain_text("Walks around the lake")
    ask(page, "How long is the path?")
    assert set(page.locator(".passage-title").all_inner_texts()) == {"Walks around the lake"}

    reload(page)
    expect(page.locator("#scope")).to_contain_text("Walks around the lake")
    page.get_by_role("button", name="New conversation").click()
    ask(page, "How long is the path?")
    assert set(page.locator(".passage-title").all_inner_texts()) == {"Walks around the lake"}
    assert "Walks" not in page.evaluate("JSON.stringify(sessionStorage)"), "the next user of the tab learns no names"

    watch.expected_statuses.add(404)  # what is gone is asked for, by its id
    library.documents.delete([document.id for document in library.documents.list() if document.source == WALKS])
    reload(page)
    expect(page.get_by_text("Some of what was chosen is gone. Questions now ask all documents.")).to_be_visible()
    expect(page.locator(".toast", has_text="There is no document")).to_have_count(0)
    expect(page.locator("#scope")).to_have_text("All documents")


def test_suggested_questions_follow_the_documents_that_may_be_read(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    asked = {RESERVOIR: "Who was Martha Lindqvist?", WALKS: "How long is the path?"}
    for document in library.documents.list():
        keep(
            library.view.workspace.pages_folder / document.id,
            describe(document, library.documents.page_text(document.id, 1).text, [asked[document.source]]),
        )
        library.documents.set_properties(document.id, {"tag": [document.source]})
    page = open_tab(serve(library))
    chips, scope = page.locator(".sample"), page.locator("#scope")
    expect(chips).to_have_count(2)
    scope.click()
    page.get_by_label("Walks around the lake").check()
    page.get_by_role("button", name="Use these").click()
    expect(chips).to_have_count(1)
    expect(chips).to_contain_text([asked[WALKS]])
    scope.click()
    page.get_by_label("Walks around the lake").uncheck()
    page.get_by_label("Only those that meet these conditions").fill(f"tag={RESERVOIR}")
    page.get_by_role("button", name="Use these").click()
    expect(chips).to_contain_text([asked[RESERVOIR]])
    scope.click()
    page.get_by_role("button", name="All documents").click()
    expect(chips).to_have_count(2)
    chips.filter(has_text=asked[WALKS]).click()
    expect(page.locator(".question")).to_have_text(asked[WALKS])
    expect(page.locator(".turn .actions")).to_be_visible()


def test_a_library_with_nothing_but_the_sample_asks_for_files_beside_its_questions(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    expect(page.locator(".hero")).to_be_visible()
    expect(page.locator(".first-files")).to_have_count(0)
    library.documents.delete([one.id for one in library.documents.list() if one.source != RESERVOIR])
    (document,) = library.documents.list()
    described = describe(document, library.documents.page_text(document.id, 1).text, ["Who was Martha Lindqvist?"])
    keep(library.view.workspace.pages_folder / document.id, described)
    reload(page)
    expect(page.locator(".first-files")).to_contain_text("Drop documents here")
    expect(page.locator(".sample")).to_contain_text(["Who was Martha Lindqvist?"])


def test_the_answer_names_its_page_and_leads_to_the_quotation_on_it(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, QUESTION)
    answer = page.locator(".answer-text").inner_text()
    source = page.locator(".turn .source").first
    expect(source).to_have_text("Handbook of the reservoir, page 1")
    quoted = page.locator(".passage").first.locator(".quoted")
    assert "".join(quoted.all_inner_texts()).split() == answer.split()
    assert "1981" in quoted.locator(".exact").inner_text()

    for way_in in (source, page.get_by_role("button", name="Show on the page").first):
        way_in.click()
        expect(page.locator(".viewer .position")).to_have_text("Page 1 of 6")
        expect(page.locator(".viewer .box.answer").first).to_be_visible()
        assert "".join(page.locator(".viewer .quoted").all_inner_texts()).split() == answer.split()
        escape(page)
        expect(page.locator(".viewer")).to_have_count(0)
    address = page.url
    source.click()
    expect(page.locator(".viewer .position")).to_be_visible()
    page.go_back()
    expect(page.locator(".viewer")).to_have_count(0)
    expect(page).to_have_url(address)  # Back closed the page and nothing else


def test_the_viewer_goes_from_one_passage_that_was_read_to_the_next(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, QUESTION)
    page.locator(".turn .source").first.click()
    answer = library.answers.get(library.answers.list()[0].id)
    read = [one for one in answer.passages if one.document_id == answer.quotation.passage.document_id]  # type: ignore[union-attr]
    count = page.locator(".walk-count")
    at = 1 + sorted(one.start_index for one in read).index(read[0].start_index)
    expect(count).to_have_text(f"{at} of {len(read)} read")
    position = page.locator(".viewer .position")
    expect(position).to_have_text("Page 1 of 6")
    seen = set()
    for number in range(at, at + len(read)):
        page.get_by_role("button", name="Next passage that was read").click()
        expect(count).to_have_text(f"{number % len(read) + 1} of {len(read)} read")
        expect(page.locator(".viewer .box").first).to_be_visible()
        seen.add(position.inner_text())
    assert len(seen) > 1, "other pages that were read are reached, and then the first one again"


def test_the_boxes_of_a_quotation_hold_its_words_and_no_others(library: Library) -> None:
    *_, answer = library.ask(QUESTION)
    assert answer.quotation is not None and answer.quotation.passage.pages == (1,)
    passage = answer.quotation.passage
    boxes = library.documents.boxes(passage.document_id, passage.start_index, passage.end_index)
    assert {box.page for box in boxes} == {1} and len(boxes) >= 2
    under = "".join(
        text_under(library.documents.original(passage.document_id), box.page, box.x0, box.y0, box.x1, box.y1)
        for box in boxes
    )
    assert squeezed(under) == squeezed(answer.text)


def test_a_refusal_shows_what_is_nearest_and_answers_from_it_when_told_to(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, UNANSWERED)
    near = page.locator(".nearest .near")
    expect(near).to_have_count(3)
    expect(page.locator(".evidence")).to_be_hidden()
    near.first.locator(".source").click()
    expect(page.locator(".viewer .page-words mark").first).to_be_visible()
    escape(page)
    page.get_by_role("button", name="Answer from these anyway").click()
    expect(page.locator(".turn .verdict")).to_contain_text(OUTCOMES["perhaps"][1])
    expect(page.locator(".turn .source")).to_contain_text("page")
    expect(page.locator(".turn")).to_have_count(1)
    (head,) = library.answers.list()
    assert head.question == UNANSWERED and library.answers.get(head.id).settings["anyway"] is True


def test_a_question_that_is_too_long_is_told_so_before_it_is_sent_and_nothing_is_cut(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    box, told, send = page.get_by_label("Question"), page.locator("#question-length"), page.locator("#send")
    box.fill("Why? " * 200)
    expect(told).to_contain_text("999 of 4,000 characters")
    expect(send).to_be_enabled()
    box.fill("Why? " * 900)
    expect(told).to_contain_text("499 characters longer than a question may be")
    expect(send).to_be_disabled()
    page.keyboard.press("Enter")
    assert len(box.input_value()) == 4500 and page.locator(".turn").count() == 0
    box.fill(QUESTION)
    expect(told).to_be_empty()


def test_what_was_not_found_is_called_the_same_everywhere(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    url = serve(library)
    page = open_tab(url)
    ask(page, UNANSWERED)
    expect(page.locator(".verdict")).to_contain_text(NOTHING_FOUND)
    expect(page.locator(".verdict")).not_to_contain_text("still being read")
    (head,) = library.answers.list()
    assert NOTHING_FOUND in httpx2.get(f"{url}/api/v1/answers/{head.id}/export", headers=BEARER, timeout=60).text
    view(page, "History")
    expect(page.locator(".history .item")).to_contain_text(NOTHING_FOUND)


def test_one_sentence_is_not_passed_off_as_a_summary(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, "Summarise how the maintenance of the reservoir is done every spring.")
    note = page.get_by_text(ONE_SENTENCE)
    expect(note).to_be_visible()
    (head,) = library.answers.list()
    assert ONE_SENTENCE in answer_as_html(library, library.answers.get(head.id))
    ask(page, QUESTION)
    expect(note).to_have_count(1)
    ask(page, "Summarise the handbook of the reservoir.")  # two words that stand nowhere in it
    expect(note).to_have_count(2)


def test_a_quotation_does_not_rest_on_the_model_itself(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    url = serve(library)
    for quote in (True, False):
        httpx2.patch(
            f"{url}/api/v1/preferences",
            json={"low_share": 0.95, "quote": quote, "max_tokens": 16},
            headers=BEARER,
        ).raise_for_status()
        page = open_tab(url)
        ask(page, QUESTION)
        expect(page.locator(".turn .warning")).to_have_count(0 if quote else 1)


def test_what_is_still_being_read_is_no_part_of_a_refusal(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library, tmp_path: Path
) -> None:
    (tmp_path / "slow.txt").write_text("Nobody reads this.")
    library.documents.submit(tmp_path / "slow.txt")
    page = open_tab(serve(library))
    ask(page, UNANSWERED)
    expect(page.locator(".verdict")).to_contain_text("One document is still being read and may say more")


def test_history_survives_a_reload_and_a_link_opens_the_answer(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, QUESTION)
    expect(page).to_have_url(re.compile(r"#/ask/[0-9a-f]{32}$"))
    reload(page)
    expect(page.locator(".question")).to_have_text(QUESTION)
    expect(page.locator(".passage").first).to_be_visible()
    view(page, "History")
    page.get_by_label("Find in the history").fill("dam")
    expect(page.locator(".history .item")).to_have_count(1)
    page.get_by_role("button", name="Delete this answer").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator(".history .item")).to_have_count(0)


def test_the_answer_to_a_further_question_stands_at_the_top(
    serve: Callable[..., str], open_tab: Callable[..., Any], library: Library
) -> None:
    page = open_tab(serve(library))
    ask(page, QUESTION)
    ask(page, "How long is the path around the lake?")
    page.wait_for_function("() => document.querySelector('.turn:last-child').getBoundingClientRect().top < 120")
    expect(page.locator(".answer-text").last).to_be_in_viewport(ratio=1)
