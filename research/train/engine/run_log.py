"""The log of a run: one JSON object a line, so that any tool can plot it."""

import json
from pathlib import Path
from typing import Any


class RunLog:
    """Appends lines to `log.jsonl`. A resumed run first drops the lines that lie after the step it goes on from."""

    def __init__(self, file: Path, *, resumed_step: int) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():
            kept = [line for line in read_log(file) if line["step"] <= resumed_step and resumed_step > 0]
            fresh = file.with_suffix(".unfinished")
            fresh.write_text("".join(json.dumps(line) + "\n" for line in kept))
            fresh.replace(file)

    def write(self, step: int, **values: Any) -> None:
        with self._file.open("a") as out:
            out.write(json.dumps({"step": step, **values}) + "\n")


def read_log(file: Path) -> list[dict[str, Any]]:
    """All complete lines; a line cut off by a kill is left out."""
    lines = []
    for text in file.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines
