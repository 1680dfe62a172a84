"""Whoever names a writer gets no worse answer for it: what the documents do not support gives way to a quotation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import openai
import pytest

from app.api import build_app
from app.cli.questions import print_answer, row_of_answer
from app.exports.answers import answer_as_html
from retrieval.library import Library
from retrieval.types.answers import NOTHING_FOUND, Answer
from retrieval.types.writer import Written
from retrieval.writers.prompt import ANSWER, ANSWER_BRIEFLY, HINT
from tests.app.serving import OWNER_TOKEN, served, settings_for
from tests.app.small_library import QUESTION, UNANSWERED
from tests.scripted_writer import ScriptedWriter

BABBLE = "Zebras graze on the moon at midnight."
TRUE = "The dam was raised by three metres in 1981."


@pytest.fixture
def writer(library: Library) -> ScriptedWriter:
    writer = ScriptedWriter(lambda _request: BABBLE)
    library.use_writer(lambda: writer)
    return writer


def ask(library: Library, question: str = QUESTION) -> Answer:
    *_, answer = library.ask(question)
    assert isinstance(answer, Answer)
    return answer


def test_words_that_nothing_supports_give_way_to_the_quotation(library: Library, writer: ScriptedWriter) -> None:
    *_, quoted = library.ask(QUESTION, quote=True)
    assert isinstance(quoted, Answer)
    answer = ask(library)
    assert answer.set_aside == BABBLE and BABBLE not in answer.text
    assert (answer.found, answer.outcome, answer.short) == (quoted.found, quoted.outcome, quoted.short)
    (citation,) = answer.citations
    assert answer.text == f"{quoted.text} [{citation.number}]"
    assert quoted.text in answer.passages[citation.passage].text
    assert "".join(token.text for token in answer.tokens).strip() == answer.text
    assert [claim.verdict for claim in answer.claims] == ["supported"]
    assert library.answers.get(answer.id) == answer
    assert BABBLE in answer_as_html(library, answer)


def test_no_answer_of_a_writer_turns_the_order_of_letters_about(library: Library, writer: ScriptedWriter) -> None:
    turning = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    for reply in (f"The dam was raised by{turning} three metres in 19{turning}81.", f"{turning}{BABBLE}{turning}"):
        writer.reply = lambda _request, reply=reply: reply  # type: ignore[misc]
        answer = ask(library)
        shown = (answer_as_html(library, answer), json.dumps(answer.to_dict(), ensure_ascii=False))
        assert "1981" in answer.text and not any(each in text for text in shown for each in turning)


def test_an_answer_that_only_repeats_the_question_gives_way_too(library: Library, writer: ScriptedWriter) -> None:
    writer.reply = lambda _request: "The dam was raised when the dam was raised."
    assert "1981" in ask(library).text


def test_a_small_writer_that_copies_something_else_gives_way_to_a_sure_search(
    library: Library, writer: ScriptedWriter
) -> None:
    copied = "Maintenance is carried out every spring, before the snow melts."
    writer.reply, writer.written = lambda _request: copied, Written("length")
    assert ask(library).text.startswith(copied[:-1]), "a large one may have its reasons"
    writer.weights = 135_000_000
    answer = ask(library)
    assert "1981" in answer.text and answer.set_aside == copied and not answer.problem


def test_a_task_over_whole_documents_of_which_nothing_is_supported_says_so(
    library: Library, writer: ScriptedWriter
) -> None:
    *_, answer = library.ask("Summarise.", whole=True)
    assert isinstance(answer, Answer) and answer.text == BABBLE
    assert answer.problem == "The documents support none of these sentences. Do not rely on them."


def test_a_task_over_whole_documents_without_numbers_gets_those_of_the_segments(
    library: Library, writer: ScriptedWriter
) -> None:
    writer.reply = lambda _request: TRUE
    *_, answer = library.ask("Summarise.", whole=True)
    assert isinstance(answer, Answer) and not answer.problem
    (citation,), (claim,) = answer.citations, answer.claims
    given = {passage.number: passage for request in writer.requests for passage in request.passages}
    assert given[citation.number].text == answer.passages[citation.passage].text
    assert len(answer.passages) == 1 and not claim.unfounded, "figures are looked for in all that was read"


def test_a_writer_that_writes_nothing_leaves_the_answer_to_the_search(library: Library, writer: ScriptedWriter) -> None:
    writer.reply = lambda _request: "Question: When was the dam raised?\nThe answer is:"
    answer = ask(library)
    assert "1981" in answer.text and answer.found and not answer.set_aside


def test_where_the_search_finds_nothing_neither_does_the_writer(library: Library, writer: ScriptedWriter) -> None:
    answer = ask(library, UNANSWERED)
    assert (answer.text, answer.found, answer.outcome, answer.set_aside) == (NOTHING_FOUND, False, "not_found", BABBLE)
    assert answer.passages and not answer.claims


def test_a_supported_answer_stays_and_gets_the_numbers_that_its_writer_left_out(
    library: Library, writer: ScriptedWriter
) -> None:
    writer.reply = lambda _request: f"{TRUE} {BABBLE}"
    answer = ask(library)
    (citation,) = answer.citations
    assert answer.text == f"{TRUE[:-1]} [{citation.number}]. {BABBLE}" and not answer.set_aside
    assert answer.text[citation.start : citation.end] == f"[{citation.number}]"
    assert "1981" in answer.passages[citation.passage].text
    assert [answer.text[claim.start : claim.end].strip() for claim in answer.claims] == [
        f"{TRUE[:-1]} [{citation.number}].",
        BABBLE,
    ]
    assert answer.quotation is not None and "1981" in answer.quotation.passage.text


CITED = "Die Mauer ist vor der Flut um einiges erhöht worden, wie es in dem Buch steht [1]."


@pytest.mark.parametrize("text", [CITED, NOTHING_FOUND])
def test_a_writer_that_cites_in_another_language_or_refuses_is_believed_and_the_quotation_stands_beside(
    library: Library, writer: ScriptedWriter, text: str
) -> None:
    writer.reply = lambda _request: text
    answer = ask(library)
    assert (answer.text, answer.set_aside, answer.found) == (text, "", text != NOTHING_FOUND)
    assert answer.quotation is not None and answer.settings["quoted_outcome"] == "found"


@pytest.mark.parametrize("weights", [135_000_000, 8_000_000_000, None])
def test_a_small_writer_is_given_less_to_read_and_what_would_be_quoted(
    library: Library, writer: ScriptedWriter, weights: int | None
) -> None:
    writer.weights = weights
    ask(library)
    (request,) = writer.requests
    small = weights == 135_000_000
    assert request.instruction == (ANSWER_BRIEFLY if small else ANSWER)
    assert (len(request.passages) <= 3) == small
    assert bool(request.notes) == small and all(note.startswith(HINT) and "1981" in note for note in request.notes)
    assert any("1981" in passage.text for passage in request.passages)


def test_the_command_line_says_why_it_quotes_and_shows_the_quotation_beside(
    library: Library, writer: ScriptedWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    def given(reply: str) -> str:
        writer.reply = lambda _request: reply

        def answer(on_token) -> Answer:
            for item in library.ask(QUESTION):
                if isinstance(item, Answer):
                    return item
                on_token(item.text)
            raise AssertionError

        print_answer(answer)
        return capsys.readouterr().out

    out = given(BABBLE)
    said = f"{BABBLE}\n\nThe documents support nothing of what scripted wrote. So a sentence is quoted.\n"
    assert out.startswith(said) and TRUE[:-1] in out.removeprefix(said)
    out = given(TRUE)
    assert out.startswith(f"{TRUE}\n\nWhat the documents say"), "neither text nor quotation is said twice"
    assert "+ supported: The dam was raised by three metres in 1981. [" in out
    out = given(f"{TRUE}\n\n{TRUE}\n\n" + " More." * 20)
    assert out.startswith(f"{TRUE}\n\n{TRUE}") and "More. More." not in out
    assert out.split("What the documents say")[0].count(TRUE[:-1]) == 2, "what only lost a repetition is not said again"
    assert re.search("The sentence that comes nearest: “.*The dam was raised", given(CITED))


def test_programs_are_told_both(library: Library, writer: ScriptedWriter) -> None:
    row = row_of_answer(ask(library), 1)
    assert row["set_aside"] == BABBLE and row["quotation"]["outcome"] == "found"
    assert row["quotation"]["short_answer"] == row["short_answer"] and "1981" in row["quotation"]["text"]


def test_a_chat_client_hears_the_quotation_last(library: Library, writer: ScriptedWriter, home: Path) -> None:
    messages = [{"role": "user", "content": QUESTION}]
    with (
        served(build_app(settings_for(home), library, page=False)) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key=OWNER_TOKEN, max_retries=0) as client,
    ):
        whole = client.chat.completions.create(model="cairn", messages=messages)  # type: ignore[arg-type]
        stream = client.chat.completions.create(model="cairn", messages=messages, stream=True)  # type: ignore[arg-type]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    quoted, _, _ = (whole.choices[0].message.content or "").partition(" [1]")
    assert text.startswith(f"{BABBLE}\n\n(The documents support nothing of what scripted wrote.")
    assert "The dam was raised" in quoted and f"\n\n{quoted}" in text and "Sources:\n[" in text
