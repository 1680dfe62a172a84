"""The process in which one file is read: limited in memory and time, so that a hostile file fails alone.

Started by `retrieval.extraction.sandbox` as `python -m retrieval.extraction.worker`. The request is JSON on standard
input (never in the arguments, which other users can list: it may hold a password); the result is files in a folder.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from retrieval.errors import ExtractError
from retrieval.extraction.formats import FORMATS, format_of
from retrieval.extraction.ipc import AHEAD, EXIT_IDLE, IMAGE, write_document, write_result
from retrieval.extraction.limits import ExtractLimits

_PATIENCE_SECONDS = 60.0
_NICENESS = 5  # a document's text is less urgent than an answer or a page's image


def main(arguments: list[str]) -> int:
    if AHEAD in arguments and not _request_comes():
        return EXIT_IDLE
    line = sys.stdin.read()
    if not line:  # the caller has ended
        return EXIT_IDLE
    request: dict[str, Any] = json.loads(line)
    threading.Thread(target=_exit_with_caller, args=(request["caller"],), daemon=True).start()
    folder, limits = Path(request["folder"]), ExtractLimits(**request["limits"])
    os.chdir(folder)
    try:
        facts = _TASKS[request["task"]](request, folder, limits)
    except ExtractError as error:
        facts = {"error": error.reason}
    except MemoryError:
        facts = {"error": limits.out_of_memory()}
    except RecursionError:
        facts = {"error": "The file is nested too deeply: it is damaged or malicious."}
    write_result(folder, facts)
    return 0


def _request_comes() -> bool:
    """Import what any request may need, then wait for one; whether it came in time."""
    import retrieval.extraction.pdf.render  # noqa: F401

    for each in FORMATS:
        _function(each.extractor)
    if sys.platform == "win32":  # pipes cannot be waited for with a timeout
        return True
    return bool(select.select([sys.stdin], [], [], _PATIENCE_SECONDS)[0])


def _exit_with_caller(caller: int) -> None:
    """A caller that is killed can no longer stop this process.

    The system's own signal for it (PR_SET_PDEATHSIG) already comes when the thread that started the process ends.
    """
    while os.getppid() == caller:
        time.sleep(0.5)
    os._exit(1)


def _extract(request: dict[str, Any], folder: Path, limits: ExtractLimits) -> dict[str, Any]:
    path = Path(request["path"])
    os.nice(_NICENESS)
    extractor = _function(format_of(path).extractor)
    _restrict(limits)
    return write_document(folder, extractor(path, limits, request["password"]))


def _render(request: dict[str, Any], folder: Path, limits: ExtractLimits) -> dict[str, Any]:
    from retrieval.extraction.pdf.render import render_pdf_page  # only what the task needs: each import takes its time

    _restrict(limits)
    image = render_pdf_page(Path(request["path"]), request["page"], request["width_px"], limits, request["password"])
    (folder / IMAGE).write_bytes(image)
    return {}


def _unlock(request: dict[str, Any], folder: Path, limits: ExtractLimits) -> dict[str, Any]:
    from retrieval.extraction.pdf.opening import save_unlocked

    _restrict(limits)
    return {"unlocked": save_unlocked(Path(request["path"]), Path(request["into"]), request["password"])}


_TASKS = {"extract": _extract, "render": _render, "unlock": _unlock}


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


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
