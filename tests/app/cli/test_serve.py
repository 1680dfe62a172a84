"""What the server keeps of its log, and how many connections it makes room for."""

from __future__ import annotations

import logging
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from app.operations import logs

ROOT = Path(__file__).resolve().parents[3]


def test_the_log_is_kept_in_private_files_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOG_BYTES", 1000)
    before = list(logging.getLogger().handlers)
    logs.log_to(tmp_path / "logs", "text")
    try:
        for number in range(500):
            logging.getLogger("cairn.api").warning("something happened for the %d. time", number)
    finally:
        for handler in set(logging.getLogger().handlers) - set(before):
            logging.getLogger().removeHandler(handler)
            handler.close()
    files = sorted((tmp_path / "logs").iterdir())
    assert len(files) == logs.LOG_FILES + 1 and all(file.stat().st_size <= 1000 for file in files)
    assert "for the 499. time" in files[0].read_text()
    assert (tmp_path / "logs").stat().st_mode & 0o077 == 0


def test_connections_leave_files_for_everything_else_whatever_the_system_allows() -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])));"
        "from app.limits.connections import allow_open_files;"
        "print(allow_open_files(1000), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    hard = min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    for limits, expected in (((256, hard), "1000 1256"), ((256, 600), "344 600"), ((hard, hard), f"1000 {hard}")):
        command = [sys.executable, "-c", code, *map(str, limits)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert ended.stdout.strip() == expected, ended.stderr
