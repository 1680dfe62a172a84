"""The server's log: lines for people, or one JSON object a line for programs that collect logs."""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that this thread or task works for."""
LogFormat = Literal["text", "json"]
TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LOG_BYTES, LOG_FILES = 10_000_000, 4
CHATTY = ("alembic", "asyncio", "faiss", "httpx", "httpx2", "mcp", "PIL")


class JsonLines(logging.Formatter):
    """One object a line: `time` (UTC), `level`, `logger`, `message`; `request_id` where one is known, `exception` with
    its traceback, and the fields of a record's `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := REQUEST_ID.get():
            line["request_id"] = request_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, "fields", {}), ensure_ascii=False)


def log_to(folder: Path | None, log_format: LogFormat) -> None:
    """To standard error, and in `folder` to files of bounded size."""
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if folder is not None:
        folder.mkdir(exist_ok=True, mode=0o700)
        handlers.append(
            RotatingFileHandler(folder / "cairn.log", maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")
        )
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    for handler in handlers:
        handler.setFormatter(JsonLines() if log_format == "json" else logging.Formatter(TEXT_FORMAT))
        root.addHandler(handler)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
