"""A home: whose memory it holds, in which numbers, who else may read it or change it."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from retrieval.errors import MemoryMismatch
from retrieval.extraction.extract import extract
from retrieval.ingest import pipeline
from storage.privacy import NotPrivate
from tests.retrieval.conftest import BLOCK_SIZE, FOX, RAIN, WHALE, add, ask
from tests.tiny_model import tiny_model

pytestmark = pytest.mark.sqlite_only


def test_another_models_memory_is_refused_with_the_fields_that_differ(library, three, open_library):
    other = open_library(model=tiny_model(block_size=BLOCK_SIZE, seed=2, window_blocks=4, context_blocks=2))
    for use in (lambda: other.search("fox"), lambda: list(other.ask("fox?"))):
        with pytest.raises(MemoryMismatch, match="weights.*cairn repair --reingest") as refused:
            use()
        assert refused.value.fields == ("weights",)
    with pytest.raises(MemoryMismatch, match="kv_dtype is bf16 in the memory and int8 here"):
        open_library(kv_dtype="int8").search("fox")
    assert [document.state for document in other.documents.list()] == ["ready"] * 3, "looking and deleting still work"
    assert any("does not belong" in problem for problem in other.maintenance.doctor()["problems"])


def test_the_doctor_says_what_memory_to_expect(open_library, write):
    """Landmarks of a million tokens, blocks that are kept, and a question at work."""
    library = open_library(block_cache_bytes=7 << 20)
    add(library, write("fox.txt", FOX))
    assert library.search("fox", 1)
    told, blocks = library.maintenance.doctor(), library.maintenance.doctor()["memory"]["num_blocks"]
    index = told["index"]
    landmarks = library.view.index.size_bytes - library.view.index._cache.size_bytes
    assert index["cached_blocks_bytes_at_most"] == 7 << 20
    assert index["bytes_per_million_tokens"] == pytest.approx(landmarks / blocks * 1e6 / (BLOCK_SIZE - 1), rel=0.01)
    assert 0 < told["bytes_per_question_at_work_at_most"] < 1 << 30


@pytest.mark.parametrize(("answers", "dtype"), [("quoted", "k4v2"), ("generated", "bf16")])
def test_a_new_home_takes_the_smallest_numbers_that_suit_its_model(open_library, write, answers, dtype):
    model = tiny_model(block_size=BLOCK_SIZE, window_blocks=4, context_blocks=2, answers=answers)
    library = open_library(model=model)
    add(library, write("fox.txt", FOX))
    assert library.maintenance.doctor()["memory"]["kv_dtype"] == dtype
    assert library.search("fox", 1) and library.maintenance.verify().damage == ()


def test_a_home_keeps_the_numbers_of_its_memory(open_library, write):
    model = tiny_model(block_size=BLOCK_SIZE, window_blocks=4, context_blocks=2, answers="quoted")
    earlier = open_library(model=model, kv_dtype="bf16")
    add(earlier, write("fox.txt", FOX))
    before = earlier.search("fox", 3)
    later = open_library(model=model)
    assert later.search("fox", 3) == before
    add(later, write("whale.txt", WHALE))
    assert {fingerprint.fields["kv_dtype"] for fingerprint in later.view.catalogue.fingerprints(in_use=True)} == {
        "bf16"
    }
    size_bytes = later.maintenance.doctor()["memory"]["size_bytes"]
    smaller = open_library(model=model, kv_dtype="k4v2")
    with pytest.raises(MemoryMismatch, match="kv_dtype is bf16 in the memory and k4v2 here"):
        smaller.search("fox")
    assert smaller.maintenance.repair(reingest=True).failed == ()
    assert open_library(model=model).maintenance.doctor()["memory"]["size_bytes"] < size_bytes / 2


def test_reading_again_hands_the_documents_to_another_model(library, three, open_library, write, tmp_path):
    library.documents.rename(three["fox"], "Mine")
    new = tiny_model(block_size=BLOCK_SIZE, seed=2, window_blocks=4, context_blocks=2)
    other = open_library(model=new)
    report = other.maintenance.repair(reingest=True)
    assert sorted(report.repaired) == ["fox.txt", "rain.txt", "whale.txt"] and not report.failed
    assert other.documents.get(three["fox"]).title == "Mine"
    fresh = open_library(model=new, home=tmp_path / "fresh")
    for name, text in (("fox", FOX), ("whale", WHALE), ("rain", RAIN)):
        add(fresh, write(f"{name}.txt", text))
    assert ask(other, "What do whales do?").text == ask(fresh, "What do whales do?").text
    assert other.maintenance.verify().ok and not other.maintenance.verify().orphans


def test_documents_may_be_read_again_in_the_background_one_by_one(library, three, open_library):
    other = open_library(model=tiny_model(block_size=BLOCK_SIZE, seed=2, window_blocks=4, context_blocks=2))
    assert other.maintenance.repair(reingest=True, later=True).repaired == ()
    waiting = other.jobs.list(active_only=True)
    assert sorted(job.source for job in waiting) == ["fox.txt", "rain.txt", "whale.txt"]
    assert {job.note for job in waiting} == {"read again for another model"}
    assert other.jobs.run(waiting[0].id).state == "done"
    assert {passage.document_id for passage in other.search("What do they do?", 9)} == {waiting[0].document_id}


def test_the_library_opens_without_the_model(open_library, three, library):
    def must_not_load():
        raise AssertionError("the model was loaded")

    idle = open_library(model=must_not_load)
    assert len(idle.documents.list()) == 3 and idle.maintenance.verify().ok
    assert idle.documents.delete([three["fox"]]).documents == 1
    assert idle.maintenance.gc().files == ()


def test_a_change_by_another_process_is_seen_by_the_next_question(library, three, open_library, write):
    second = open_library()  # its own catalogue and index, as another process would have
    assert len(library.search("fox", 200)) == len(second.search("fox", 200))
    added = add(second, write("new.txt", "Something entirely new. " * 20))
    assert added in {passage.document_id for passage in library.search("fox", 400)}
    second.documents.delete([added, three["fox"]])
    assert {passage.document_id for passage in library.search("fox", 400)} == {three["whale"], three["rain"]}


def test_a_text_that_another_process_has_read_anew_is_shown_though_it_is_as_long(
    library, open_library, write, monkeypatch
):
    document_id = add(library, write("tree.txt", FOX.replace("fox", "elm")))
    assert library.documents.find(document_id, "elm")
    second = open_library()
    catalogue = second.view.catalogue
    stored = catalogue.extracted_text(document_id)
    catalogue.save_extracted(  # by an older version
        document_id, text=stored.text, pages_read=catalogue.pages(document_id), extras={}
    )

    def read_better(*given, **settings):
        read = extract(*given, **settings)
        return replace(read, text=read.text.replace("elm", "oak"))

    monkeypatch.setattr(pipeline, "extract", read_better)
    assert second.maintenance.repair(reingest=True).failed == ()
    assert library.documents.find(document_id, "oak") and not library.documents.find(document_id, "elm")
    assert any("oak" in passage.text for passage in library.search("oak", 9))


def test_a_home_that_others_can_read_is_closed_to_them(open_library, tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    library = open_library()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    catalogue = home / "cairn.sqlite3"
    assert stat.S_IMODE(catalogue.stat().st_mode) == 0o600
    library.close()


def test_a_home_that_cannot_be_closed_to_others_is_refused(open_library, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", lambda self, mode: None)  # as on a disk without access rights
    with pytest.raises(NotPrivate, match="chmod -R go="):
        open_library()
