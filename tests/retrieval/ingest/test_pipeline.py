"""Jobs: durable, resumable, cancellable, bounded, and behind every question."""

from __future__ import annotations

import shutil
import threading
import time
from itertools import count
from types import SimpleNamespace

import pytest
from PIL import Image

from retrieval.errors import CairnError, ExtractError, NotEnoughSpace
from retrieval.ingest import estimate, pipeline, shard_writer
from retrieval.ingest.pipeline import Ingestion
from retrieval.ingest.shard_writer import stored_blocks_before
from storage.catalogue import Catalogue
from storage.errors import CatalogueFull
from storage.records import Principal
from tests.retrieval.conftest import FOX, RAIN, add, ask, prose, substance

LONG = prose(7, 2600)


def memory_of(library):
    """All stored keys and values of the only document, by layer."""
    loaded = library.view.workspace.loaded()
    shards = library.view.catalogue.shards()
    refs = [(shard.name, row) for shard in shards for row in range(shard.num_blocks)]
    return [loaded.store.read_many(refs, layer) for layer in loaded.layout.layers]


def assert_same_memory(one, other):
    for (keys, values), (keys_too, values_too) in zip(memory_of(one), memory_of(other), strict=True):
        assert keys.equal(keys_too) and values.equal(values_too)


class Interrupted(BaseException):
    pass


def interrupt_after(reports: int):
    seen = []

    def check(job):
        seen.append(job)
        if len(seen) >= reports:
            raise Interrupted

    return check


@pytest.mark.parametrize(("kv_dtype", "shard_bytes"), [("bf16", 40_000), ("int8", 20_000), ("k4v2", 10_000)])
def test_an_interrupted_job_goes_on_at_its_last_shard_and_ends_with_the_same_memory(
    open_library, write, tmp_path, kv_dtype, shard_bytes
):
    path, settings = write("long.txt", LONG), {"kv_dtype": kv_dtype, "shard_bytes": shard_bytes}
    calm = open_library(home=tmp_path / "calm", **settings)
    add(calm, path)
    troubled = open_library(home=tmp_path / "troubled", **settings)
    job = troubled.documents.submit(path)
    for reports in (4, 9, 14):
        with pytest.raises(Interrupted):
            troubled.jobs.run(job.id, on_progress=interrupt_after(reports))
        assert troubled.search("fox", 5) == [], "half a document is never seen"
        assert troubled.jobs.get(job.id).state == "queued"
    shards = len(troubled.view.catalogue.shards())
    assert 0 < shards < len(calm.view.catalogue.shards())
    done = open_library(home=tmp_path / "troubled", **settings).jobs.run(job.id)
    assert done.state == "done" and done.tokens_done == done.tokens == calm.documents.list()[0].tokens
    assert_same_memory(calm, troubled)
    mine, other = substance(ask(calm, "What crosses the bridge?")), substance(ask(troubled, "What crosses the bridge?"))
    for each in (mine, other):
        for passage in (*each["passages"], *each["near_misses"]):
            del passage["document_id"]
    assert mine == other


def test_the_size_of_shards_does_not_change_the_memory(open_library, write, tmp_path):
    path = write("long.txt", LONG)
    homes = [open_library(home=tmp_path / str(size), shard_bytes=size) for size in (1, 60_000, 1 << 30)]
    for library in homes:
        add(library, path)
    assert [len(library.view.catalogue.shards()) for library in homes] == sorted(
        (len(library.view.catalogue.shards()) for library in homes), reverse=True
    )
    assert len(homes[2].view.catalogue.shards()) == 1 < len(homes[0].view.catalogue.shards())
    for library in homes[1:]:
        assert_same_memory(homes[0], library)


def test_a_cancelled_job_stops_within_a_window_and_a_retry_goes_on(library, write):
    job = library.documents.submit(write("long.txt", LONG))
    seen = []

    def cancel(progress):
        seen.append(progress)
        if len(seen) == 6:
            library.jobs.cancel(job.id)

    ended = library.jobs.run(job.id, on_progress=cancel)
    assert (ended.state, len(seen)) == ("cancelled", 6)
    assert library.documents.get(job.document_id).state == "cancelled"
    assert library.search("fox", 3) == [] and library.maintenance.verify().ok
    stored = {shard.name for shard in library.view.catalogue.shards()}
    assert stored
    assert library.jobs.retry(job.id).state == "queued"
    assert library.jobs.run(job.id).state == "done"
    assert stored < {shard.name for shard in library.view.catalogue.shards()}, "it went on, it did not start anew"
    assert len(library.search("fox", 3)) == 3


def test_a_job_cancelled_before_it_began_never_begins(library, write):
    job = library.documents.submit(write("a.txt", FOX))
    assert library.jobs.cancel(job.id).state == "cancelled"
    assert library.jobs.run(job.id).state == "cancelled" and library.jobs.run_next() is None


def test_a_document_deleted_under_its_job_leaves_nothing(library, write):
    job = library.documents.submit(write("long.txt", LONG))
    seen = []

    def delete(progress):
        seen.append(progress)
        if len(seen) == 6:
            library.documents.delete([job.document_id])

    assert library.jobs.run(job.id, on_progress=delete).state == "cancelled"
    assert library.documents.list() == [] and library.jobs.list() == []
    assert library.maintenance.verify().ok and not library.maintenance.verify().orphans


def test_progress_grows_and_tells_pages_tokens_speed_and_what_is_left(library, write):
    seen = []
    job = library.jobs.run(library.documents.submit(write("long.txt", LONG)).id, on_progress=seen.append)
    stages = list(dict.fromkeys(each.stage for each in seen))
    assert stages == ["extracting", "reading", "done"]
    assert [each.tokens_done for each in seen] == sorted(each.tokens_done for each in seen)
    assert (job.tokens_done, job.pages_done, job.pages) == (job.tokens, 1, 1)
    assert job.tokens_per_second > 0 and job.seconds > 0 and job.size_bytes > 0
    assert library.jobs.list()[0] == job == library.jobs.get(job.id)
    assert library.jobs.list(active_only=True) == []


def test_a_file_that_cannot_be_read_fails_alone_with_its_reason(library, write, tmp_path):
    bad = tmp_path / "bad.pdf"
    bad.write_bytes(b"%PDF-1.7 this is no document")
    empty = write("empty.md", "   \n\n ")
    failed = [library.jobs.run(library.documents.submit(path).id) for path in (bad, empty)]
    assert [job.state for job in failed] == ["failed", "failed"]
    assert all(len(job.error) > 20 and "Traceback" not in job.error for job in failed)
    good = add(library, write("good.txt", FOX))
    assert library.documents.get(good).state == "ready"
    assert library.documents.get(failed[0].document_id).state == "failed"
    assert library.documents.delete([job.document_id for job in failed]).documents == 2


def test_files_that_are_no_documents_are_refused_when_handed_in(library, tmp_path, write):
    for path, reason in ((tmp_path / "missing.pdf", "no file"), (write("a.exe", "x"), "cannot be read")):
        with pytest.raises(ExtractError, match=reason):
            library.documents.submit(path)
    assert library.documents.list() == [] and not list(library.view.workspace.files_folder.iterdir())


@pytest.mark.files_only
def test_a_disk_without_room_is_noticed_before_the_work(library, write, monkeypatch):
    path = write("long.txt", LONG)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
        reasons = "needs about less than 1 MB on disk, and 67 MB must stay free for the catalogue; only less than 1 MB"
        with pytest.raises(NotEnoughSpace, match=reasons):
            library.documents.submit(path)
    job = library.documents.submit(path)
    with monkeypatch.context() as patch:
        free = (64 << 20) + path.stat().st_size + 100_000
        patch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": free})())
        failed = library.jobs.run(job.id)
    assert failed.state == "failed" and "free" in failed.error and failed.tokens_done == 0
    library.jobs.retry(job.id)
    assert library.jobs.run(job.id).state == "done"


def test_a_job_whose_end_cannot_be_recorded_is_done_once_the_catalogue_has_room_again(library, write, monkeypatch):
    job = library.documents.submit(write("long.txt", LONG))

    def full(*_args: object, **_settings: object) -> None:
        raise CatalogueFull("The catalogue cannot grow: the disk is full.")

    with monkeypatch.context() as patch:
        for method in ("commit_shard", "end_job"):
            patch.setattr(Catalogue, method, full)
        with pytest.raises(CatalogueFull):
            library.jobs.run_next()
    ended = library.jobs.run_next()
    assert ended is not None and (ended.id, ended.state) == (job.id, "done")


def test_the_estimate_is_what_ingestion_then_takes(library, write):
    path = write("long.txt", LONG)
    estimate = library.documents.estimate(path)
    assert not estimate.already_stored and estimate.exact and estimate.fits
    document = library.documents.get(add(library, path))
    assert (estimate.tokens, estimate.blocks, estimate.pages) == (document.tokens, document.blocks, document.pages)
    assert estimate.size_bytes == pytest.approx(document.size_bytes, rel=0.1)
    stored = library.documents.estimate(path, watch=lambda done, total: pytest.fail("it was looked through once more"))
    assert stored.already_stored and (stored.pages, stored.seconds) == (estimate.pages, 0)


def test_jobs_are_worked_off_oldest_first(library, write):
    first = library.documents.submit(write("a.txt", FOX), collection="mine", source="A file.txt")
    second = library.documents.submit(write("b.txt", RAIN))
    assert [job.id for job in library.jobs.list(active_only=True)] == [second.id, first.id]
    assert library.jobs.run_next().id == first.id
    assert library.jobs.run_next().id == second.id
    assert library.jobs.run_next() is None
    document = library.documents.get(first.document_id)
    assert (document.source, document.title) == ("A file.txt", "A file")
    assert document.collection_id == library.collections.list()[0].id and library.collections.list()[0].name == "mine"


def test_a_long_document_gives_way_at_the_end_of_a_shard_to_somebody_elses(library, write, monkeypatch):
    monkeypatch.setattr(pipeline, "TURN_SECONDS", 0.0)
    ann, bob = (
        library.as_seen_by(Principal(library.accounts.create(name, "no password").id, name)) for name in ("ann", "bob")
    )
    long, short = ann.documents.submit(write("long.txt", LONG)), bob.documents.submit(write("short.txt", FOX))
    first = library.jobs.run_next()
    assert (first.id, first.state) == (long.id, "queued") and 0 < first.tokens_done < first.tokens
    assert library.jobs.run_next().id == short.id
    while library.jobs.run_next() is not None:
        pass
    again = library.jobs.get(long.id)
    assert again.state == library.jobs.get(short.id).state == "done"
    alone = library.documents.submit(write("copy.txt", LONG))
    library.jobs.run(alone.id)
    shown = [library.documents.get(job.document_id) for job in (again, alone)]
    assert shown[0].blocks == shown[1].blocks and library.maintenance.verify().ok


def test_a_question_waits_for_one_window_at_most_while_a_document_is_read(library, three, write, monkeypatch):
    """Each window is made to take a while; a question must not wait for the rest of them."""
    plain, windows, answered = shard_writer.prefill, [], threading.Event()

    def slow(model, *arguments, **settings):
        for number, block in enumerate(plain(model, *arguments, **settings)):
            if number % model.config.window_blocks == 0:
                windows.append(time.monotonic())
                answered.wait(0.1)
            yield block

    monkeypatch.setattr(shard_writer, "prefill", slow)
    job = library.documents.submit(write("long.txt", LONG))
    thread = threading.Thread(target=library.jobs.run, args=(job.id,))
    thread.start()
    while len(windows) < 3:
        time.sleep(0.005)
    began = time.monotonic()
    answer = ask(library, "What does the fox do?", max_tokens=12)
    ended = time.monotonic()
    answered.set()
    assert sum(began < window < ended - 0.01 for window in windows) <= 1, "ingestion went on amid the answer"
    assert answer.tokens
    thread.join(60)
    assert library.jobs.get(job.id).state == "done"


def test_what_ingestion_holds_in_memory_does_not_grow_with_the_document(open_library, write, monkeypatch):
    """Never more blocks alive than a shard and its neighbours hold."""
    import weakref

    alive, most = weakref.WeakSet(), [0]
    plain = shard_writer.prefill

    def watched(*arguments, **settings):
        for block in plain(*arguments, **settings):
            alive.add(block)
            most[0] = max(most[0], len(alive))
            yield block

    monkeypatch.setattr(shard_writer, "prefill", watched)
    library = open_library(shard_bytes=1)
    add(library, write("long.txt", LONG))
    assert library.documents.list()[0].blocks > 150
    assert most[0] <= 3 * library.view.workspace.loaded().model.config.window_blocks


def test_blocks_before_a_shard_are_those_of_the_store(library, write):
    add(library, write("long.txt", LONG))
    loaded, shards = library.view.workspace.loaded(), library.view.catalogue.shards()
    recent = stored_blocks_before(loaded, shards, shards[1].first_ordinal + 1, 2)
    keys, values = loaded.store.read_many([(shards[0].name, shards[0].num_blocks - 1), (shards[1].name, 0)], 2)
    assert all(block.keys_YGLD[1].equal(key) for block, key in zip(recent, keys, strict=True))
    assert all(block.values_YGLD[1].equal(value) for block, value in zip(recent, values, strict=True))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(5, "Input/output error", "/home/kv.lock"),
            "The disk reported an error on /home/kv.lock: Input/output",
        ),
        (MemoryError(), "There was not enough memory to read it"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "There was not enough memory"),
        (SystemError("error return without exception set"), "There was not enough memory"),
    ],
)
def test_what_the_machine_did_wrong_is_a_sentence(library, write, monkeypatch, error, sentence):
    def fails(*_args, **_settings):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("retrieval.ingest.pipeline.store_shard", fails)
        job = library.jobs.run(library.documents.submit(write("a.txt", FOX)).id)
    assert job.state == "failed" and job.error.startswith(sentence)
    library.jobs.retry(job.id)
    assert library.jobs.run(job.id).state == "done"


def test_an_unexpected_error_fails_the_job_and_not_the_worker(library, write, monkeypatch):
    def broken(self):
        raise RuntimeError("the sky fell")

    monkeypatch.setattr(Ingestion, "_work", broken)
    job = library.jobs.run(library.documents.submit(write("a.txt", FOX)).id)
    assert job.state == "failed" and "the sky fell" in job.error


@pytest.mark.files_only
def test_a_lost_original_is_named(library, write):
    job = library.documents.submit(write("a.txt", FOX))
    library.documents.original(job.document_id).unlink()
    failed = library.jobs.run(job.id)
    assert failed.state == "failed" and "original file" in failed.error
    with pytest.raises(CairnError):
        library.documents.original(job.document_id)
    assert any("missing" in each.detail for each in library.maintenance.verify().damage)


def test_an_estimate_is_measured_on_this_machine_before_anything_was_read(open_library, write, monkeypatch):
    library, path = open_library(), write("a.txt", FOX * 3)
    clock = count(0.0, 2.0)  # so long everything takes that is measured, the extracting too
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    measured = library.documents.estimate(path)
    assert 2 < measured.seconds < 600 and measured.seconds == pytest.approx(library.documents.estimate(path).seconds), (
        "once"
    )
    monkeypatch.setattr(estimate, "_measured", {library.view.workspace.loaded(): 125.0})
    found = library.documents.estimate(path)
    assert found.seconds == pytest.approx(2 + found.tokens / 125)
    library.jobs.run(library.documents.submit(path).id)
    assert found.tokens > estimate._TELLING_TOKENS, "so that what was read counts from now on"
    (job,) = library.jobs.list()
    other = library.documents.estimate(write("b.txt", FOX * 4))
    assert other.seconds == pytest.approx(2 + other.tokens / job.tokens_per_second)


def test_the_estimate_of_a_scan_counts_what_its_pictures_take_here(open_library, tmp_path, monkeypatch):
    library, asked = open_library(), []
    picture = Image.new("L", (600, 800), 255)
    picture.save(tmp_path / "scan.pdf", save_all=True, append_images=[picture] * 3)
    monkeypatch.setattr(
        estimate, "try_recognising", lambda path, pages, **_: asked.append(list(pages)) or (500.0, ["A crane. "] * 2)
    )
    found = library.documents.estimate(tmp_path / "scan.pdf")
    assert asked == [[0, 1, 2, 3]] and found.pages == 4 and 500 < found.seconds < 520 and not found.exact
    few = len(library.view.workspace.loaded().model.tokenize("A crane. \n\nA crane. ").ids)
    assert found.tokens == 2 * few


def test_a_document_that_an_older_version_read_says_what_reading_it_again_adds(library, three):
    catalogue, document = library.view.catalogue, library.documents.get(three["fox"])
    assert document.notes == ()
    text, found = catalogue.extracted_text(document.id), catalogue.pages(document.id)
    older = {name: value for name, value in text.extras.items() if name != "version"}
    catalogue.save_extracted(document.id, text=text.text, pages_read=found, num_tokens=document.tokens, extras=older)
    (note,) = library.documents.get(document.id).notes
    assert note.startswith("Read by an older version: read again for ")
    assert library.maintenance.repair(reingest=True).repaired == (document.source,)
    assert library.documents.get(document.id).notes == ()
