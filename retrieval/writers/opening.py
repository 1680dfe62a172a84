"""A writer by its name: a folder, a name on the Hugging Face hub, or the address of a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from retrieval.errors import WriterError
from retrieval.writers.protocol import Writer


@dataclass(frozen=True, kw_only=True)
class WriterSpec:
    """Which writer, and what it needs.

    `name`: a checkpoint's folder, `org/model` on the hub, or `http(s)://host/v1`, with `#model` behind it where the
    server has several. `key`: of a server; `timeout_seconds`: how long it may be silent. `home`: the library's
    folder. `device` and `dtype`: as of the finder.
    """

    name: str
    home: Path
    key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 120.0
    device: str | None = None
    dtype: str | None = None


def open_writer(spec: WriterSpec) -> Writer:
    """Neither loads weights nor calls a server. Raises `WriterError` for a name that cannot be one."""
    if spec.name.startswith(("http://", "https://")):
        from retrieval.writers.server import ServerWriter

        return ServerWriter(spec.name, key=spec.key, timeout_seconds=spec.timeout_seconds)
    raise WriterError(spec.name, "Checkpoints as writers cannot be used yet. Name the address of a server instead.")
