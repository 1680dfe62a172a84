"""Encrypted PDFs: an unlocked copy is kept, never the password, so that nothing asks for it twice."""

from __future__ import annotations

import io
import signal
from pathlib import Path
from random import Random

import pypdf
import pytest

from retrieval.errors import ExtractError, NotFound
from retrieval.ingest.file_store import INCOMING
from tests import forked
from tests.retrieval.conftest import ask, prose
from tests.retrieval.damages import flip
from tests.retrieval.ingest.test_damage import shard_files
from tests.retrieval.pdf_maker import Sheet, make_pdf

PASSWORD = "a quiet pile of stones"
KILLED_AMID_READING = """
import os, signal, sys
from pathlib import Path
from retrieval.library import Library
from tests.tiny_model import tiny_model
seen = []
def kill(job):
    seen.append(job)
    if job.tokens_done and len(seen) > 8:
        os.kill(os.getpid(), signal.SIGKILL)
model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
library = Library.open(Path(sys.argv[1]), model, shard_bytes=20_000)
job = library.documents.submit(Path(sys.argv[2]), password=sys.argv[3])
library.jobs.run(job.id, on_progress=kill)
"""


@pytest.fixture
def locked(tmp_path) -> Path:
    words = prose(5, 3000).split()
    lines = [" ".join(words[start : start + 8]) for start in range(0, len(words), 8)]
    sheets = [
        Sheet([(50, 700 - 15 * n, 10, line) for n, line in enumerate(lines[start : start + 20])])
        for start in range(0, len(lines), 20)
    ]
    writer = pypdf.PdfWriter(clone_from=pypdf.PdfReader(io.BytesIO(make_pdf(sheets, title="Sealed"))))
    writer.encrypt(PASSWORD, "the owner's", algorithm="RC4-128")
    path = tmp_path / "sealed.pdf"
    writer.write(path)
    return path


def kept_bytes(library) -> bytes:
    return b"".join(path.read_bytes() for path in library.view.workspace.home.rglob("*") if path.is_file())


def test_a_killed_ingestion_of_a_locked_pdf_goes_on_after_a_restart_without_the_password(
    locked, open_library, tmp_path
):
    ended = forked.run("-c", KILLED_AMID_READING, tmp_path / "home", locked, PASSWORD, timeout=300)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    library = open_library()
    stored = {shard.name for shard in library.view.catalogue.shards()}
    assert stored and library.documents.list()[0].state == "ingesting"
    job = library.jobs.run_next()
    assert job.state == "done", job.error
    assert stored < {shard.name for shard in library.view.catalogue.shards()}, "it went on, it did not start anew"
    assert library.documents.list()[0].title == "Sealed" and ask(library, "What crosses the bridge?", k=3).passages
    assert PASSWORD.encode() not in kept_bytes(library)


def test_its_pages_are_drawn_and_its_memory_is_repaired_and_read_again_after_a_restart(locked, open_library):
    library = open_library()
    job = library.jobs.run(library.documents.submit(locked, password=PASSWORD).id)
    assert job.state == "done", job.error
    text = library.documents.page_text(job.document_id, 1).text
    library.close()
    again = open_library()
    assert again.documents.page_image(job.document_id, 1, width_px=200).startswith(b"\x89PNG")
    flip(shard_files(again)[1], Random(0))
    assert (
        again.maintenance.repair().repaired == ("sealed.pdf",)
        and again.maintenance.verify().ok
        and not again.maintenance.verify().orphans
    )
    fp32 = open_library(kv_dtype="fp32")
    assert fp32.maintenance.repair(reingest=True).repaired == ("sealed.pdf",)
    assert fp32.documents.page_text(job.document_id, 1).text == text
    assert pypdf.PdfReader(fp32.documents.original(job.document_id)).is_encrypted is False


def test_the_same_locked_file_is_stored_once_with_or_without_its_password(locked, library):
    job = library.jobs.run(library.documents.submit(locked, password=PASSWORD).id)
    for password in (PASSWORD, None):
        again = library.documents.submit(locked, password=password)
        assert (again.state, again.document_id, again.note) == ("done", job.document_id, "already stored")
    assert len(list(library.view.workspace.files_folder.iterdir())) == 1 and library.documents.estimate(
        locked, password=PASSWORD
    )


def test_a_wrong_password_is_said_at_once_and_nothing_is_kept(locked, library):
    with pytest.raises(ExtractError, match="does not open"):
        library.documents.submit(locked, password="wrong")
    assert library.documents.list() == [] and not list(library.view.workspace.files_folder.iterdir())


def test_a_job_that_failed_for_want_of_a_password_goes_on_with_it_and_keeps_it_unlocked(locked, library, open_library):
    job = library.jobs.run(library.documents.submit(locked).id)
    assert job.state == "failed" and "needs a password" in job.error
    with pytest.raises(ExtractError, match="does not open"):
        library.jobs.retry(job.id, password="wrong")
    assert library.jobs.get(job.id).state == "failed", "it is not tried again with a wrong one"
    assert library.jobs.retry(job.id, password=PASSWORD).state == "queued"
    assert open_library().jobs.run_next().state == "done"
    assert len(list(library.view.workspace.files_folder.iterdir())) == 1 and library.maintenance.gc().files == ()
    assert library.maintenance.verify().ok


def test_a_damaged_unlocked_copy_is_reported(locked, library):
    job = library.jobs.run(library.documents.submit(locked, password=PASSWORD).id)
    path = library.documents.original(job.document_id)
    path.write_bytes(path.read_bytes() + b" ")
    (found,) = library.maintenance.verify().damage
    assert "changed" in found.detail


def test_a_file_that_needs_no_password_is_kept_as_it_was_handed_in(library, tmp_path):
    plain = tmp_path / "open.pdf"
    plain.write_bytes(make_pdf([Sheet([(50, 700, 12, "Hello world of letters")])]))
    restricted = tmp_path / "restricted.pdf"  # opens for everybody, only its owner may print it
    writer = pypdf.PdfWriter(clone_from=pypdf.PdfReader(plain))
    writer.encrypt("", "the owner's", algorithm="RC4-128")
    writer.write(restricted)
    for path in (plain, restricted):
        job = library.jobs.run(library.documents.submit(path, password="needless").id)
        assert job.state == "done", job.error
        assert library.documents.original(job.document_id).read_bytes() == path.read_bytes()


def test_a_document_deleted_while_it_is_handed_in_is_said_to_be_gone(locked, library, open_library, monkeypatch):
    import os

    plain = os.rename

    def rename(source, target):
        if not Path(target).name.startswith(INCOMING):
            open_library().documents.delete([library.documents.list()[0].id])
        plain(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(NotFound):
        library.documents.submit(locked, password=PASSWORD)
    assert not list(library.view.workspace.files_folder.iterdir())
