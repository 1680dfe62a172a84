"""A writer by its name: a folder, a name on the Hugging Face hub, or the address of a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval.writers.protocol import Writer

if TYPE_CHECKING:
    from model.checkpoint.chat.few_bits import FewBits


@dataclass(frozen=True, kw_only=True)
class WriterSpec:
    """Which writer, and what it needs.

    `name`: a checkpoint's folder, `org/model` on the hub, or `http(s)://host/v1`, with `#model` behind it where the
    server has several. `key`: of a server; `timeout_seconds`: how long it may be silent. `home`: the library's
    folder. `device` and `dtype`: as of the finder. `memory_bytes`: what local writers may keep of passages; `repair`:
    the share of it that is computed again for each question, None for what the guard finds; `few_bits`:
    "int8" or "nf4", to keep a checkpoint's matrices in them; `reads_ahead`: let it read new documents before anybody
    asks.
    """

    name: str
    home: Path
    key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 120.0
    device: str | None = None
    dtype: str | None = None
    memory_bytes: int = 10_000_000_000
    repair: float | None = None
    few_bits: FewBits | None = None
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
        few_bits=spec.few_bits,
        reads_ahead=spec.reads_ahead,
    )
