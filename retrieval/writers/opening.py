"""A writer by its name: a folder, a name on the Hugging Face hub, or the address of a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from retrieval.writers.protocol import Writer


@dataclass(frozen=True, kw_only=True)
class WriterSpec:
    """Which writer, and what it needs.

    `name`: a checkpoint's folder, `org/model` on the hub, or `http(s)://host/v1`, with `#model` behind it where the
    server has several. `key`: of a server; `timeout_seconds`: how long it may be silent. `home`: the library's
    folder. `device` and `dtype`: as of the finder. `memory_bytes`: what local writers may keep of passages; `repair`:
    the share of it that is computed again for each question, None for what the guard finds; `int8`: keep a
    checkpoint's weights in a byte each; `reads_ahead`: let it read new documents before anybody asks.
    """

    name: str
    home: Path
    key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 120.0
    device: str | None = None
    dtype: str | None = None
    memory_bytes: int = 10_000_000_000
    repair: float | None = None
    int8: bool = False
    reads_ahead: bool = False


def open_writer(spec: WriterSpec) -> Writer:
    """Neither loads weights nor calls a server."""
    if spec.name.startswith(("http://", "https://")):
        from retrieval.writers.server.server_writer import ServerWriter

        return ServerWriter(spec.name, key=spec.key, timeout_seconds=spec.timeout_seconds)
    from retrieval.writers.local.local_writer import LocalWriter

    return LocalWriter(
        spec.name,
        home=spec.home,
        device=spec.device,
        dtype=spec.dtype,
        memory_bytes=spec.memory_bytes,
        repair=spec.repair,
        int8=spec.int8,
        reads_ahead=spec.reads_ahead,
    )
