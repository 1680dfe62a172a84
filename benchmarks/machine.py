"""What a figure was measured on: processor, threads and versions, for every benchmark to print beside it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def described(threads: int | None = None) -> dict[str, str | int]:
    """`machine`, `versions`, the load average at the moment, and `threads` where they matter."""
    about: dict[str, str | int] = {
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()}",
        "versions": ", ".join(f"{name} {_version(name)}" for name in ("cairn", "torch", "transformers"))
        + f", Python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
    }
    return about if threads is None else about | {"threads": threads}


def processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
