"""Looking after a library while others work on it: in the gaps between two steps nothing is lost and nothing fails."""

from __future__ import annotations

import os
import threading
from random import Random

import pytest

from retrieval import maintenance
from retrieval.ingest import file_store
from storage import workers
from storage.catalogue import Catalogue
from storage.kv import lock
from tests.retrieval.conftest import RAIN, add, ask, prose, substance
from tests.retrieval.damages import flip
from tests.retrieval.ingest.test_damage import shard_files


@pytest.fixture
def impatient(monkeypatch):
    """A collector that gives up soon where a writer does not come to its commit."""
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 0.1)


class Pause:
    """Stops the first caller of a method in front of it until `go_on`."""

    def __init__(self, monkeypatch, owner, name: str):
        self.reached, self.go_on = threading.Event(), threading.Event()
        plain = getattr(owner, name)

        def paused(*arguments, **settings):
            if not self.reached.is_set():
                self.reached.set()
                assert self.go_on.wait(60)
            return plain(*arguments, **settings)

        monkeypatch.setattr(owner, name, paused)

    def run(self, work) -> threading.Thread:
        thread = threading.Thread(target=work)
        thread.start()
        assert self.reached.wait(60)
        return thread


@pytest.mark.files_only
def test_gc_leaves_the_shard_of_a_repair_that_is_about_to_commit_it(
    library, three, open_library, monkeypatch, impatient
):
    before = substance(ask(library, "What does the fox do?"))
    flip(shard_files(library)[0], Random(0))
    pause = Pause(monkeypatch, Catalogue, "replace_shard")
    repairing = pause.run(library.maintenance.repair)
    new = set(shard_files(library))
    assert open_library().maintenance.gc().files == (), "another process would see the same"
    assert library.maintenance.gc().files == () and set(shard_files(library)) == new
    pause.go_on.set()
    repairing.join(60)
    assert library.maintenance.verify().ok and not library.maintenance.verify().orphans
    assert substance(ask(library, "What does the fox do?")) == before


def test_gc_leaves_the_shard_of_a_job_that_is_about_to_commit_it_and_a_job_that_ends_meanwhile(
    library, write, open_library, monkeypatch, impatient
):
    job = library.documents.submit(write("long.txt", prose(7, 2600)))
    pause = Pause(monkeypatch, Catalogue, "commit_shard")
    reading = pause.run(lambda: library.jobs.run(job.id))
    assert open_library().maintenance.gc().files == ()
    pause.go_on.set()
    reading.join(60)
    assert (
        library.jobs.get(job.id).state == "done"
        and library.maintenance.verify().ok
        and library.maintenance.gc().files == ()
    )


def test_gc_leaves_an_original_that_is_being_handed_in(library, write, open_library, monkeypatch):
    """Its row is committed between the collector's look at the files and its look at the rows."""
    pause = Pause(monkeypatch, os, "rename")
    submitting = pause.run(lambda: library.documents.submit(write("a.txt", RAIN)))
    assert open_library().maintenance.gc().files == ()
    pause.go_on.set()
    submitting.join(60)
    job = library.jobs.list()[0]
    listed = file_store.abandoned_files(library.view.workspace)
    assert listed == ([], []) and library.jobs.run(job.id).state == "done"


def test_a_worker_may_read_a_file_before_it_has_its_name(library, write, monkeypatch):
    def add_and_read(self, *args, **kwargs):
        submitted = add_document(self, *args, **kwargs)
        assert library.documents.original(submitted.document.id).read_text() == RAIN
        return submitted

    add_document = Catalogue.add_document
    monkeypatch.setattr(Catalogue, "add_document", add_and_read)
    job = library.documents.submit(write("a.txt", RAIN))
    assert library.jobs.run(job.id).state == "done"


def test_gc_leaves_what_another_machine_is_handing_in_until_it_was_silent_for_an_hour(library, write, monkeypatch):
    pause = Pause(monkeypatch, Catalogue, "add_document")
    monkeypatch.setattr(workers, "this_machine", lambda: "machine-a")
    submitting = pause.run(lambda: library.documents.submit(write("a.txt", RAIN)))
    monkeypatch.setattr(workers, "this_machine", lambda: "machine-b")
    (incoming,) = library.view.workspace.files_folder.glob(".incoming-machine-a~*")
    assert library.maintenance.gc().files == () and incoming.exists()
    pause.go_on.set()
    submitting.join(60)
    assert library.documents.original(library.documents.list()[0].id).read_text() == RAIN
    left = incoming.with_name(incoming.name.replace("machine-a", "machine-c").replace(".txt", "0.txt"))
    left.write_text("half of")
    assert library.maintenance.gc().files == ()
    os.utime(left, (0, 0))
    assert library.maintenance.gc().files == (f"files/{left.name}",) and not left.exists()


def test_gc_leaves_what_was_handed_in_after_it_looked_at_the_rows(library, write, open_library, monkeypatch):
    plain, path = Catalogue.documents, write("a.txt", RAIN)
    looks: list[object] = []

    def documents(self, **settings):
        found = plain(self, **settings)
        looks.append(found)
        if len(looks) == 1:
            document_id = add(open_library(), path)
            (library.view.workspace.pages_folder / document_id).mkdir(exist_ok=True)
        return found

    monkeypatch.setattr(Catalogue, "documents", documents)
    assert library.maintenance.gc().files == ()
    document_id = library.documents.list()[0].id
    assert library.documents.original(document_id).read_text() == RAIN
    assert (library.view.workspace.pages_folder / document_id).is_dir()


@pytest.mark.files_only
def test_gc_leaves_files_that_an_open_question_still_reads(library, three, open_library):
    flip(shard_files(library)[0], Random(0))
    old = shard_files(library)[0]
    with library.view.index.open_snapshot(library.view.catalogue):
        library.maintenance.repair()
        assert old.exists()
        library.maintenance.gc()
        assert old.exists(), "the question may read it"
    assert not old.exists() and library.maintenance.verify().ok


@pytest.mark.files_only
def test_two_repairs_at_once_leave_one_whole_memory(library, three, open_library, monkeypatch, impatient):
    flip(shard_files(library)[0], Random(0))
    other = open_library()
    pause = Pause(monkeypatch, Catalogue, "replace_shard")
    slow = []
    first = pause.run(lambda: slow.append(library.maintenance.repair()))
    assert other.maintenance.repair().repaired == ("fox.txt",) or other.maintenance.verify().ok
    pause.go_on.set()
    first.join(60)
    assert slow[0].failed == (), "what somebody else has repaired is no failure"
    assert library.maintenance.verify().ok and not library.maintenance.verify().orphans


@pytest.mark.files_only
def test_a_document_deleted_under_repair_is_no_failure_and_leaves_nothing(
    library, three, open_library, monkeypatch, impatient
):
    flip(shard_files(library)[0], Random(0))
    pause, reports = Pause(monkeypatch, Catalogue, "replace_shard"), []
    repairing = pause.run(lambda: reports.append(library.maintenance.repair()))
    damaged = library.maintenance.verify().damage[0].document_id
    open_library().documents.delete([damaged])
    pause.go_on.set()
    repairing.join(60)
    assert reports[0].failed == () and reports[0].repaired == ()
    assert library.maintenance.verify().ok and not library.maintenance.verify().orphans


def test_doctor_and_verify_tolerate_a_document_that_is_deleted_meanwhile(library, three, tmp_path, monkeypatch):
    bad = tmp_path / "bad.pdf"
    bad.write_bytes(b"%PDF-1.7 this is no document")
    failed = library.jobs.run(library.documents.submit(bad).id)
    assert any("bad.pdf" in problem for problem in library.maintenance.doctor()["problems"])
    plain = Catalogue.jobs

    def jobs(self, **settings):
        found = plain(self, **settings)
        library.documents.delete([failed.document_id])
        return found

    monkeypatch.setattr(Catalogue, "jobs", jobs)
    assert library.maintenance.doctor()["problems"] == []
    monkeypatch.setattr(Catalogue, "jobs", plain)
    original = maintenance.copy_of_original

    def copy_of_original(workspace, document_id):
        library.documents.delete([three["rain"]])
        return original(workspace, document_id)

    monkeypatch.setattr(maintenance, "copy_of_original", copy_of_original)
    assert library.maintenance.verify().ok


def test_a_kill_amid_reingestion_leaves_no_document_without_a_job(library, three):
    """Dropping the old memory and queueing the work are one commit."""
    digest = library.view.catalogue.document(three["fox"]).fingerprint
    names = library.view.catalogue.reassign_model(three["fox"], digest, note="again")
    (job,) = library.jobs.list(active_only=True)
    assert names and job.document_id == three["fox"] and library.documents.get(three["fox"]).state == "ingesting"
    assert library.jobs.run_next().state == "done"
