"""Misspelt words of a question become the nearest words of the library; all others stay."""

from __future__ import annotations

import pytest

from retrieval.library import Library
from retrieval.query.spelling import corrected, nearest_words
from tests import elsewhere
from tests.retrieval.conftest import SHARD_BYTES, add

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


@pytest.mark.parametrize(
    ("asked", "understood"),
    [
        ("Who is the superintendant?", "Who is the superintendent?"),
        ("how much does a clorine cilinder weigh", "how much does a chlorine cylinder weigh"),
        ("Reservior?", "Reservoir?"),
        ("Explosivess", "Explosives"),
        ("Who holds the licence?", "Who holds the licence?"),
        ("Which hydrofoil?", "Which hydrofoil?"),
        ("Is 65 kilogrms right?", "Is 65 kilograms right?"),
        ("lic", "lic"),
    ],
)
def test_only_what_is_one_letter_from_a_word_of_the_library_changes(handbook, model, asked, understood):
    assert corrected(handbook.view.catalogue, model, asked) == understood


def test_an_empty_library_changes_nothing(library, model):
    assert corrected(library.view.catalogue, model, "superintendant") == "superintendant"


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
