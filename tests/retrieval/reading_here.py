"""Reading files without a process for each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from retrieval.errors import ExtractError
from retrieval.extraction.formats import format_of, function_named
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.process.ipc import FORKS, write_document, write_result
from retrieval.extraction.process.sandbox import Sandbox


class ReadingHere(Sandbox):
    """Extracts text in the calling process, without the worker's limits; PDFs and pictures get their process."""

    def serve(
        self, request: dict[str, Any], seconds: float, person: str = "", check: Callable[[], object] = lambda: None
    ) -> tuple[int, str]:
        if request["task"] != "extract" or format_of(request["path"]).drawn:
            if FORKS:
                super().start_next()  # the first one imports everything, and forks all that come after
            return super().serve(request, seconds, person, check)
        path, folder, limits = Path(request["path"]), Path(request["folder"]), ExtractLimits(**request["limits"])
        try:
            facts = write_document(folder, function_named(format_of(path).extractor)(path, limits, request["password"]))
        except ExtractError as error:
            facts = {"error": error.reason}
        write_result(folder, facts)
        return 0, ""

    def start_next(self) -> None:
        """Nobody waits before a file needs a process: most need none."""
