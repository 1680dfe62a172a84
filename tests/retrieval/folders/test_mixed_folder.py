"""A folder of files of many formats that is followed, changes in many places, and travels to another home."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from retrieval.ingest import shard_writer
from retrieval.library import Library
from tests.retrieval.conftest import OpenLibrary, ask
from tests.retrieval.folders.mixed_folder import change_folder, make_folder, question
from tests.retrieval.folders.test_runs import LONG_AGO, Follower
from tests.retrieval.pdf_maker import Sheet, make_pdf

WORDS = 30  # of each made file


def written_long_ago(folder: Path, at: float) -> None:
    """What was written since; a file that has just changed is left for the next run."""
    for path in folder.rglob("*"):
        if path.stat().st_mtime > LONG_AGO + 100:
            os.utime(path, (at, at))


def found(library: Library, numbers: Sequence[int]) -> Iterator[Any]:
    for number in numbers:
        passages = [(one.source, one.text, one.score) for one in library.search(question(number), 3)]
        yield ask(library, question(number)).text, passages


@pytest.mark.parametrize(("files", "places"), [(14, 5), pytest.param(1000, 100, marks=pytest.mark.slow)])
def test_what_changed_in_a_mixed_folder_is_all_that_is_read_and_it_answers_the_same_elsewhere(
    library: Library, open_library: OpenLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    files: int, places: int,
) -> None:  # fmt: skip
    folder, pdf = tmp_path / "docs", tmp_path / "whole.pdf"
    pdf.write_bytes(make_pdf([Sheet(content=b"BT /F1 10 Tf 72 700 Td (A page about a harbour and a bridge.) Tj ET")]))
    formats = make_folder(folder, files, [pdf], words=WORDS)
    assert len(formats) > 5 and sum(formats.values()) == files
    written_long_ago(folder, LONG_AGO)
    follow = Follower(library, folder)
    assert set(follow.changes().values()) == {"added"} and follow.jobs_read == files

    changed = change_folder(folder, places, files, words=WORDS)
    fifth = places // 5
    assert changed == {"changed": 2 * fifth, "moved": fifth, "removed": fifth, "added": fifth}
    written_long_ago(folder, LONG_AGO + 1)
    follow()
    assert follow.report is not None and follow.report.counts == {"same": files - 4 * fifth, **changed}
    assert follow.jobs_read == files + changed["changed"] + changed["added"]

    numbers = (3, files)
    before = list(found(library, numbers))
    library.bundles.export_to(tmp_path / "all.cairn")
    monkeypatch.setattr(shard_writer, "prefill", lambda *a, **k: pytest.fail("the model was asked to read"))
    elsewhere = open_library(home=tmp_path / "elsewhere")
    assert {one.status for one in elsewhere.bundles.import_from(tmp_path / "all.cairn")} == {"imported"}
    assert list(found(elsewhere, numbers)) == before and elsewhere.maintenance.verify().ok
