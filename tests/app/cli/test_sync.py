"""`cairn sync`: one line a file, and a report."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.app.cli_client import Commands, cairn, rows
from tests.app.small_library import PAGES, RESERVOIR, pdf_of


def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "notes.txt").write_text("The crane on the dam was painted yellow in 1971. It is still in use.")
    (folder / "sheet.xyz").write_text("?")
    os.utime(folder / "notes.txt", (time.time() - 100,) * 2)
    return folder


def test_a_line_a_file_and_a_report_at_the_end(commands: Commands, tmp_path: Path) -> None:
    folder = reports(tmp_path)
    skipped, added, report = rows(cairn("sync", folder, "--json", "--collection", "Cranes").stdout)
    assert skipped["source"] == "sheet.xyz" and skipped["change"] == "skipped" and skipped["reason"]
    assert (added["source"], added["change"]) == ("notes.txt", "added") and len(added["document_id"]) == 32
    assert report["report"]["counts"] == {"skipped": 1, "added": 1}
    (folder / "notes.txt").rename(folder / "crane.txt")
    _, moved, _ = rows(cairn("sync", folder, "--json").stdout)
    assert moved == {
        "source": "crane.txt",
        "document_id": added["document_id"],
        "change": "moved",
        "previous": "notes.txt",
    }
    (listed,) = (one for one in rows(cairn("list", "--json").stdout) if one["id"] == added["document_id"])
    assert (listed["source"], listed["title"]) == ("crane.txt", "crane")


def test_people_read_what_happened_and_how_many_files_stayed_the_same(commands: Commands, tmp_path: Path) -> None:
    folder = reports(tmp_path)
    first = cairn("sync", folder)
    assert "added   notes.txt, document " in first.stdout and "1 files in" in first.stderr
    again = cairn("sync", folder)
    assert again.stdout == "" and "1 the same; not followed: 1" in again.stderr


def test_a_file_that_cannot_be_read_is_a_failure_of_the_command(commands: Commands, tmp_path: Path) -> None:
    folder = reports(tmp_path)
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    ended = cairn("sync", folder)
    assert ended.exit_code == 1 and "failed  broken.pdf: " in ended.stderr


def test_a_document_that_is_stored_already_is_taken_over_without_reading(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / RESERVOIR).write_bytes(pdf_of(PAGES[RESERVOIR], "Handbook of the reservoir"))
    (added, _) = rows(cairn("sync", tmp_path / "deep", "--json").stdout)
    assert (added["change"], added["reason"]) == ("added", "already stored")
