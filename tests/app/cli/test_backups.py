"""`cairn backup` and `cairn restore`, wherever the catalogue and the memory lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import assembly
from tests.app.cli_client import cairn, rows
from tests.object_server import new_store
from tests.postgresql import Databases
from tests.tiny_model import tiny_model


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assembly, "load_model", lambda settings: tiny_model(block_size=16))
    monkeypatch.setenv("CAIRN_HOME", str(tmp_path / "home"))


def read_in(folder: Path, name: str) -> None:
    (folder / name).write_text(f"The dam of {name} is old.")
    ended = cairn("ingest", folder / name)
    assert ended.exit_code == 0, ended.output


def names() -> list[str]:
    return sorted(row["source"] for row in rows(cairn("list", "--json").stdout))


def test_a_backup_of_a_home_says_what_is_to_be_copied_with_it(tmp_path: Path) -> None:
    read_in(tmp_path, "a.txt")
    told = cairn("backup", tmp_path / "copy")
    assert told.exit_code == 0 and f"Now copy {tmp_path}/home/kv and /files." in told.output.replace("\n", " ")


def test_a_backup_beside_a_bucket_asks_for_no_copy_and_is_restored_over_it(
    tmp_path: Path, postgresql: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store(monkeypatch)
    monkeypatch.setenv("CAIRN_STORE_URL", store)
    monkeypatch.setenv("CAIRN_DATABASE_URL", postgresql.take_bare())
    try:
        read_in(tmp_path, "a.txt")
        told = cairn("backup", tmp_path / "copy")
        assert told.exit_code == 0 and "Now copy" not in told.output, told.output
        assert store.partition("?")[0] in told.output and "endpoint" not in told.output
        read_in(tmp_path, "b.txt")
        monkeypatch.setenv("CAIRN_DATABASE_URL", postgresql.take_bare())
        monkeypatch.setenv("CAIRN_HOME", str(tmp_path / "another machine"))
        restored = cairn("restore", tmp_path / "copy")
        assert restored.exit_code == 0, restored.output
        assert names() == ["a.txt", "b.txt"], "what came since is known from the bucket"
        verified = cairn("verify", "--json")
        assert verified.exit_code == 0, verified.output
    finally:
        postgresql.give_back()
