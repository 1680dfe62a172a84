"""An encoder as the library's finder: documents are stored, found and quoted without a landmark model."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.checkpoint.load import load_backbone
from model.reading import span_reader
from research.train.recipes.rounding import save_reader
from retrieval.errors import InvalidRequest, MemoryMismatch
from retrieval.types.answers import Answer
from tests.retrieval.conftest import FOX, RAIN, TEXTS, WHALE, add, ask
from tests.tiny_encoder import save_tiny_encoder
from tests.tiny_reader import tiny_reader

QUESTION = "Whales sing across what of the ocean?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_encoder(tmp_path_factory.mktemp("encoder") / "tiny", [*TEXTS.values(), QUESTION])


@pytest.fixture
def finder(folder):
    return load_backbone(folder, device="cpu", block_size=16)


@pytest.fixture
def found(open_library, write, finder):
    """A library with three documents that the encoder has read."""
    library = open_library(model=finder)
    for name, text in {"fox": FOX, "whale": WHALE, "rain": RAIN}.items():
        add(library, write(f"{name}.txt", text))
    return library


def test_the_block_with_the_words_of_the_question_is_found_first(found):
    passage = found.search(QUESTION, 3)[0]
    assert passage.source == "whale.txt" and "sing across the whole of the ocean" in " ".join(passage.text.split())


def test_the_answer_is_a_sentence_as_it_stands_in_the_document(found):
    answer = ask(found, QUESTION, max_tokens=40)
    assert answer.found and answer.quote and answer.text == "Whales sing across the whole of the ocean."
    assert answer.quotation is not None and answer.quotation.passage.text == answer.text
    assert not answer.short, "it points at no words"
    text = found.view.passages.text(answer.quotation.passage.document_id)
    spoken = "".join(text[start:end] for _, start, end in (token.quoted_from for token in answer.tokens))
    assert "".join(spoken.split()) == "".join(answer.text.split())
    assert all(token.logprob is None and not token.blocks for token in answer.tokens) and answer.heat == {}
    assert answer.passages[0].score > 0, "passages show what search gave them"
    assert Answer.from_dict(answer.to_dict()) == answer == found.answers.get(answer.id)


@pytest.mark.files_only
def test_only_keys_are_stored_and_verified(found):
    assert found.maintenance.doctor()["memory"]["kv_dtype"] == "k4"
    report = found.maintenance.verify()
    assert report.shards and report.damage == ()
    path = next((found.view.workspace.kv_folder).rglob("*.kv"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert len(found.maintenance.verify().damage) == 1
    assert len(found.maintenance.repair().repaired) == 1
    assert found.maintenance.verify().damage == ()


def test_what_needs_words_of_its_own_is_refused(found):
    with pytest.raises(InvalidRequest, match="has no words of its own"):
        list(found.ask(QUESTION, quote=False))
    answer = ask(found, QUESTION)
    with pytest.raises(InvalidRequest, match="did not choose"):
        found.answers.effect_of_block(answer.id, answer.passages[0].block_ids[0])


def test_the_memory_is_bound_to_the_encoder_and_its_prefixes(found, open_library, folder):
    other = load_backbone(folder, device="cpu", block_size=16, passage_prefix="the fox")
    with pytest.raises(MemoryMismatch, match="finder"):
        open_library(model=other).search("fox")
    again = open_library(model=load_backbone(folder, device="cpu", block_size=16))
    assert again.search(QUESTION, 2) == found.search(QUESTION, 2)


def test_another_kind_of_finder_takes_the_home_over_with_numbers_that_suit_it(found, open_library, model):
    """A landmark model needs the values that an encoder does not have."""
    with pytest.raises(InvalidRequest, match="stores no values"):
        open_library(model=model, kv_dtype="k4").search("fox")
    other = open_library(model=model)
    assert other.maintenance.repair(reingest=True).failed == ()
    assert other.maintenance.doctor()["memory"]["kv_dtype"] == "bf16" and other.search("fox", 1)


def test_a_reader_of_the_same_vocabulary_reads_again_and_points(found, folder, open_library, tmp_path, monkeypatch):
    """The shipped checkpoint's, here a tiny one in its place."""
    shipped = tmp_path / "model"
    reader = tiny_reader([*TEXTS.values(), QUESTION])
    save_reader(reader, shipped / "default")
    monkeypatch.setattr(span_reader, "__file__", str(shipped / "reading" / "span_reader.py"))
    finder = load_backbone(folder, device="cpu", block_size=16)
    assert span_reader.shipped_reader_for(finder.tokenizer) == shipped / "default" / "reader"
    answer = ask(open_library(model=finder), QUESTION, anyway=True, max_tokens=64)
    assert answer.decided_by == "reader" and answer.short
    other = save_tiny_encoder(tmp_path / "other", ["Das Wasser ist kalt"])
    assert span_reader.shipped_reader_for(load_backbone(other, device="cpu", block_size=16).tokenizer) is None


def test_keys_of_a_colbert_style_projection_find_too(open_library, write, tmp_path):
    folder = save_tiny_encoder(tmp_path / "colbert", [*TEXTS.values(), QUESTION], project_to=8)
    library = open_library(model=load_backbone(folder, device="cpu", block_size=16), home=tmp_path / "other")
    add(library, write("whale.txt", WHALE))
    assert library.search(QUESTION, 1)[0].source == "whale.txt"
    assert library.view.workspace.loaded().layout.head_dim == 8
