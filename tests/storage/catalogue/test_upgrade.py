"""Opening a catalogue of any age: migrated after a backup, atomically, and never by two at once."""

import contextlib
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from storage.catalogue import Catalogue
from storage.catalogue.database import Database
from storage.catalogue.schema import metadata
from storage.errors import CatalogueTooNew
from storage.migrations import upgrade
from storage.migrations.upgrade import HEAD, MIGRATIONS, backup, bring_up_to_date, revision
from storage.properties import condition
from tests.storage.stored import add_ready, database_url, open_home, sqlite_only

GOLDEN = Path(__file__).parents[1] / "golden"
NEXT = '''
"""Remember who read a document last."""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "9999", "%s"


def upgrade() -> None:
    op.add_column("documents", sa.Column("last_reader", sa.Text()))
    op.execute("UPDATE documents SET last_reader = title")
    %s
'''


def next_release(monkeypatch: pytest.MonkeyPatch, folder: Path, then: str = "pass") -> None:
    """From now on this is an imagined next release, with one more migration."""
    versions = folder / "migrations" / "versions"
    versions.mkdir(parents=True)
    for path in (MIGRATIONS / "versions").glob("0*.py"):
        (versions / path.name).write_text(path.read_text())
    (versions / "9999_next.py").write_text(NEXT % (HEAD, then))
    (folder / "migrations" / "env.py").write_text((MIGRATIONS / "env.py").read_text())
    monkeypatch.setattr(upgrade, "MIGRATIONS", folder / "migrations")
    monkeypatch.setattr(upgrade, "HEAD", "9999")


def differences(catalogue: Catalogue) -> list[object]:
    with catalogue.database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return list(compare_metadata(context, metadata))


def test_a_new_catalogue_is_exactly_the_schema_that_the_code_uses(catalogue):
    assert differences(catalogue) == []
    assert revision(catalogue.database) == HEAD


@sqlite_only
@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.sql")), ids=lambda path: path.stem)
def test_catalogues_of_every_release_come_to_that_schema_and_keep_what_they_hold(tmp_path, golden):
    with contextlib.closing(sqlite3.connect(tmp_path / "cairn.sqlite3")) as connection:
        connection.executescript(golden.read_text())
        documents = connection.execute("SELECT id, collection_id FROM documents ORDER BY id").fetchall()
    catalogue = Catalogue.open(database_url(tmp_path))
    assert differences(catalogue) == [] and revision(catalogue.database) == HEAD
    with catalogue.database.read() as connection:
        kept = connection.exec_driver_sql("SELECT id, collection_id FROM documents ORDER BY id").fetchall()
    assert documents and [tuple(row) for row in kept] == documents
    catalogue.close()


def test_the_newest_migration_is_the_one_that_opening_checks_for():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


@sqlite_only
def test_a_new_catalogue_needs_no_backup_and_a_current_one_is_left_alone(tmp_path):
    database = Database(database_url(tmp_path))
    assert revision(database) is None
    assert bring_up_to_date(database) is None
    assert revision(database) == HEAD
    assert bring_up_to_date(database) is None
    assert not (tmp_path / "backups").exists()
    database.close()


@sqlite_only
def test_an_older_catalogue_is_backed_up_and_migrated_with_all_it_holds(tmp_path, monkeypatch):
    catalogue, store = open_home(tmp_path)
    document = add_ready(catalogue, store)
    with monkeypatch.context() as later:
        next_release(later, tmp_path)
        backup_path = bring_up_to_date(catalogue.database)
    with catalogue.database.read() as connection:
        assert connection.exec_driver_sql("SELECT last_reader FROM documents").scalar() == document.title
    catalogue.close()
    assert backup_path is not None and backup_path.parent == tmp_path / "backups"
    old = Catalogue.open(f"sqlite:///{backup_path}")
    assert old.documents() == [document]
    assert len(old.blocks_of_document(document.id)) == document.num_blocks
    old.close()


def test_a_migration_that_fails_halfway_leaves_the_old_catalogue_whole(tmp_path, monkeypatch):
    catalogue, store = open_home(tmp_path)
    document = add_ready(catalogue, store)
    with monkeypatch.context() as broken, pytest.raises(RuntimeError, match="power cut"):
        next_release(broken, tmp_path, then='raise RuntimeError("power cut")')
        bring_up_to_date(catalogue.database)
    assert revision(catalogue.database) == HEAD
    assert catalogue.documents() == [document]
    catalogue.close()
    catalogue, _ = open_home(tmp_path)
    assert catalogue.documents() == [document]
    catalogue.close()


def test_a_catalogue_of_a_newer_release_is_refused_and_not_touched(tmp_path, monkeypatch):
    catalogue, _ = open_home(tmp_path)
    with monkeypatch.context() as later:
        next_release(later, tmp_path)
        bring_up_to_date(catalogue.database)
    catalogue.close()
    with pytest.raises(CatalogueTooNew, match="9999"):
        Catalogue.open(database_url(tmp_path))


@sqlite_only
def test_many_processes_may_open_a_new_catalogue_at_once(tmp_path):
    script = textwrap.dedent(
        f"""
        import os
        from storage.catalogue import Catalogue
        from storage.fingerprint import MemoryFingerprint

        def open_it():
            catalogue = Catalogue.open({database_url(tmp_path)!r})
            catalogue.put_fingerprint(MemoryFingerprint({{"process": str(os.getpid())}}))
            catalogue.close()

        children = []
        for _ in range(6):
            child = os.fork()
            if not child:
                open_it()
                os._exit(0)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
        """
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and run.stderr == "", run.stderr
    catalogue = Catalogue.open(database_url(tmp_path))
    assert len(catalogue.fingerprints()) == 6
    catalogue.close()


@sqlite_only
def test_a_backup_made_while_writing_is_a_sound_catalogue(home, tmp_path):
    catalogue, store = home
    document = add_ready(catalogue, store)
    path = backup(catalogue.database, tmp_path / "copies" / "copy.sqlite3")
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("SELECT id FROM documents").fetchall() == [(document.id,)]
    connection.close()
    assert [each.name for each in path.parent.iterdir()] == ["copy.sqlite3"]


def test_the_schema_is_also_one_that_postgresql_understands():
    dialect = postgresql.dialect()
    for table in metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            str(CreateIndex(index).compile(dialect=dialect))


def test_databases_that_were_never_tried_are_refused():
    with pytest.raises(ValueError, match="SQLite or PostgreSQL, not in mysql"):
        Catalogue.open("mysql://server/cairn")


def test_a_missing_driver_is_named():
    with pytest.raises(ValueError, match="pip install asyncpg"):
        Catalogue.open("postgresql+asyncpg://server/cairn")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_catalogue_in_memory_is_refused(url):
    with pytest.raises(ValueError, match="must be a file"):
        Catalogue.open(url)


@sqlite_only
def test_every_connection_keeps_what_it_acknowledged(catalogue):
    with catalogue.database.read() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        }
    assert settings == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 2, "busy_timeout": 15000}


def test_documents_from_before_properties_get_what_their_files_state_and_keep_what_people_said(tmp_path):
    catalogue, store = open_home(tmp_path)
    old, tagged = add_ready(catalogue, store, 1), add_ready(catalogue, store, 2)
    extras = '{"metadata": {"author": "Ann Lee; Ben Ray", "creationdate": "D:20240131120000Z", "encoding": "utf-8"}}'
    with catalogue.database.write() as connection:
        for table in ("shared_values", "shard_terms", "shard_vectors"):  # of later migrations
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("DELETE FROM document_properties"))
        connection.execute(text("UPDATE document_texts SET extras = :extras"), {"extras": extras})
        connection.execute(text("UPDATE alembic_version SET version_num = '0006'"))
    catalogue.set_properties(tagged.id, {"author": ["Cy"], "tag": ["draft"]})
    catalogue.close()
    catalogue, _ = open_home(tmp_path)
    found = catalogue.properties_of([old.id, tagged.id])
    stated = [(one.name, one.value, one.by_hand) for one in found[old.id]]
    assert stated == [("author", "Ann Lee", False), ("author", "Ben Ray", False), ("date", "2024-01-31", False)]
    said = [(one.name, one.value, one.by_hand) for one in found[tagged.id]]
    assert said == [("author", "Cy", True), ("date", "2024-01-31", False), ("tag", "draft", True)]
    assert catalogue.documents_where([condition("date>=2024")]) == {old.id, tagged.id}
    catalogue.close()
