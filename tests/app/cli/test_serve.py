"""What the server keeps of its log, which folders it follows, its token, and how many connections it makes room for."""

from __future__ import annotations

import logging
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import serve
from app.operations import logs
from retrieval.library import Library
from tests.app.cli_client import Commands, cairn

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
    assert not logging.getLogger("httpx2").isEnabledFor(logging.INFO), "a line for each call of a writer's server"
    assert (tmp_path / "logs").stat().st_mode & 0o077 == 0


def test_folders_to_follow_may_have_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[Path] = []
    monkeypatch.setattr(serve, "run_server", lambda settings, folders, as_json: followed.extend(folders))
    share = "/run/user/1000/gvfs/smb-share:server=a,share=b"
    assert cairn("serve", "--watch", share, "--watch", "/reports").exit_code == 0
    monkeypatch.setenv("CAIRN_WATCH", "/a:/b")
    assert cairn("serve").exit_code == 0
    assert followed == [Path(share), Path("/reports"), Path("/a"), Path("/b")]


def test_the_token_is_printed_where_it_opens_something(commands: Commands, library: Library) -> None:
    assert cairn("token").exit_code == 0
    library.accounts.create("ann", "")
    ended = cairn("token")
    assert ended.exit_code == 1 and not ended.stdout and "cairn user token" in ended.stderr


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
