"""What this machine can do, and what is wrong: `cairn doctor`. Works also when the model or the library does not."""

from __future__ import annotations

import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from app import assembly
from app.cli.output import user_message
from app.settings import Settings

PACKAGES = ("cairn", "torch", "transformers", "gradio", "faiss-cpu", "sqlalchemy", "pypdf", "pypdfium2")
LITTLE_DISK_BYTES = 1_000_000_000


def examine(settings: Settings) -> dict[str, Any]:
    """Machine, settings and library as plain values; `problems` is a list of sentences, empty when all is well."""
    report: dict[str, Any] = {
        "home": str(settings.home),
        "model_path": settings.model,
        "versions": {"python": platform.python_version(), **_versions()},
    }
    problems: list[str] = []
    try:
        assembly.check_model(settings.model)
        with assembly.open_library(settings) as library:
            found = library.doctor()
        problems += found.pop("problems", [])
        report |= {**found, "versions": {**report["versions"], **found.get("versions", {})}}
    except Exception as error:
        message = user_message(error)
        if message is None:
            raise
        problems.append(message)
    report.setdefault("free_bytes", _free_disk(settings))
    if report["free_bytes"] is not None and report["free_bytes"] < LITTLE_DISK_BYTES:
        problems.append(f"Little disk space is left at {settings.home}: {report['free_bytes'] / 1e6:,.0f} MB.")
    return {**report, "problems": list(dict.fromkeys(problems))}


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a folder without being installed
            found[name] = "not installed"
    return found


def _free_disk(settings: Settings) -> int | None:
    folder = settings.home
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
