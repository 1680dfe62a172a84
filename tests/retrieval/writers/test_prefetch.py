"""New documents are read by the writer at once, where that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from retrieval.engine.workspace import documents_folders
from retrieval.errors import WriterError
from retrieval.library import Library
from retrieval.writers.local import LocalWriter, loaded_writer
from tests.tiny_model import tiny_chat_model


@pytest.fixture
def local_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalWriter:
    loaded = loaded_writer(tiny_chat_model(), tmp_path)
    monkeypatch.setattr(LocalWriter, "loaded", lambda _: loaded)
    return LocalWriter("tiny", home=tmp_path, prefetches=True)


def ingested(library: Library, path: Path) -> str:
    job = library.jobs.run(library.documents.submit(path).id)
    assert job.state == "done", job.error
    return job.document_id


def test_all_segments_of_a_new_document_are_kept(library: Library, local_writer: LocalWriter, tmp_path: Path) -> None:
    library.use_writer(lambda: local_writer)
    path = tmp_path / "river.txt"
    path.write_text("The river rises in the hills. " * 100)
    document_id = ingested(library, path)
    (folder,) = documents_folders(tmp_path, document_id)
    assert len(list(folder.glob("*.kv"))) == 2


def test_without_the_setting_nothing_is_read(library: Library, local_writer: LocalWriter, tmp_path: Path) -> None:
    local_writer.prefetches = False
    library.use_writer(lambda: local_writer)
    path = tmp_path / "river.txt"
    path.write_text("The river rises in the hills.")
    assert documents_folders(tmp_path, ingested(library, path)) == []


def test_a_gpu_that_is_full_does_not_fail_the_document(
    library: Library, local_writer: LocalWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: LocalWriter, passages: object) -> int:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(LocalWriter, "prefetch", full)
    library.use_writer(lambda: local_writer)
    path = tmp_path / "river.txt"
    path.write_text("The river rises in the hills.")
    assert library.documents.get(ingested(library, path)).state == "ready"


def test_a_writer_that_fails_does_not_fail_the_document(
    library: Library, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library.use_writer(lambda: LocalWriter("/nowhere", home=tmp_path, prefetches=True))
    path = tmp_path / "river.txt"
    path.write_text("The river rises in the hills.")
    assert library.documents.get(ingested(library, path)).state == "ready"
    assert "did not prefetch" in caplog.text
    with pytest.raises(WriterError):
        LocalWriter("/nowhere", home=tmp_path).prefetch([])
