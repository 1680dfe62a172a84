"""What a question is put with where nobody says otherwise is the same from every side."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from app.api.machine import PreferenceChange
from app.api.mcp_tools import build_mcp
from app.api.questions import AskRequest, SearchRequest
from app.cli import questions
from app.preferences import Preferences
from retrieval.library import Library
from retrieval.types.answers import DEFAULT_K, DEFAULT_MAX_TOKENS, DEFAULT_POSITIONS, DEFAULT_QUOTE, DEFAULT_VOTERS

DEFAULTS = {
    "k": DEFAULT_K, "quote": DEFAULT_QUOTE, "max_tokens": DEFAULT_MAX_TOKENS, "voters": DEFAULT_VOTERS,
    "positions": DEFAULT_POSITIONS,
}  # fmt: skip


def defaults_of(function: Any) -> dict[str, Any]:
    """Those of the names above that the function knows."""
    parameters = {name.replace("top_k", "k"): one for name, one in inspect.signature(function).parameters.items()}
    return {name: parameters[name].default for name in DEFAULTS if name in parameters}


def test_the_facade_has_them_all() -> None:
    assert defaults_of(Library.ask) == DEFAULTS
    assert defaults_of(Library.search) == {"k": DEFAULT_K}


def test_the_command_line_agrees() -> None:
    assert defaults_of(questions.ask) == DEFAULTS
    assert defaults_of(questions.search) == {"k": DEFAULT_K}


def test_http_agrees() -> None:
    """A question that says nothing takes the preferences, and these begin with the same values."""
    plain = Preferences()
    assert {name: getattr(plain, {"k": "top_k"}.get(name, name)) for name in DEFAULTS} == DEFAULTS
    request = AskRequest(question="Why?")
    assert [getattr(request, name) for name in DEFAULTS] == [None] * len(DEFAULTS)
    assert SearchRequest(query="dam").k == DEFAULT_K
    assert set(PreferenceChange.model_fields) == set(Preferences.model_fields)


@pytest.mark.parametrize(("tool", "names"), [("ask", ("k", "quote")), ("search", ("k",))])
async def test_mcp_agrees(tool: str, names: tuple[str, ...]) -> None:
    server = build_mcp(None, None)  # type: ignore[arg-type] - no tool is called
    (found,) = [one for one in await server.list_tools() if one.name == tool]
    properties = found.input_schema["properties"]
    assert {name: properties[name]["default"] for name in names} == {name: DEFAULTS[name] for name in names}
    assert not {"max_tokens", "voters"} & set(properties), "named above as soon as the tool takes them"
