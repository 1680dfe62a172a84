"""What this machine and this library can do, and what is wrong with them."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from typing import Any

import torch

from retrieval.engine.workspace import LoadedModel, Workspace
from retrieval.errors import CairnError
from retrieval.index.snapshot import MemoryIndex
from retrieval.ingest.file_store import free_bytes
from retrieval.types.writer import Writer
from retrieval.writers.opening import writer_report
from storage.errors import NotFound as NoRow

_LITTLE_SPACE = 1 << 30
_FAILURES_SHOWN = 5


_NOT_YOURS = "The model or the memory cannot be used at the moment. `cairn doctor` tells the administrator why."


def examine(workspace: Workspace, index: MemoryIndex, writer: Writer | None = None) -> dict[str, Any]:
    """JSON-able; `problems` are sentences, empty when all is well. Users do not learn of the machine, nor of paths."""
    administrator = workspace.catalogue.principal.is_administrator
    problems: list[str] = []
    model: dict[str, Any] = {}
    try:
        model = _model(workspace.loaded(any_memory=True))
        workspace.check_memory()
    except CairnError as error:
        problems.append(str(error) if administrator else _NOT_YOURS)
    except (OSError, ValueError) as error:
        problems.append(f"The model cannot be loaded: {error}" if administrator else _NOT_YOURS)
    written: dict[str, Any] = {}
    if writer is not None:
        written, its_problems = writer_report(writer, workspace.home)
        problems += its_problems
    free = free_bytes(workspace)
    if free < _LITTLE_SPACE:
        where = str(workspace.home) if administrator else "the library"
        problems.append(f"Only {free / 1e6:,.0f} MB are free on the disk of {where}.")
    failed = [job for job in workspace.catalogue.jobs(limit=200) if job.state == "failed"]
    for job in failed[:_FAILURES_SHOWN]:
        with contextlib.suppress(NoRow):  # the document was deleted since the jobs were listed
            problems.append(f"{workspace.catalogue.document(job.document_id).source} could not be read: {job.error}")
    if not administrator:
        model.pop("source", None)
    administrators = {
        "machine": _machine(),
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "faiss-cpu")},
        "home": str(workspace.home),
        "index": {"kind": index.kind, "resident_bytes": index.size_bytes, **index.expected_bytes()},
    }
    return {
        **(administrators if administrator else {}),
        "free_bytes": free,
        "model": model,
        **({"writer": written} if written else {}),
        "memory": vars(workspace.catalogue.totals()) | {"kv_dtype": workspace.kv_dtype_in_use},
        "problems": problems,
    }


def _model(loaded: LoadedModel) -> dict[str, Any]:
    model, config = loaded.model, loaded.model.config
    return {
        "source": model.source,
        "device": str(model.device),
        "dtype": str(model.dtype).removeprefix("torch."),
        "layers": model.num_layers,
        "memory_layers": list(model.memory_layers),
        "heads": model.num_heads,
        "kv_heads": model.num_kv_heads,
        "block_size": config.block_size,
        "bytes_per_token": round(loaded.layout.block_bytes / config.tokens_per_block),
        "identity": loaded.fingerprint.digest,
        "calibrated": loaded.ranker.is_calibrated,
    }


def _machine() -> dict[str, Any]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": pages,
        "gpus": gpus,
    }
