"""A damaged, full, locked or read-only catalogue is explained, and those who only read wait for nobody."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError, StatementError

from storage.catalogue import Catalogue, database
from storage.catalogue.database import explained
from storage.errors import CatalogueDamaged, CatalogueFull, CatalogueUnavailable, NotFound
from tests.storage.stored import FINGERPRINT, add_ready, new_document, open_home, sqlite_only

pytestmark = sqlite_only
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """The file of a closed catalogue with a few documents."""
    catalogue, store = open_home(tmp_path)
    for seed in range(20):
        add_ready(catalogue, store, seed)
    catalogue.close()
    return tmp_path / "cairn.sqlite3"


@contextmanager
def writing_elsewhere(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0)


def test_a_file_that_is_no_database_is_called_damaged_and_rescue_is_named(filled):
    filled.write_bytes(b"not a database, whatever its name says" * 200)
    with pytest.raises(CatalogueDamaged, match="cairn rescue"):
        Catalogue.open(f"sqlite:///{filled}")


def test_a_catalogue_that_was_cut_short_is_called_damaged(filled):
    content = filled.read_bytes()
    filled.write_bytes(content[: len(content) // 2 // 4096 * 4096])
    with pytest.raises(CatalogueDamaged, match=str(filled)):
        Catalogue.open(f"sqlite:///{filled}").documents()


def test_pages_overwritten_inside_are_called_damaged_when_they_are_read(filled):
    content = bytearray(filled.read_bytes())
    content[8 * 4096 :] = b"\xa5" * (len(content) - 8 * 4096)
    filled.write_bytes(content)
    with pytest.raises(CatalogueDamaged):
        catalogue = Catalogue.open(f"sqlite:///{filled}")
        for document in catalogue.documents():
            catalogue.blocks_of_document(document.id)
        catalogue.counting_problems()


def test_tables_that_are_gone_are_called_damage(filled):
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("DROP TABLE documents")
    with pytest.raises(CatalogueDamaged, match="no such table"):
        Catalogue.open(f"sqlite:///{filled}").documents()


def test_a_full_disk_is_called_full_and_nothing_is_changed(home):
    catalogue, store = home
    document = add_ready(catalogue, store)
    with catalogue.database.read() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    with pytest.raises(CatalogueFull, match="Nothing was changed"):
        for _ in range(100):
            catalogue.save_answer(question="q", text="a", body="x" * 10_000, document_ids=[document.id])
    assert catalogue.documents() == [document]


def test_a_catalogue_that_may_only_be_read_says_so_when_something_is_to_be_written(filled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    catalogue = Catalogue.open(f"sqlite:///file:{filled}?mode=ro&uri=true")
    assert catalogue.database.path == filled
    assert not (tmp_path / "file:").exists(), "a URI is no folder"
    assert len(catalogue.documents()) == 20
    with pytest.raises(CatalogueUnavailable, match="cannot be written"):
        catalogue.create_collection("Reports")


def test_a_locked_catalogue_says_so_when_something_is_to_be_written(filled, impatient):
    catalogue = Catalogue.open(f"sqlite:///{filled}")
    with writing_elsewhere(filled), pytest.raises(CatalogueUnavailable, match="locked by another program"):
        catalogue.create_collection("Reports")
    catalogue.create_collection("Reports")


def test_those_who_only_read_do_not_wait_for_a_writer(filled, impatient):
    with writing_elsewhere(filled):
        catalogue = Catalogue.open(f"sqlite:///{filled}")
        assert len(catalogue.documents()) == 20
        assert catalogue.put_fingerprint(FINGERPRINT) == FINGERPRINT.digest
        assert catalogue.recover_jobs() == [] and catalogue.claim_next_job("worker") is None


def test_what_a_statement_did_wrong_is_not_called_damage(home):
    catalogue, _ = home
    with pytest.raises(IntegrityError), catalogue.database.write() as connection:
        connection.exec_driver_sql("INSERT INTO users (id, name, password_hash, created_at) VALUES (1, NULL, '', '')")


def test_too_little_memory_is_not_hidden_behind_a_statement():
    with pytest.raises(MemoryError), explained("cairn.sqlite3"):
        raise StatementError("(builtins.MemoryError)", "INSERT INTO blocks", {}, MemoryError())
    with pytest.raises(StatementError), explained("cairn.sqlite3"):
        raise StatementError("a value is missing", "INSERT INTO blocks", {}, KeyError("id"))


def test_names_are_cleaned_wherever_they_enter(home):
    catalogue, store = home
    hostile = "Re\u202eport\x00\x1b[2J \ud800\u2066one\n two\u2028three\u200b"
    clean = "Report[2J \ufffdone two three"
    new = new_document(1, title=hostile)
    document = catalogue.add_document(vars_with(new, source=hostile)).document
    assert (document.title, document.source) == (clean, clean)
    assert catalogue.rename_document(document.id, hostile + "!").title == clean + "!"
    assert catalogue.save_extracted(document.id, text="x", pages_read=[], title=hostile).title == clean
    collection = catalogue.create_collection(hostile)
    assert collection.name == clean and catalogue.rename_collection(collection.id, hostile + "2").name == clean + "2"
    catalogue.ensure_conversation("c" * 32, hostile)
    assert catalogue.documents(search="report \ud800") == [] and catalogue.answers(search="\ud800") == []
    with pytest.raises(ValueError, match="cannot be a user's name"):
        catalogue.add_user("ad\u200bmin", "hash")
    for nothing in ("\x00", "\u202e \n"):
        with pytest.raises(ValueError, match="needs a"):
            catalogue.rename_document(document.id, nothing)
        with pytest.raises(ValueError, match="needs a"):
            catalogue.create_collection(nothing)


def vars_with(new, **changes):
    return type(new)(**(vars(new) | changes))


def test_names_in_other_scripts_stay_as_they_are(home):
    catalogue, _ = home
    for name in ("گزارش‌ها", "👩‍🔬 lab", "Ünïcødé — “quoted”", "报告 (2)"):
        assert catalogue.create_collection(name).name == name


def test_a_name_of_any_length_is_kept_short(home):
    assert len(home[0].create_collection("x" * 100_000).name) == 500


FULL_DISK = """
import errno, os, sys
from pathlib import Path
from storage.errors import CatalogueFull
from tests.storage.stored import add_ready, new_document, open_home

home = Path(sys.argv[1])
catalogue, store = open_home(home)
documents = [add_ready(catalogue, store, seed) for seed in range(40)]
catalogue.close()
catalogue, store = open_home(home)
with open(home / "filler", "wb", buffering=0) as filler:
    for size in (1 << 20, 4096, 1):
        try:
            while filler.write(os.urandom(size)) == size:
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC
for seed in range(40, 60):
    try:
        add_ready(catalogue, store, seed)
    except (CatalogueFull, OSError) as error:
        break
else:
    sys.exit("The disk was not full.")
for document in documents:
    catalogue.delete_documents([document.id])
print(len(catalogue.documents()))
"""


@pytest.fixture
def alone() -> list[str]:
    """What begins a command with rights to mount, seen by nobody else."""
    command = ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("a disk of the test's own cannot be mounted here")
    return command


def test_room_for_a_deletion_is_set_aside_again_when_nothing_was_deleted(tmp_path: Path) -> None:
    catalogue, _ = open_home(tmp_path)
    (room,) = tmp_path.glob("*-room")
    with pytest.raises(NotFound):
        catalogue.delete_answer("nothing")
    assert room.exists()


def test_what_is_on_a_full_disk_can_be_deleted(alone: list[str], tmp_path: Path) -> None:
    mounted = 'mount -t tmpfs -o size=16m tmpfs "$1" && exec "$2" -c "$3" "$1"'
    words = ["sh", "-c", mounted, "sh", str(tmp_path), sys.executable, FULL_DISK]
    done = subprocess.run([*alone, *words], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "0", done.stderr
