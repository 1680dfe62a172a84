"""The process in which one file is read: limited in memory and time, so that a hostile file fails alone.

Started by `retrieval.extraction.extract` as `python -m retrieval.extraction.worker`; the request comes as JSON on
standard input (never in the arguments, which other users can list: it may hold a password), the result goes to files
in a folder.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from pathlib import Path
from typing import Any

from retrieval.errors import ExtractError
from retrieval.extraction.limits import ExtractLimits

AHEAD = "--ahead"
"""Argument: import what any request may need, then wait for one."""
WENT_HOME = 75
"""Exit status of a process that was started ahead and that nobody asked."""
_PATIENCE_SECONDS = 60.0
_NICENESS = 5  # nobody waits for a document's text as one waits for an answer, or for a page's image


def main(arguments: list[str]) -> int:
    if AHEAD in arguments and not _asked_after_imports():
        return WENT_HOME
    asked = sys.stdin.read()
    if not asked:  # whoever might have asked has ended
        return WENT_HOME
    request: dict[str, Any] = json.loads(asked)
    threading.Thread(target=_end_with_caller, args=(request["caller"],), daemon=True).start()
    folder, path = Path(request["folder"]), Path(request["path"])
    os.chdir(folder)
    limits = ExtractLimits(**request["limits"])
    try:
        _serve(request, folder, path, limits)
    except ExtractError as error:
        _fail(folder, error.reason)
    except MemoryError:
        _fail(folder, limits.out_of_memory())
    except RecursionError:
        _fail(folder, "The file is built in endless loops: it is damaged or made to do harm.")
    return 0


def _asked_after_imports() -> bool:
    """Whether a request has come in time."""
    import retrieval.extraction.ipc
    import retrieval.extraction.markup
    import retrieval.extraction.office
    import retrieval.extraction.pdf.extract_pdf
    import retrieval.extraction.pdf.render  # noqa: F401

    if sys.platform == "win32":  # where pipes cannot be waited for with a limit
        return True
    return bool(select.select([sys.stdin], [], [], _PATIENCE_SECONDS)[0])


def _end_with_caller(caller: int) -> None:
    """Who waits for the result may be killed, and could then not stop this process.

    The system's own signal for it (PR_SET_PDEATHSIG) comes when the thread ends that started a process ahead.
    """
    while os.getppid() == caller:
        time.sleep(0.5)
    os._exit(1)


def _fail(folder: Path, reason: str) -> None:
    (folder / "result.json").write_text(json.dumps({"error": reason}), encoding="utf-8")


def _serve(request: dict[str, Any], folder: Path, path: Path, limits: ExtractLimits) -> None:
    """Imports what the task needs (each takes its time), limits itself, then touches the file."""
    suffix, password = request["suffix"], request["password"]
    if request["task"] == "render":
        from retrieval.extraction.pdf.render import render_pdf_page

        _restrict(limits)
        image = render_pdf_page(path, request["page"], request["width_px"], limits, password)
        (folder / "page.png").write_bytes(image)
        return
    if request["task"] == "unlock":
        from retrieval.extraction.pdf.opening import save_unlocked

        _restrict(limits)
        written = save_unlocked(path, Path(request["into"]), password)
        (folder / "result.json").write_text(json.dumps({"unlocked": written}), encoding="utf-8")
        return
    from retrieval.extraction.ipc import write_document

    os.nice(_NICENESS)
    if suffix == ".pdf":
        from retrieval.extraction.pdf.extract_pdf import extract_pdf

        _restrict(limits)
        document = extract_pdf(path, limits, password)
    elif suffix == ".docx":
        from retrieval.extraction.office import extract_docx

        _restrict(limits)
        document = extract_docx(path, limits)
    else:
        from retrieval.extraction.markup import extract_markup

        _restrict(limits)
        document = extract_markup(path, suffix, limits)
    write_document(folder, document)


def _restrict(limits: ExtractLimits) -> None:
    """Limits of the operating system, where it has them; set after the imports, whose own need is not the file's."""
    try:
        import resource
    except ImportError:  # Windows: the wall clock of the parent remains
        return
    seconds = int(limits.seconds) + 1
    wanted = {
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_AS: _address_space() + limits.memory_bytes,
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


def _address_space() -> int:
    """Bytes of address space this process holds now."""
    try:
        fields = Path("/proc/self/statm").read_text().split()
    except OSError:
        return 2 << 30
    import resource

    return int(fields[0]) * resource.getpagesize()


if __name__ == "__main__":
    status = main(sys.argv[1:])
    os._exit(status)  # all files are closed, and taking the modules down takes a tenth of a second
