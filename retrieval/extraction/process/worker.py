"""The process in which one file is read: limited in memory and time, so that a hostile file fails alone.

Started by `retrieval.extraction.process.sandbox` as `python -m retrieval.extraction.process.worker`. The request is
JSON on standard input (never in the arguments, which other users can list: it may hold a password); the result is files
in a folder.

Started ahead of any request on Linux, where libraries survive a fork, it imports everything and forks such a process
for each one, which takes a hundredth of a start:

- It never looks at a request: the forked process reads it, and ends with its file. So nothing of one file (its text,
  its password, what a hostile one did to its reader) is there when the next one is read.
- One request at a time; whoever wants more has more of them. It has no threads, which a fork would lose.
- A line on standard output is the exit status of the process that served the request; what that wrote to standard error
  is in `COMPLAINT` in the folder of the request.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retrieval.errors import ExtractError, NothingToRead
from retrieval.extraction.formats import FORMATS, PDF, format_of, function_named
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.office.older import convert
from retrieval.extraction.process.ipc import (
    AHEAD,
    COMPLAINT,
    EXIT_IDLE,
    FORKS,
    IMAGE,
    teller,
    write_document,
    write_result,
)

_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_NO_REQUEST = 76  # exit status of a forked process whose caller has closed its end
NICENESS = 5  # a document's text is less urgent than an answer or a page's image


def main(arguments: list[str]) -> int:
    if AHEAD in arguments and FORKS:
        _import_everything()
        serve_many(serve, _PATIENCE_SECONDS)
        return EXIT_IDLE
    if AHEAD in arguments and not _request_comes():
        return EXIT_IDLE
    line = sys.stdin.read()
    if not line:  # the caller has ended
        return EXIT_IDLE
    serve(json.loads(line))
    return 0


def serve(request: dict[str, Any]) -> None:
    """Does what the request asks for, within its limits, which stay with this process."""
    threading.Thread(target=_exit_with_caller, args=(request["caller"],), daemon=True).start()
    folder, limits = Path(request["folder"]), ExtractLimits(**request["limits"])
    os.chdir(folder)
    try:
        facts = _TASKS[request["task"]](request, folder, limits)
    except NothingToRead as error:
        facts = {"error": error.reason, "scanned": error.pages}
    except ExtractError as error:
        facts = {"error": error.reason}
    except MemoryError:
        facts = {"error": limits.out_of_memory()}
    except RecursionError:
        facts = {"error": "The file is nested too deeply: it is damaged or malicious."}
    write_result(folder, facts)


def _request_comes() -> bool:
    """Import what any request may need, then wait for one; whether it came in time."""
    for each in FORMATS:
        if each.ahead:
            function_named(each.extractor)
    if sys.platform == "win32":  # pipes cannot be waited for with a timeout
        return True
    return bool(select.select([sys.stdin], [], [], _PATIENCE_SECONDS)[0])


def _import_everything() -> None:
    """For all requests to come: none of them takes longer for what another one needs."""
    import retrieval.extraction.ocr.pictures  # noqa: F401

    for each in FORMATS:
        function_named(each.extractor)


def serve_many(serve: Callable[[dict[str, Any]], object], patience_seconds: float) -> None:
    """Serve one request after the other until none came for so long, or the caller has ended."""
    caller, starter = os.getppid(), os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # waited for below
    gc.freeze()  # so that forked processes do not copy what is never freed
    while select.select([0], [], [], patience_seconds)[0] and (child := _fork(serve, starter)):
        status = _ended(child, caller)
        if status is None or os.WIFEXITED(status) and os.WEXITSTATUS(status) == _NO_REQUEST:
            return
        os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _fork(serve: Callable[[dict[str, Any]], object], starter: int) -> int:
    """The process id of the child, which reads its request from standard input and never returns."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        line = _request()
        if not line:
            os._exit(_NO_REQUEST)
        request = json.loads(line)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):  # what the starter and its caller say to each other
            os.dup2(nothing, standard)
        os.dup2(os.open(Path(request["folder"]) / COMPLAINT, os.O_WRONLY | os.O_CREAT, 0o600), 2)
        serve(request | {"caller": starter})
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _request() -> bytes:
    """One line, or nothing at the end of standard input."""
    parts = [os.read(0, 1 << 16)]
    while parts[-1] and not parts[-1].endswith(b"\n"):
        parts.append(os.read(0, 1 << 16))
    return b"".join(parts)


def _ended(child: int, caller: int) -> int | None:
    """Wait status of the child; None if the caller has ended, and the child with it."""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if os.getppid() != caller:
            os.kill(child, signal.SIGKILL)
            return None
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK_SECONDS)


def _exit_with_caller(caller: int) -> None:
    """A caller that is killed can no longer stop this process.

    The system's own signal for it (PR_SET_PDEATHSIG) already comes when the thread that started the process ends.
    """
    while os.getppid() == caller:
        time.sleep(0.5)
    os._exit(1)


def _extract(request: dict[str, Any], folder: Path, limits: ExtractLimits) -> dict[str, Any]:
    path = Path(request["path"])
    os.nice(NICENESS)
    format_ = format_of(path)
    extractor = function_named(format_.extractor)
    more: dict[str, Any] = {}
    if format_.may_hold_pictures and request.get("recognised"):
        more["recognised"] = Path(request["recognised"])
    if format_.tells_pages:
        more["tell"] = teller(folder)
    _restrict(limits)
    return write_document(folder, extractor(path, limits, request["password"], **more))


def _convert(request: dict[str, Any], folder: Path, limits: ExtractLimits) -> dict[str, Any]:
    os.nice(NICENESS)
    _restrict(limits)
    return {"name": convert(Path(request["path"]), request["suffix"], folder, request["office"]).name}


def _recognise(request: dict[str, Any], folder: Path, limits: ExtractLimits) -> dict[str, Any]:
    from retrieval.extraction.ocr.read_pictures import read_pictures
    from retrieval.extraction.ocr.recognise import Recogniser

    os.nice(NICENESS)
    models = folder / "models"
    models.mkdir()
    for file in request["models"]:
        (models / Path(file).name).symlink_to(file)
    recogniser = Recogniser(models, request["languages"])
    _restrict(limits)
    path, into = Path(request["path"]), Path(request["recognised"])
    read_pictures(path, request["pages"], into, recogniser, limits, request["password"], teller(folder))
    return {}


def _render(request: dict[str, Any], folder: Path, limits: ExtractLimits) -> dict[str, Any]:
    from retrieval.extraction.ocr.pictures import draw_picture  # only what the task needs: each import takes its time
    from retrieval.extraction.pdf.extract_pdf import render_pdf_page

    _restrict(limits)
    path, page, width_px = Path(request["path"]), request["page"], request["width_px"]
    if format_of(path) is PDF:
        image = render_pdf_page(path, page, width_px, limits, request["password"])
    else:
        image = draw_picture(path, page, width_px, limits)
    (folder / IMAGE).write_bytes(image)
    return {}


def _unlock(request: dict[str, Any], folder: Path, limits: ExtractLimits) -> dict[str, Any]:
    from retrieval.extraction.pdf.opening import save_unlocked

    _restrict(limits)
    return {"unlocked": save_unlocked(Path(request["path"]), Path(request["into"]), request["password"])}


_TASKS = {"extract": _extract, "convert": _convert, "recognise": _recognise, "render": _render, "unlock": _unlock}


def _restrict(limits: ExtractLimits) -> None:
    """Set the system's limits, where it has them; after the imports, whose own needs are not the file's."""
    try:
        import resource
    except ImportError:  # Windows: the wall clock of the caller remains
        return
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        own_bytes = pages * resource.getpagesize()
    except OSError:
        own_bytes = 2 << 30
    wanted = {
        resource.RLIMIT_CPU: int(limits.seconds) + 1,
        resource.RLIMIT_AS: own_bytes + limits.memory_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 2 << 30,
    }
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(kind, (value, hard))
        except (ValueError, OSError):  # macOS refuses RLIMIT_AS
            continue


if __name__ == "__main__":
    status = main(sys.argv[1:])
    os._exit(status)  # all files are closed, and tearing the modules down takes a tenth of a second
