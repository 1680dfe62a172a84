"""Damaged memory is noticed before a token that used it is shown, named, and made good again."""

from __future__ import annotations

import json
import os
import random
import runpy
import shutil
import sys
import time
from pathlib import Path

import pytest

from retrieval.errors import DamagedMemory
from retrieval.library import Library
from tests.retrieval.conftest import ask, substance, without_ids
from tests.retrieval.damages import DAMAGERS

ROOT = Path(__file__).resolve().parents[3]


def shard_files(library: Library):
    return sorted(library.view.workspace.kv_folder.rglob("*.kv"))


pytestmark = pytest.mark.files_only  # they damage files; tests/storage/blobs does it in buckets


@pytest.fixture(scope="module")
def calm_answer(filled_home, model, tmp_path_factory):
    home = tmp_path_factory.mktemp("calm") / "home"
    shutil.copytree(filled_home, home)
    with Library.open(home, model) as library:
        return substance(ask(library, "What does the fox do?", k=6))


@pytest.mark.parametrize("seed", range(16))
def test_damage_is_found_before_a_token_that_used_it(three, open_library, calm_answer, seed):
    """Either the answer does not depend on the damaged bytes and is as before, or there is none."""
    rng = random.Random(seed)
    library = open_library(shard_bytes=20_000)
    files = shard_files(library)
    DAMAGERS[seed % len(DAMAGERS)](rng.choice(files), rng)
    shown = []
    try:
        for item in library.ask("What does the fox do?", k=6, max_tokens=6):
            shown.append(item)
    except DamagedMemory as error:
        assert "cairn repair" in str(error) and ".txt" in str(error)
        expected = [without_ids(token) for token in calm_answer["tokens"][: len(shown)]]
        told = [without_ids(token.to_dict()) for token in shown]
        assert told == expected, "tokens shown before are the right ones"
    else:
        assert substance(shown[-1]) == calm_answer
    assert not library.maintenance.verify().ok


@pytest.mark.parametrize("seed", range(4))
def test_repair_makes_only_what_is_damaged_again_and_bit_for_bit(library, three, seed):
    rng = random.Random(seed)
    before = {path.relative_to(library.view.workspace.kv_folder): path.read_bytes() for path in shard_files(library)}
    asked = substance(ask(library, "What does the fox do?"))
    ids = [block.id for block in library.view.catalogue.blocks_of_document(three["fox"])]
    damaged = rng.sample(shard_files(library), 2)
    for path in damaged:
        DAMAGERS[seed % 3](path, rng)
    report = library.maintenance.repair()
    assert not report.failed and report.repaired and report.blocks < sum(d.blocks for d in library.documents.list())
    assert library.maintenance.verify().ok and not library.maintenance.verify().orphans
    after = {path.relative_to(library.view.workspace.kv_folder): path.read_bytes() for path in shard_files(library)}
    untouched = {name for name in before if library.view.workspace.kv_folder / name not in damaged}
    assert all(after.get(name) == before[name] for name in untouched)
    assert [block.id for block in library.view.catalogue.blocks_of_document(three["fox"])] == ids
    assert substance(ask(library, "What does the fox do?")) == asked


def test_a_vanished_shard_is_damage_too(library, three, open_library):
    shard_files(library)[0].unlink()
    assert any("missing" in each.detail for each in library.maintenance.verify().damage)
    with pytest.raises(DamagedMemory):
        ask(open_library(), "fox?", k=20)
    assert library.maintenance.repair().repaired
    assert library.maintenance.verify().ok


def test_a_changed_original_is_reported(library, three):
    path = library.documents.original(three["rain"])
    path.write_text("something else")
    (found,) = library.maintenance.verify().damage
    assert found.document_id == three["rain"] and "changed" in found.detail
    assert ask(library, "What of the rain?").tokens, "its memory is whole and still answers"


def test_orphans_are_listed_and_removed_and_nothing_else(library, three):
    home = library.view.workspace.home
    orphans = [
        home / "kv" / three["fox"] / "0123.kv",
        home / "kv" / "gone" / ".writing-77",
        home / "files" / "gone.pdf",
        home / "files" / ".incoming-nohost~1~1-gone.pdf",
        home / "pages" / "gone" / "0-1200.png",
    ]
    for path in orphans:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 10)
    silent = time.time() - 7200  # of another machine's process nothing else can be known
    os.utime(orphans[3], (silent, silent))
    before = {path for path in home.rglob("*") if path.is_file()} - set(orphans)
    report = library.maintenance.verify()
    assert report.ok and len(report.orphans) == 5
    removed = library.maintenance.gc()
    assert len(removed.files) == 5 and (removed.swept_bytes, removed.freed_bytes) == (50, 0)
    in_trash = [path.relative_to(home / "trash").parts[1:] for path in (home / "trash").rglob("*") if path.is_file()]
    assert sorted(in_trash) == sorted(path.relative_to(home).parts for path in orphans), "and can be put back"
    assert not library.maintenance.verify().orphans and library.maintenance.gc().files == ()
    assert {path for path in before if path.suffix in (".kv", ".txt")} <= {p for p in home.rglob("*") if p.is_file()}
    assert ask(library, "fox?").tokens
    assert library.maintenance.gc(grace_seconds=0).freed_bytes >= 50 and not list((home / "trash").iterdir())


@pytest.mark.sqlite_only
def test_an_emptied_trash_leaves_no_backup_of_what_was_deleted(library, three):
    backups = library.view.workspace.home / "backups"
    library.maintenance.keep_backup().join()
    assert b"fox.txt" in b"".join(path.read_bytes() for path in backups.iterdir())
    library.documents.delete([three["fox"]])
    library.maintenance.gc(grace_seconds=0)
    (copy,) = backups.iterdir()
    assert b"fox.txt" not in copy.read_bytes() and b"whale.txt" in copy.read_bytes()


def test_no_kind_of_damage_reaches_a_token_and_repair_heals_each(monkeypatch, capsys):
    """tests/stress/corruption.py does this a thousand times."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setattr(sys, "argv", ["corruption.py", "--damages", str(len(DAMAGERS))])
    status = runpy.run_path(str(ROOT / "tests" / "stress" / "corruption.py"))["main"]()
    said = capsys.readouterr().out
    assert status == 0, said
    result = json.loads(said.splitlines()[-1])
    assert result["violations"] == []
    # Files that are swapped may belong to two documents, which are then both refused.
    assert result["outcomes"]["fresh library: refused"] >= len(DAMAGERS)
