"""Exact text: words in any form that people write them, regular expressions, and places that are right."""

from __future__ import annotations

import pytest

from retrieval.errors import InvalidRequest
from retrieval.index.exact_text import Wanted
from retrieval.types.records import Scope
from tests.retrieval.conftest import FOX


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        ("cafe", "Le CAFÉ noir", "CAFÉ"),
        ("café", "Le cafe\u0301 noir", "cafe\u0301"),
        ("Malmo", "in Malmö", "Malmö"),
        ("line two", "line\n  two", "line\n  two"),
        ("office", "the o\ufb03ce", "o\ufb03ce"),
        ("strasse", "Lange Straße 4", "Straße"),
        ("straße", "LANGE STRAẞE 4", "STRAẞE"),
        ("AB-12", "code ＡＢ-１２ here", "ＡＢ-１２"),
        ("invoice", "in\u00advoice", "in\u00advoice"),
        ("4711", "no 47\u200b11.", "47\u200b11"),
        ("(a+b)*", "x (A+B)* y", "(A+B)*"),
        ("東京", "は東京です", "東京"),
    ],
)
def test_words_match_in_every_form(words, text, found):
    assert [text[start:end] for start, end in Wanted.of_words(words).places(text)] == [found]


@pytest.mark.parametrize("text", ["caf noir", "VK-2440-D", "line. two"])
def test_what_is_written_otherwise_does_not_match(text):
    assert not any(list(Wanted.of_words(words).places(text)) for words in ("cafe", "VK-2040-D", "line two"))


@pytest.mark.parametrize("expression", ["", "(", "a*", "x" * 501])
def test_an_expression_that_means_nothing_is_refused(expression):
    with pytest.raises(InvalidRequest):
        Wanted.of_expression(expression)


def test_an_expression_that_takes_too_long_is_refused(monkeypatch):
    monkeypatch.setattr("retrieval.index.exact_text.SECONDS_A_DOCUMENT", 0.01)
    with pytest.raises(InvalidRequest, match="Make it simpler"):
        list(Wanted.of_expression(r"(\w|\w\w)+\d$").places("a" * 5000))


def test_places_are_those_of_the_stored_text(library, three):
    (hit,) = library.documents.grep("BROWN   fox", limit=1)
    assert hit.source == "fox.txt" and hit.document_id == three["fox"]
    (page,) = library.documents.read(three["fox"])
    assert page.text[hit.start : hit.end].lower() == "brown fox" and "brown fox" in hit.line
    assert library.documents.grep(r"\bquick\s\w+", expression=True, each=1)[0].start == FOX.strip().index("quick")
    assert library.documents.grep("brown fox", within=Scope(document_ids=(three["whale"],))) == []


def test_documents_are_found_by_name_before_those_that_hold_the_words(library, three):
    found = [one.id for one in library.documents.list(search="whale")]
    assert found[0] == three["whale"]
    assert three["fox"] in {one.id for one in library.documents.list(search="lazy dog")}
    assert library.documents.list(search="no such words anywhere") == []
