"""Processes that are forked for each file: nothing passes from one to the next, and none outlives whom it serves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from retrieval.errors import ExtractError
from retrieval.extraction.extract import extract
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.process import sandbox as sandboxes
from retrieval.extraction.process.ipc import COMPLAINT, FORKS
from retrieval.extraction.process.sandbox import Sandbox
from tests.retrieval.extraction.test_limits import slow_pdf
from tests.waiting import until

pytestmark = pytest.mark.skipif(not FORKS, reason="processes are forked on Linux only")
ROOT = Path(__file__).resolve().parents[3]
# Notes in the folder who served, and what the process knew before; then does as the request says.
SERVES = """
import json, os, time
from pathlib import Path
from retrieval.extraction.process.worker import serve_many
seen = []
def serve(request):
    seen.append(request["password"])
    (Path(request["folder"]) / "noted.json").write_text(json.dumps([os.getpid(), os.getppid(), seen]))
    exec(request["do"])
serve_many(serve, 60.0)
"""
Asking = Callable[..., tuple[int, str]]


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """Its starter serves with the function above."""

    def start(*_arguments: str) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", SERVES], cwd=ROOT, start_new_session=True, **pipes)

    monkeypatch.setattr(sandboxes, "start_reader", start)
    sandbox = Sandbox()
    sandbox.start_next()
    yield sandbox
    sandbox.close()


@pytest.fixture
def ask(forking: Sandbox, tmp_path: Path) -> Asking:
    def asked(
        name: str, do: str = "", seconds: float = 60.0, check: Callable[[], object] = lambda: None
    ) -> tuple[int, str]:
        folder = tmp_path / name
        folder.mkdir()
        request = {"task": "extract", "folder": str(folder), "password": name, "do": do}
        return forking.serve(request | {"limits": {"memory_bytes": 1 << 20}}, seconds, check=check)

    return asked


def noted(folder: Path) -> Any:
    return json.loads((folder / "noted.json").read_text())


def test_every_request_has_a_process_that_knows_of_no_other(ask: Asking, forking: Sandbox, tmp_path: Path) -> None:
    starter = forking._waiting
    assert starter is not None
    assert [ask(name) for name in ("first", "second", "third")] == [(0, "")] * 3
    found = [noted(tmp_path / name) for name in ("first", "second", "third")]
    assert len({process for process, _, _ in found}) == 3
    assert [(parent, seen) for _, parent, seen in found] == [
        (starter.pid, [name]) for name in ("first", "second", "third")
    ]
    assert forking._waiting is starter


def test_one_that_fails_or_crashes_says_so_and_the_next_is_served(ask: Asking) -> None:
    status, complaint = ask("fails", "raise RuntimeError('the sheet has no cells')")
    assert status == 1 and complaint.endswith("RuntimeError: the sheet has no cells\n")
    assert ask("crashes", "os.kill(os.getpid(), 11)") == (-signal.SIGSEGV, "")
    assert ask("long", "os.write(2, b'x' * 100_000 + b'end')") == (0, "x" * (65_536 - 3) + "end")
    assert ask("well") == (0, "")


def test_one_that_takes_too_long_is_ended_with_its_starter(ask: Asking, forking: Sandbox, tmp_path: Path) -> None:
    assert ask("first") == (0, "")  # its starter has started
    with pytest.raises(subprocess.TimeoutExpired):
        ask("slow", "time.sleep(600)", seconds=1.0)
    assert forking._waiting is None and all(gone(process) for process in noted(tmp_path / "slow")[:2])


def test_who_gives_up_ends_it(ask: Asking, forking: Sandbox, tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def check() -> None:
        if (tmp_path / "given-up" / "noted.json").exists():
            raise Enough

    with pytest.raises(Enough):
        ask("given-up", "time.sleep(600)", check=check)
    assert forking._waiting is None and all(gone(process) for process in noted(tmp_path / "given-up")[:2])


def test_what_it_is_asked_is_not_said_to_the_starter(ask: Asking, forking: Sandbox, tmp_path: Path) -> None:
    """A password is read by the forked process only, whose standard streams are closed before it looks at the file."""
    assert (
        ask("secret", "assert os.readlink('/proc/self/fd/0') == os.readlink('/proc/self/fd/1') == '/dev/null'")[0] == 0
    )
    assert forking._waiting is not None
    assert (tmp_path / "secret" / COMPLAINT).stat().st_mode & 0o077 == 0


def test_a_forked_reader_ends_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    short, slow = tmp_path / "a.txt", tmp_path / "slow.pdf"
    short.write_text("The dam was raised in 1951.")
    slow.write_bytes(slow_pdf(600_000))
    script = (
        "import sys; from retrieval.extraction.extract import SANDBOX, extract\n"
        "extract(sys.argv[1]), extract(sys.argv[1])\n"
        "print(SANDBOX._waiting.pid, flush=True); extract(sys.argv[2])"
    )
    command = [sys.executable, "-c", script, str(short), str(slow)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as owner:
        assert owner.stdout is not None
        starter = int(owner.stdout.readline())
        children = Path(f"/proc/{starter}/task/{starter}/children")
        readers = until(lambda: children.read_text().split())
        owner.kill()
    assert len(readers) == 1 and gone(int(readers[0])) and gone(starter)


def test_limits_hold_in_forked_processes_and_for_one_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, short = tmp_path / "slow.pdf", tmp_path / "a.txt"
    slow.write_bytes(slow_pdf(40_000))
    short.write_text("The dam was raised in 1951.")
    sandbox = Sandbox()
    monkeypatch.setattr("retrieval.extraction.extract.SANDBOX", sandbox)
    # On a busy machine two seconds of the processor take long; after the clock's limit the starter is ended as well.
    monkeypatch.setattr("retrieval.extraction.extract._START_SECONDS", 600.0)
    sandbox.start_next()
    try:
        starter = sandbox._waiting
        with pytest.raises(ExtractError, match="longer than 1 seconds"):
            extract(slow, limits=ExtractLimits(seconds=1))
        assert extract(short).text == "The dam was raised in 1951."
        assert sandbox._waiting is starter
    finally:
        sandbox.close()


def gone(process: int) -> bool:
    """Whether it ends soon."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False
