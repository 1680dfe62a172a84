"""Short forms of `make stress`: each part holds, and says so in one JSON object."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from retrieval.extraction import extract

ROOT = Path(__file__).resolve().parents[2]
from tests import forked, postgresql
from tests.stress.shim import compiler

needs_postgresql = pytest.mark.skipif(bool(postgresql.why_not()), reason=postgresql.why_not())
needs_compiler = pytest.mark.skipif(compiler() is None, reason="the failing disk is a library in C, for Linux")


@pytest.mark.parametrize(
    "command", [["failing_disk.py", "--failures", "3"], ["clocks.py", "--jumps", "4"]], ids=lambda command: command[0]
)
@needs_compiler
def test_this_part_of_the_campaign_holds_behind_a_library_in_c(command: list[str]) -> None:
    script, *options = command
    run = [sys.executable, str(ROOT / "tests" / "stress" / script), *options]
    ended = subprocess.run(run, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert ended.returncode == 0, ended.stderr[-2000:] + ended.stdout
    assert json.loads(ended.stdout.splitlines()[-1])["violations"] == []


@pytest.mark.parametrize(
    "command",
    [
        ["duplicates.py", "--rounds", "2"],
        ["odd_pdfs.py", "--files", "8"],
        pytest.param(
            [
                "machines.py",
                "--documents",
                "3",
                "--characters",
                "600",
                "--workers",
                "2",
                "--every",
                "0.5",
                "--lease",
                "0.5",
            ],
            marks=needs_postgresql,
        ),
        pytest.param(
            ["cluster.py", "--files", "12", "--askers", "2", "--slow", "3", "--away", "2"], marks=needs_postgresql
        ),
    ],
    ids=lambda command: command[0],
)
def test_this_part_of_the_campaign_holds(command: list[str]) -> None:
    script, *options = command
    ended = forked.run(f"tests/stress/{script}", *options, timeout=600)
    assert ended.returncode == 0, ended.stderr[-2000:] + ended.stdout
    assert json.loads(ended.stdout.splitlines()[-1])["violations"] == []


@pytest.mark.parametrize("command", [["fingerprints"], ["askers", "--askers", "3", "--answers", "10"]], ids=" ".join)
def test_this_part_holds_and_needs_no_process_of_its_own(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extract, "SANDBOX", extract.SANDBOX)  # the program sets another one
    monkeypatch.setattr(sys, "argv", command)
    ended = importlib.import_module(f"tests.stress.{command[0]}").main()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["violations"] == [] and ended == 0


@pytest.mark.slow
@pytest.mark.skipif(bool(postgresql.why_not()), reason=postgresql.why_not())
def test_a_cluster_holds_while_its_parts_are_struck() -> None:
    run = [sys.executable, "tests/stress/cluster.py", "--files", "24", "--slow", "20"]
    ended = subprocess.run(run, capture_output=True, text=True, cwd=ROOT, timeout=3600)
    assert ended.returncode == 0, ended.stderr[-2000:] + ended.stdout
    assert json.loads(ended.stdout.splitlines()[-1])["violations"] == []
