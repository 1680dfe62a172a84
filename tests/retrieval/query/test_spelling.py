"""Of misspelt words the nearest of the library are named; questions stay as they are typed."""

from __future__ import annotations

import pytest

from retrieval.library import Library
from retrieval.query.spelling import nearest_words
from tests import elsewhere
from tests.retrieval.conftest import SHARD_BYTES, add, ask

TEXT = (
    "The superintendent holds the licence for explosives. Chlorine cylinders weigh 65 kilograms. "
    "Dvořák wrote about the reservoir."
)


@pytest.fixture(scope=elsewhere.shared("module"))
def handbook(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("handbook")
    (folder / "handbook.txt").write_text(TEXT * 4)
    with Library.open(folder / "home", model, shard_bytes=SHARD_BYTES) as library:
        add(library, folder / "handbook.txt")
        yield library


def test_a_question_is_asked_as_it_is_typed(handbook):
    assert ask(handbook, "Who is the superintendant?").settings["asked"] == "Who is the superintendant?"


def test_an_empty_library_has_no_nearest_word(library):
    assert nearest_words(library.view.catalogue, "superintendant") == ""


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        ("resevoir", "reservoir"),
        ("clorine cylinders", "chlorine cylinders"),
        ("weihg", "weigh"),
        ("SUPERINTENDANT", "Superintendent"),
        ("Chlorine", ""),
        ("hydrofoil", ""),
        ("licence 65", ""),
        ("lic", ""),
        ("Reservior?", "Reservoir?"),
        ("much a clorine cilinder", "much a chlorine cylinder"),
    ],
)
def test_the_nearest_words_are_named_only_for_words_that_no_document_holds(handbook, words, nearest):
    assert handbook.documents.nearest(words) == nearest_words(handbook.view.catalogue, words) == nearest


def test_documents_with_the_nearest_words_are_listed_where_none_holds_the_words(handbook, write):
    other = add(handbook, write("other.txt", "Other words stand here. " * 20))
    found, nearest = handbook.documents.listed("resevoir")
    assert [one.source for one in found] == ["handbook.txt"] and nearest == "reservoir"
    assert handbook.documents.listed("reservoir") == (found, "")
    assert handbook.documents.listed("hydrofoil") == ([], "")
    assert handbook.documents.list(search="resevoir") == [], "the words as typed"
    handbook.documents.delete([other])


def test_a_typed_phrase_comes_first_in_a_search(library, three, write):
    document = add(library, write("codes.txt", "Pump X-17/b hums. " + "Other words stand here and there. " * 60))
    found = library.search("pump X-17/B hums", 3)
    assert found[0].document_id == document and "X-17/b" in found[0].text
    assert found[0].score >= found[1].score
