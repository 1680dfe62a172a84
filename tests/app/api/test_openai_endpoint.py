"""The library as a model, through OpenAI's own client over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from app.api import build_app
from retrieval.errors import InvalidRequest, NotEnoughSpace
from retrieval.library import Library
from retrieval.types.writer import WriterRequest
from retrieval.writers import prompt
from tests.app.serving import served, settings_for
from tests.app.small_library import QUESTION, WALKS
from tests.scripted_writer import ScriptedWriter

TOKEN = "a-token-of-enough-length"


@pytest.fixture
def writer(library: Library) -> ScriptedWriter:
    writer = ScriptedWriter(lambda _request: "The dam was raised in 1981 [1].")
    library.use_writer(lambda: writer)
    return writer


@pytest.fixture
def address(library: Library, home: Path) -> Iterator[str]:
    app = build_app(settings_for(home, token=TOKEN), library, page=False)
    with served(app) as address:
        yield f"{address}/v1"


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=address, api_key=TOKEN, max_retries=0) as client:
        yield client


def said(*texts: str) -> Any:
    """Messages of a conversation, the user's first."""
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def test_a_library_is_a_model_and_so_is_each_collection(client: openai.OpenAI, library: Library) -> None:
    library.collections.create("Waterworks")
    assert [model.id for model in client.models.list()] == ["cairn", "cairn/Waterworks"]


def test_an_answer_comes_with_its_sources_and_its_record(client: openai.OpenAI, writer: ScriptedWriter) -> None:
    found = client.chat.completions.create(model="cairn", messages=said(QUESTION))
    text = found.choices[0].message.content or ""
    assert text.startswith("The dam was raised in 1981 [1].\n\nSources:\n[1] ") and text.endswith(", pages 1–3")
    assert found.choices[0].finish_reason == "stop"
    record = found.to_dict()["cairn"]
    assert record["writer"]["name"] == "scripted" and record["citations"][0]["number"] == 1  # type: ignore[index]


def test_the_same_answer_streams(client: openai.OpenAI, writer: ScriptedWriter) -> None:
    whole = client.chat.completions.create(model="cairn", messages=said(QUESTION)).choices[0].message.content
    chunks = list(client.chat.completions.create(model="cairn", messages=said(QUESTION), stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole
    assert len(chunks) > 5 and chunks[-1].choices[0].finish_reason == "stop"


def test_without_a_writer_the_quoted_sentence_is_the_answer(client: openai.OpenAI) -> None:
    for stream in (False, True):
        found = client.chat.completions.create(model="cairn", messages=said(QUESTION), stream=stream)
        text = (
            "".join(chunk.choices[0].delta.content or "" for chunk in found)  # type: ignore[union-attr]
            if stream
            else found.choices[0].message.content  # type: ignore[union-attr]
        )
        assert "1981" in text and "Sources:\n[1] Handbook of the reservoir, page 1" in text


def test_messages_before_the_question_are_the_conversation(client: openai.OpenAI, writer: ScriptedWriter) -> None:
    def reply(request: WriterRequest) -> str:
        return "Who raised the dam?" if request.instruction == prompt.REWRITE else "Martha Lindqvist [1]."

    writer.reply = reply
    messages = said(QUESTION, "In 1981 [1].\n\nSources:\n[1] Handbook, page 1", "And who?")
    client.chat.completions.create(model="cairn", messages=[{"role": "system", "content": "Be rude."}, *messages])
    rewriting, answering = writer.requests
    assert [(turn.question, turn.answer) for turn in rewriting.conversation] == [(QUESTION, "In 1981 [1].")]
    assert answering.question == "Who raised the dam?"
    assert "rude" not in str(writer.requests)


def test_a_collection_as_a_model_reads_nothing_else(
    client: openai.OpenAI, library: Library, writer: ScriptedWriter
) -> None:
    (walks,) = library.documents.list(search=WALKS)
    library.documents.move(walks.id, library.collections.create("Walks").id)
    client.chat.completions.create(model="cairn/Walks", messages=said(QUESTION))
    assert {passage.document_id for passage in writer.requests[-1].passages} == {walks.id}
    with pytest.raises(openai.NotFoundError, match="no model"):
        client.chat.completions.create(model="cairn/Secrets", messages=said(QUESTION))
    with pytest.raises(openai.NotFoundError, match="no model"):
        client.chat.completions.create(model="gpt-4", messages=said(QUESTION))


def test_content_in_parts_and_fields_of_other_models_are_accepted(
    client: openai.OpenAI, writer: ScriptedWriter
) -> None:
    client.chat.completions.create(
        model="cairn",
        messages=[{"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
        temperature=0.7,
        tools=[{"type": "function", "function": {"name": "delete_everything", "parameters": {}}}],
        max_tokens=9,
    )
    (request,) = writer.requests
    assert request.question == QUESTION and request.max_tokens == 9


def test_without_the_token_nobody_is_let_in(address: str) -> None:
    with openai.OpenAI(base_url=address, api_key="wrong-token-wrong-token", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()
        with pytest.raises(openai.AuthenticationError):
            stranger.chat.completions.create(model="cairn", messages=said(QUESTION))


def test_what_is_no_question_is_refused(client: openai.OpenAI) -> None:
    for messages in (said(QUESTION, "In 1981."), said("x" * 4001), [{"role": "system", "content": "Hi"}]):
        with pytest.raises(openai.UnprocessableEntityError):
            client.chat.completions.create(model="cairn", messages=messages)


@pytest.mark.parametrize(
    ("error", "status"), [(InvalidRequest("no"), 422), (NotEnoughSpace("a", 1, 0, 0), 507), (RuntimeError("x"), 500)]
)
def test_an_error_has_the_status_that_other_routes_give_it(
    client: openai.OpenAI, library: Library, error: Exception, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any, **_named: Any) -> Any:
        raise error

    monkeypatch.setattr(library, "ask", broken)
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(model="cairn", messages=said(QUESTION))
    assert refused.value.status_code == status


def test_a_writer_that_fails_is_named_in_the_answer(client: openai.OpenAI, writer: ScriptedWriter) -> None:
    writer.fails_after = 0
    found = client.chat.completions.create(model="cairn", messages=said(QUESTION))
    assert "The writer scripted cannot be used: it broke off" in (found.choices[0].message.content or "")
