"""How far the reading of a file is: told by the process that reads it, checked, shown with how long it will take."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from retrieval.extraction.extract import ARRANGING, EXTRACTING, RECOGNISING, ExtractLimits, ExtractProgress, extract
from retrieval.extraction.pdf.extract_pdf import extract_pdf
from retrieval.extraction.process import ipc, sandbox
from retrieval.ingest import estimate
from retrieval.types.records import Job
from tests.retrieval.pdf_maker import Sheet, make_pdf

TWO_PAGES = make_pdf([Sheet([(72, 700, 12, "Hello")]), Sheet([(72, 700, 12, "world")])])
TELLS_AND_SLEEPS = """import json, pathlib, sys, time
request = json.load(sys.stdin)
pathlib.Path(request["folder"], "progress.json").write_text("[30, 60, 1200]")
time.sleep(60)
"""


class Enough(Exception):
    pass


def test_the_pages_of_a_pdf_are_told_one_by_one(tmp_path: Path) -> None:
    path, told = tmp_path / "a.pdf", []
    path.write_bytes(TWO_PAGES)
    extract_pdf(path, ExtractLimits(), None, tell=lambda *progress: told.append(progress))
    assert told == [(0, 2, 0), (1, 2, 5)]


def test_what_the_reader_tells_comes_while_it_reads_and_whoever_watches_may_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, readers = tmp_path / "a.pdf", []
    path.write_bytes(TWO_PAGES)

    def start(*_arguments: str) -> Any:
        command = [sys.executable, "-c", TELLS_AND_SLEEPS]
        readers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE))
        return readers[-1]

    def watch(progress: ExtractProgress) -> None:
        assert progress == ExtractProgress(EXTRACTING, 30, 60, 1200)
        raise Enough

    extracting = sandbox.Sandbox()
    monkeypatch.setattr("retrieval.extraction.extract.SANDBOX", extracting)
    monkeypatch.setattr(sandbox, "start_reader", start)
    with pytest.raises(Enough):
        extract(path, watch=watch)
    assert [reader.poll() is not None for reader in readers] == [True]


@pytest.mark.parametrize(("stage", "share"), [(EXTRACTING, 0.5), (RECOGNISING, 0.5), (ARRANGING, 0.5), ("reading", 0)])
def test_pages_are_the_share_of_every_stage_before_the_model_reads(stage: str, share: float) -> None:
    told: dict[str, Any] = {field.name: 0 for field in fields(Job)}
    assert Job(**told | {"stage": stage, "pages_done": 2, "pages": 4, "tokens": 100}).share == share


def test_a_worker_tells_now_and_then_and_what_it_tells_is_read_back(tmp_path: Path) -> None:
    limits, tell = ExtractLimits(), ipc.teller(tmp_path)
    assert ipc.read_progress(tmp_path, limits) is None
    tell(3, 9, 100)
    tell(4, 9, 200)  # too soon after the first
    assert ipc.read_progress(tmp_path, limits) == (3, 9, 100)


@pytest.mark.parametrize(
    "told",
    ["", "[1, 2", "[1]", "{}", "[5, 3, 0]", "[-1, 3, 0]", "[1, 99999, 0]", "[1, 2, 1e12]", '["a", 2, 3]', "9" * 300],
)
def test_nonsense_of_a_worker_is_no_progress(tmp_path: Path, told: str) -> None:
    (tmp_path / "progress.json").write_text(told)
    assert ipc.read_progress(tmp_path, ExtractLimits()) is None


def test_the_time_left_follows_the_pages_and_the_speed_of_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("retrieval.ingest.estimate.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(estimate, "known_speed", lambda _workspace, _loaded: 100.0)
    forecast = estimate.Forecast(None, None)  # type: ignore[arg-type]
    assert forecast.seconds_left(ExtractProgress(EXTRACTING, 0, 50)) is None
    clock[0] = 10.0
    pages_left, tokens = 40, 4_000 * 5 / 4
    expected = pages_left * 1.0 + tokens / 100
    assert forecast.seconds_left(ExtractProgress(EXTRACTING, 10, 50, 4_000)) == pytest.approx(expected)
    assert forecast.seconds_left(ExtractProgress(RECOGNISING, 0, 4)) is None, "another stage has its own pace"
    clock[0] = 16.0
    assert forecast.seconds_left(ExtractProgress(RECOGNISING, 2, 4)) == pytest.approx(2 * 3.0 + 4 * 600 / 100)


def test_slow_first_pages_do_not_count_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("retrieval.ingest.estimate.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(estimate, "known_speed", lambda _workspace, _loaded: 1e9)
    forecast = estimate.Forecast(None, None)  # type: ignore[arg-type]
    left = []
    for done, seconds in ((0, 0.0), (1, 60.0), (2, 61.0), (4, 63.0), (8, 67.0)):
        clock[0] = seconds
        left.append(forecast.seconds_left(ExtractProgress(EXTRACTING, done, 16, 1_000 * done)))
    assert left[:3] == [None, None, None], "too few pages to promise anything"
    assert left[3:] == pytest.approx([12 * 1.0, 8 * 1.0], abs=0.1)


def test_without_a_known_speed_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "known_speed", lambda _workspace, _loaded: None)
    forecast = estimate.Forecast(None, None)  # type: ignore[arg-type]
    assert forecast.seconds_left(ExtractProgress(EXTRACTING, 10, 50, 4_000)) is None
