"""A library whose catalogue is lost answers, after a rescue, as it did before."""

from __future__ import annotations

import shutil

import pytest

from storage.blobs.files import FileBlobs
from storage.catalogue import Catalogue
from storage.errors import CatalogueDamaged, ForeignCatalogue
from storage.recovery import read_sidecar, rescue, sidecars
from tests.retrieval.conftest import FOX, add, ask, substance

pytestmark = pytest.mark.sqlite_only


@pytest.fixture
def lost(library, three, open_library):
    """The home after its catalogue and all backups are gone; what it answered before."""
    home = library.view.workspace.home
    before = substance(ask(library, "What do whales do?"))
    library.close()
    for path in home.glob("cairn.sqlite3*"):
        path.write_bytes(b"noise" * 100)
    shutil.rmtree(home / "backups", ignore_errors=True)
    with pytest.raises(CatalogueDamaged, match="cairn rescue"):
        open_library()
    return home, before


@pytest.mark.files_only
def test_every_document_answers_after_a_rescue_as_before_without_being_read_again(lost, three, open_library):
    home, before = lost
    files = {path: path.stat().st_mtime_ns for path in (home / "kv").rglob("*.kv")}
    report = rescue(home / "cairn.sqlite3", home)
    assert report.restored == ("fox.txt", "rain.txt", "whale.txt") and not report.missing_shards
    library = open_library()
    assert {document.title: document.id for document in library.documents.list()} == three
    assert substance(ask(library, "What do whales do?")) == before
    assert (
        library.maintenance.verify().ok
        and not library.maintenance.verify().orphans
        and library.maintenance.gc().files == ()
    )
    assert {path: path.stat().st_mtime_ns for path in (home / "kv").rglob("*.kv")} == files


@pytest.mark.files_only
def test_originals_alone_are_read_again_and_answer_as_before(lost, three, open_library):
    home, before = lost
    for folder in ("kv", "sidecars"):
        shutil.rmtree(home / folder)
    assert len(rescue(home / "cairn.sqlite3", home).reread) == 3
    library = open_library()
    while library.jobs.run_next():
        pass
    assert len(library.documents.list()) == 3 and {one.state for one in library.documents.list()} == {"ready"}
    assert substance(ask(library, "What do whales do?"))["text"] == before["text"]


@pytest.mark.files_only
def test_a_catalogue_deleted_under_a_filled_home_is_not_replaced_by_an_empty_one(library, three, open_library):
    home = library.view.workspace.home
    library.close()
    for path in home.glob("cairn.sqlite3*"):
        path.unlink()
    with pytest.raises(ForeignCatalogue, match="is empty"):
        open_library()
    with pytest.raises(ForeignCatalogue, match="is empty"):
        open_library(database_url=f"sqlite:///{home.parent}/elsewhere.sqlite3")
    assert len(list((home / "kv").rglob("*.kv"))) > 3 and not (home.parent / "elsewhere.sqlite3").exists()


@pytest.mark.files_only
def test_a_document_has_a_sidecar_from_the_moment_it_was_handed_in_until_it_is_deleted(library, write):
    home = library.view.workspace.home
    job = library.documents.submit(write("a.txt", "Something to read. " * 20))
    assert list(sidecars(FileBlobs(home))) == [job.document_id]
    library.documents.delete([job.document_id])
    document_id = add(library, write("b.txt", "Something else to read. " * 20))
    assert list(sidecars(FileBlobs(home))) == [document_id]
    library.documents.delete([document_id])
    assert not sidecars(FileBlobs(home))


@pytest.mark.files_only
@pytest.mark.parametrize("step", ["finish_document", "replace_shard"])
def test_a_kill_between_the_catalogue_and_what_follows_leaves_nothing_to_repair_after_a_rescue(
    library, write, open_library, tmp_path, monkeypatch, step
):
    """As the disk is right after the step, so a kill leaves it."""
    home, killed = library.view.workspace.home, tmp_path / "killed"
    done = getattr(Catalogue, step)

    def step_then_kill(*args, **options):
        result = done(*args, **options)
        shutil.copytree(home, killed)
        return result

    if step == "replace_shard":
        document_id = add(library, write("fox.txt", FOX))
        shard = next((home / "kv" / document_id).glob("*.kv"))
        shard.write_bytes(shard.read_bytes()[:-9])
        monkeypatch.setattr(Catalogue, step, step_then_kill)
        assert library.maintenance.repair().repaired == ("fox.txt",)
    else:
        monkeypatch.setattr(Catalogue, step, step_then_kill)
        add(library, write("fox.txt", FOX))
    library.close()
    for path in killed.glob("cairn.sqlite3*"):
        path.write_bytes(b"noise" * 100)
    report = rescue(killed / "cairn.sqlite3", killed)
    assert report.restored == ("fox.txt",) and not report.missing_shards
    rescued = open_library(home=killed)
    assert [document.state for document in rescued.documents.list()] == ["ready"]
    assert rescued.maintenance.verify().damage == () and rescued.search("fox", 1)


@pytest.mark.files_only
def test_a_sidecar_without_its_document_is_swept(library, three):
    home = library.view.workspace.home
    path = home / next(iter(sidecars(FileBlobs(home)).values()))
    path.with_name("gone.json.gz").write_bytes(path.read_bytes())
    assert library.maintenance.verify().orphans == ("sidecars/gone.json.gz",)
    assert library.maintenance.gc().files == ("sidecars/gone.json.gz",) and len(sidecars(FileBlobs(home))) == 3


def test_a_sidecar_that_was_never_written_is_written_by_gc(library, three):
    blobs = FileBlobs(library.view.workspace.home)
    before = {name: read_sidecar(blobs, path) for name, path in sidecars(blobs).items()}
    blobs.inside("sidecars").delete([f"{three['fox']}.json.gz"])
    library.maintenance.gc()
    assert {name: read_sidecar(blobs, path) for name, path in sidecars(blobs).items()} == before
