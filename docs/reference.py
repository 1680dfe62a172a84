"""Writes docs/settings.md and sizes.md from the code: `python -m docs.reference docs`, or `make docs`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ByteSize

NOTE = "<!-- Written by `make docs` from the code; change the code, not this page. -->"


def settings_page() -> str:
    """One row a setting."""
    from app.settings import PREFIX, SECRETS, SHIPPED_MODEL, Settings

    rows = []
    for name, field in Settings.model_fields.items():
        if name == "home":
            default = "the platform's data folder, `~/.local/share/cairn` on Linux"
        elif field.default == str(SHIPPED_MODEL):
            default = "the shipped checkpoint, `model/default`"
        else:
            default = "unset" if field.default in (None, "") else f"`{_shown(field.default)}`"
        also = f" Or the file named by `{PREFIX}{name.upper()}_FILE`." if name in SECRETS else ""
        rows.append(f"| `{PREFIX}{name.upper()}` | {default} | {field.description}{also}{_choices(field.annotation)} |")
    return (
        "\n\n".join(
            [
                "# Settings",
                NOTE,
                "Settings are environment variables. A command-line option overrides its variable. Sizes may be "
                "written as `2GB`, `512MiB` or in bytes. Unknown variables that begin with `CAIRN_` are refused, so "
                "that a typo does not go unnoticed. Preferences for questions (blocks, answer length, quoting) are "
                "set in the web UI and stored for each account, in `preferences.json` and `preferences/` of the bucket "
                "if there is one, else of the home folder.",
                "| variable | default | meaning |\n|---|---|---|\n" + "\n".join(rows),
            ]
        )
        + "\n"
    )


@dataclass(frozen=True)
class Shape:
    """What decides the size of a checkpoint's memory: layers that are stored, key/value heads, head dimension."""

    name: str
    stored_layers: int
    kv_heads: int
    head_dim: int
    block_size: int = 64


# From the checkpoints' config.json, less the first layer: its landmark keys are all equal, so it cannot choose.
CHECKPOINTS = (
    Shape("SmolLM2-135M", 29, 3, 64),
    Shape("SmolLM2-360M", 31, 5, 64),
    Shape("Qwen2.5-0.5B", 23, 2, 64),
    Shape("Qwen3-0.6B", 27, 8, 128),
    Shape("Llama-3.2-1B", 15, 8, 64),
    Shape("Llama-3.2-3B", 27, 8, 128),
    Shape("LLaMA-7B, Llama-2-7b", 31, 32, 128),
    Shape("Llama-2-13b", 39, 40, 128),
    Shape("Mistral-7B-v0.1", 31, 8, 128),
    Shape("Llama-3.1-8B", 31, 8, 128),
)


def bytes_per_token(shape: Shape, kv_dtype: str) -> float:
    """Disk that one token of a document takes, landmark and checksums included."""
    from storage.kv.format import KVLayout

    layers = tuple(range(shape.stored_layers))
    layout = KVLayout(layers, shape.kv_heads, shape.block_size, shape.head_dim, kv_dtype)
    return layout.block_bytes / (shape.block_size - 1)


def shipped_shape() -> Shape | None:
    """The shipped checkpoint, if this copy of the code has one."""
    from app.settings import SHIPPED_MODEL

    path = SHIPPED_MODEL / "config.json"
    if not path.is_file():
        return None
    config = json.loads(path.read_text(encoding="utf-8"))
    landmark = config["landmark"]
    stored = landmark.get("memory_layers") or range(1, config["num_hidden_layers"])
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    kv_heads = config.get("num_key_value_heads") or heads
    return Shape("the shipped checkpoint", len(stored), kv_heads, head_dim, landmark["block_size"])


def sizes_page() -> str:
    """What stored memory costs, for the shipped checkpoint and for common ones."""
    shipped = shipped_shape()
    rows = []
    for shape in (*([shipped] if shipped else []), *CHECKPOINTS):
        wide = bytes_per_token(shape, "bf16")
        narrow = (f"{bytes_per_token(shape, kv_dtype) / 1e3:.1f} kB" for kv_dtype in ("int8", "int4", "k4v2"))
        sizes = f"{wide / 1e3:.1f} kB | {' | '.join(narrow)} | {500 * wide / 1e6:.1f} MB | {wide / 1e3:,.0f} GB"
        rows.append(f"| {shape.name} | {sizes} |")
    return (
        "\n\n".join(
            [
                "# Sizes",
                NOTE,
                "Ingesting a document stores its keys and values on disk: one key and one value for each token, layer "
                "(except the first) and key/value head. This takes far more space than text or embeddings, and is why "
                "answers can start immediately. `cairn ingest` compares the estimate with the free space before it "
                "starts, and `cairn doctor` shows how much your checkpoint needs. The table assumes blocks of 64 "
                "tokens, pages of 500 tokens, and `CAIRN_KV_DTYPE` bf16 unless the column names another. By default "
                "the shipped checkpoint, and any other that quotes, stores `k4v2`; all others store bf16. A home that "
                "holds memory keeps its number format; `CAIRN_KV_DTYPE=k4v2 cairn repair --reingest` changes it, "
                "reading all documents again.",
                "| checkpoint | a token | int8 | int4 | k4v2 | a page | a million tokens |\n"
                "|---|---:|---:|---:|---:|---:|---:|\n" + "\n".join(rows),
                *(large_libraries(shipped) if shipped else ()),
            ]
        )
        + "\n"
    )


def large_libraries(shape: Shape) -> list[str]:
    """What the index of a large library takes: section, text, table."""
    numbers = shape.stored_layers * shape.kv_heads * shape.head_dim
    per_block = {"k4v2": bytes_per_token(shape, "k4v2") * (shape.block_size - 1), "codes": numbers}
    # int8 codes, keys in 16 bit, and where the block lies (`retrieval.index.mapped`).
    per_block["file"] = 3 * numbers + 4 * 3 + 8 * 2 + 4 * 4
    per_block["exact"] = 4 * numbers
    rows = []
    for tokens, said in ((1e6, "1 million"), (1e7, "10 million"), (1e8, "100 million"), (1e9, "a billion")):
        blocks = tokens / (shape.block_size - 1)
        sizes = [f"{blocks * per_block[kind] / 1e9:,.2f} GB" for kind in ("k4v2", "exact", "file", "codes")]
        rows.append(f"| {said} | {blocks:,.0f} | {' | '.join(sizes)} |")
    return [
        "## Large libraries",
        "The landmarks of all blocks are searched at every question, and the vectors, of 6 bytes a token, which are "
        "in RAM from the first question on. With the shipped checkpoint landmarks are held in RAM up to 32,768 blocks "
        "(some two million tokens); beyond, they lie in `index/landmarks.map`, which is mapped. What a question reads "
        "of it, the codes, should fit into free memory, which the system may take back. Recently read blocks are held "
        "in RAM up to `CAIRN_BLOCK_CACHE_BYTES`. Computed for full blocks; real documents "
        "have some two tokens a block less. Words of blocks, by which rare ones are found, take 7 bytes a token more, "
        "in the catalogue. Measured up to 10.2 million real tokens, before there were vectors: 3.4 GB, the first word "
        "of a new question after 1.36 times as long as among a hundred thousand "
        "([figures](../benchmarks/results/2026-11-23-large-libraries.md)).",
        "| tokens | blocks | memory on disk (k4v2) | landmarks, were they in RAM | landmark file | read of it "
        "a question |\n"
        "|---|---:|---:|---:|---:|---:|\n" + "\n".join(rows),
    ]


def _shown(default: object) -> str:
    if not isinstance(default, ByteSize):
        return str(default)
    return f"{default >> 20}MiB" if default % (1 << 20) == 0 else f"{default // 10**6}MB"


def _choices(annotation: object) -> str:
    values = [value for value in getattr(annotation, "__args__", ()) if isinstance(value, str)]
    return f" One of {', '.join(f'`{value}`' for value in values)}." if values else ""


PAGES = {"settings.md": settings_page, "sizes.md": sizes_page}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages into a folder, or with --check name those that are not current."""
    parser = argparse.ArgumentParser(prog="python -m docs.reference", description="Write the generated pages.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is not current")
    options = parser.parse_args(arguments)
    stale = 0
    for name, page in PAGES.items():
        path, text = options.folder / name, page()
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path} is out of date; run `make docs`.", file=sys.stderr)
            stale += 1
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
