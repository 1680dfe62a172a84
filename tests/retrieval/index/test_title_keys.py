"""A document's title takes part in search."""

from __future__ import annotations

import shutil

import pytest
import torch

from model.inference.prefill import prefill
from retrieval.index.title_keys import TitleMatches, title_keys
from retrieval.library import Library
from storage.errors import NotFound as NoRow
from storage.records import Principal
from tests.retrieval.conftest import add, ask
from tests.tiny_model import shipped_model, tiny_model

COUNTRIES = {
    "Greenland": "The climate is arctic in the north. The terrain is a flat ice cap. Fish is the main export.",
    "San_Marino": "The climate is mild, with cool winters. The terrain is rugged. Building stone is the main export.",
    "Bhutan": "The climate is tropical in the plains. The terrain is mountainous. Electricity is the main export.",
}
CLIMATE = {"Greenland": "arctic", "San Marino": "mild", "Bhutan": "tropical"}


@pytest.fixture(scope="module")
def shipped():
    return shipped_model()


@pytest.fixture(scope="module")
def countries_home(shipped, tmp_path_factory):
    folder = tmp_path_factory.mktemp("countries")
    with Library.open(folder / "home", shipped, shard_bytes=20_000) as library:
        for name, text in COUNTRIES.items():
            (folder / f"{name}.txt").write_text(text)
            add(library, folder / f"{name}.txt")
    return folder / "home"


@pytest.fixture
def countries(countries_home, open_library, shipped, tmp_path):
    """A library in a copy of that home; ids of its documents by the names of their files."""
    shutil.copytree(countries_home, tmp_path / "home")
    library = open_library(model=shipped)
    return library, {document.source.removesuffix(".txt"): document.id for document in library.documents.list()}


@pytest.mark.parametrize("country", CLIMATE)
def test_a_question_that_names_the_document_finds_it_there(countries, country):
    library, ids = countries
    question = f"What is the climate of {country}?"
    assert library.search(question, 1)[0].document_id == ids[country.replace(" ", "_")]
    answer = ask(library, question)
    assert CLIMATE[country] in answer.text and answer.passages[0].document_id == ids[country.replace(" ", "_")]


def test_a_new_title_is_the_one_that_counts(countries):
    library, ids = countries
    question = "What is the climate of Iceland?"
    before = library.search(question, 3)
    library.documents.rename(ids["Bhutan"], "Iceland")
    after = library.search(question, 3)
    assert after[0].document_id == ids["Bhutan"]
    assert after[0].score > max(one.score for one in before if one.document_id == ids["Bhutan"])
    # The catalogue alone renames: keys of the old title count no more.
    library.view.catalogue.rename_document(ids["Bhutan"], "Norway")
    assert library.view.catalogue.title_keys(list(ids.values())).keys() == {ids["Greenland"], ids["San_Marino"]}


def test_titles_of_others_do_not_take_part(open_library, write, shipped):
    library = open_library(model=shipped)
    people = {}
    for name in ("ann", "bob"):
        library.accounts.create(name, "hash")
        people[name] = library.as_seen_by(Principal(library.accounts.get(name).id, name))
    document_id = add(people["ann"], write("Greenland.txt", COUNTRIES["Greenland"]))
    assert people["ann"].view.catalogue.title_keys([document_id]).keys() == {document_id}
    assert people["bob"].view.catalogue.title_keys([document_id]) == {}
    with pytest.raises(NoRow):
        people["bob"].view.catalogue.put_title_keys(document_id, "Greenland", b"")


@pytest.mark.parametrize("title", ["Whale", "a_file-name_of_2019", "x" * 300, "café — Übersicht"])
def test_keys_are_those_of_the_end_of_a_sentence_about_it(title):
    model = tiny_model(block_size=8, window_blocks=4, context_blocks=2, ranks_by_tokens=True)
    keys_TWGD = title_keys(model, title)
    opening = len(model.tokenize("This is about").ids)
    spelled = f" {title.replace('_', ' ')}"
    ids = [*model.tokenize("This is about").ids, *model.tokenize(spelled).ids[:32]]
    expected = torch.cat([block.keys_YGLD[:, :, : block.num_tokens] for block in prefill(model, ids)], 2)[
        :, :, opening:
    ]
    expected = expected.permute(2, 0, 1, 3)
    assert keys_TWGD.shape == expected.shape == (len(ids) - opening, 2, model.num_kv_heads, model.head_dim)
    torch.testing.assert_close(keys_TWGD.float(), expected, atol=1e-2, rtol=1e-2)


def test_a_document_without_keys_for_its_title_matches_nothing(countries):
    library, ids = countries
    workspace = library.view.workspace
    model = workspace.loaded().model
    queries_QWGD = torch.randn(4, 1, model.num_kv_heads, model.head_dim)
    matches = TitleMatches(workspace.catalogue, queries_QWGD, model.device)
    matches_QX = matches.of([ids["Bhutan"], "0" * 32, ids["Greenland"]])
    assert matches_QX.shape == (4, 3) and not matches_QX[:, 1].any() and matches_QX[:, 0].any()
    assert matches.of([]).shape == (4, 0)


def test_the_keys_of_a_title_are_fetched_once_a_question(countries, monkeypatch):
    library, _ = countries
    fetched: list[str] = []
    real = library.view.catalogue.title_keys
    monkeypatch.setattr(library.view.catalogue, "title_keys", lambda ids: fetched.extend(ids) or real(ids))
    ask(library, "What is the climate of Bhutan?")
    assert len(fetched) == len(set(fetched)) == 3


def test_models_that_search_by_landmarks_alone_keep_no_titles(open_library, write, model):
    library = open_library()
    document_id = add(library, write("whale.txt", "Whales sing. " * 40))
    assert library.view.catalogue.title_keys([document_id]) == {}
