"""Texts from files, and token files on disk. Knows nothing of blocks.

- A text file is `.txt` (one document), `.jsonl` (a `text` in each line), or either of them with `.xz` or `.gz` behind.
  A folder stands for its `.txt` files, as PG-19 has them.
- A token file is raw little-endian uint16 or uint32 with a small JSON beside it, read through a memory map.
"""

import gzip
import json
import lzma
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_documents(file: Path, subset: str | None = None) -> Iterator[str]:
    """The documents of one file or folder, in order. `subset`: of lines of JSON those whose `meta` names it as their
    `config`, as proof-pile marks its arXiv papers. Raises ValueError for a kind of file it does not know."""
    if file.is_dir():
        for one in sorted(file.glob("*.txt")):
            yield from read_documents(one)
        return
    opened: Any = {".xz": lzma.open, ".gz": gzip.open}.get(file.suffix, open)
    kind = file.suffix if opened is open else file.with_suffix("").suffix
    if kind not in (".txt", ".jsonl"):
        raise ValueError(f"{file} is neither .txt nor .jsonl (nor one of them with .xz or .gz): convert it first.")
    with opened(file, "rt", encoding="utf-8") as lines:
        if kind == ".txt":
            yield lines.read()
            return
        for number, line in enumerate(lines, 1):
            if line.strip():
                document = json.loads(line)
                if "text" not in document:
                    raise ValueError(f"{file}, line {number}: no field 'text'.")
                if subset is None or _subset(document.get("meta", {})) == subset:
                    yield document["text"]


def _subset(meta: str | dict[str, Any]) -> str | None:
    """`meta` is an object, or JSON in a string."""
    named = json.loads(meta) if isinstance(meta, str) else meta
    return named.get("config")


def write_token_file(
    file: Path,
    documents: Iterable[str],
    tokenize: Callable[[str], Sequence[int]],
    *,
    vocab_size: int,
    eos_token_id: int,
) -> int:
    """Join documents by end-of-text tokens into one token file; returns the number of tokens. Appears complete or not
    at all.
    """
    kind = np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished, count = file.with_name(file.name + ".unfinished"), 0
    with unfinished.open("wb") as out:
        for document in documents:
            ids = np.asarray([*tokenize(document), eos_token_id], dtype=kind)
            out.write(ids.tobytes())
            count += len(ids)
        out.flush()
        os.fsync(out.fileno())
    description = {"dtype": kind.str, "tokens": count, "vocab_size": vocab_size, "eos_token_id": eos_token_id}
    _description(file).write_text(json.dumps(description))
    unfinished.replace(file)
    return count


def single_token_file(files: Sequence[Path]) -> Path | None:
    """The token file if one was given, None for text files. Raises ValueError for a token file among others."""
    if all(file.suffix != ".bin" for file in files):
        return None
    if len(files) > 1:
        raise ValueError("Give text files, or a single token file (.bin).")
    return files[0]


def open_token_file(file: Path) -> NDArray[np.unsignedinteger]:
    """The tokens as a read-only memory map. Raises ValueError if the file is not what its description says."""
    if not _description(file).exists():
        raise ValueError(
            f"{_description(file)} is missing: write the token file with `python -m research.train tokenize`."
        )
    described = json.loads(_description(file).read_text())
    kind = np.dtype(described["dtype"])
    if file.stat().st_size != described["tokens"] * kind.itemsize:
        raise ValueError(
            f"{file} has {file.stat().st_size} bytes, its description says {described['tokens']} tokens; write it anew."
        )
    return np.memmap(file, dtype=kind, mode="r")


def _description(file: Path) -> Path:
    return file.with_name(file.name + ".json")
