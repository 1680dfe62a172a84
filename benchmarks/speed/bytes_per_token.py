"""What a token costs on disk, by kind, in a home that exists: nothing is loaded, nothing is changed.

    python benchmarks/speed/bytes_per_token.py --home DIR [--home DIR ...]

Bytes divided by the tokens of all stored documents. Kinds, and who reads them at question time:

- keys: search (late interaction over proposed blocks), the choice of the sentence; attention (gates:
  evidence per head) for the blocks of an answer
- values: attention while an answer is worded or its probability taken, for the blocks of an answer
- scales: with keys and values that are rounded
- landmarks: search, all of them, in RAM; attention when it chooses blocks
- checksums, lengths, header: every first reading of a block; opening
- catalogue: tokens (quotation), boxes (pages), text (passages, the reader), keys of titles (search), the rest of
  its rows and indexes
- sidecars: only a rescue; pages: the page viewer; originals: the viewer, downloads, reading again

Answers, conversations and backups are not of documents and are left out. Sizes are those of files' contents.
"""

import argparse
import json
import sqlite3
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine

from storage.kv.format import PREFIX, decode_header, decode_prefix

COLUMNS = {
    "catalogue: tokens": ("blocks", "tokens"),
    "catalogue: boxes": ("blocks", "boxes"),
    "catalogue: text": ("document_texts", "text"),
    "catalogue: outline, metadata": ("document_texts", "extras"),
    "catalogue: keys of titles": ("title_keys", "packed"),
}
OF_DOCUMENTS = (
    "documents",
    "document_texts",
    "document_properties",
    "title_keys",
    "pages",
    "shards",
    "blocks",
    "memory_fingerprints",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, action="append", required=True, help="a home folder; may be repeated")
    arguments = parser.parse_args()
    print(json.dumps(machine.described()))
    for home in arguments.home:
        account(home)


def account(home: Path) -> None:
    database = sqlite3.connect(f"file:{home / 'cairn.sqlite3'}?mode=ro", uri=True)
    tokens = database.execute("SELECT sum(num_tokens) FROM documents").fetchone()[0]
    if not tokens:
        raise SystemExit(f"{home} holds no documents: store some first (`cairn ingest --home {home} FILE`).")
    sizes, dtypes = memory_of(home / "kv")
    memory = sum(sizes.values())
    sizes.update(catalogue_of(database))
    for name in ("sidecars", "pages", "files"):
        sizes["originals" if name == "files" else name] = sum(
            path.stat().st_size for path in (home / name).rglob("*") if path.is_file()
        )
    print(f"\n{home}: {tokens:,} tokens, memory as {', '.join(sorted(dtypes))}")
    for kind, size in sizes.items():
        print(f"{kind:32}{size / tokens:10.2f} bytes a token{size / 1e6:12.2f} MB")
    print(f"{'keys and values, all of kv/':32}{memory / tokens:10.2f} bytes a token{memory / 1e6:12.2f} MB")
    total = sum(size for kind, size in sizes.items() if kind != "originals")
    print(f"{'all but the originals':32}{total / tokens:10.2f} bytes a token{total / 1e6:12.2f} MB")


def memory_of(folder: Path) -> tuple[Counter[str], set[str]]:
    """Bytes of all memory files by kind, and their number formats."""
    sizes: Counter[str] = Counter()
    dtypes = set()
    for path in sorted(folder.rglob("*.kv")):
        with open(path, "rb") as file:
            prefix = file.read(PREFIX.size)
            header = decode_header(prefix, file.read(decode_prefix(prefix)[0]))
        layout = header.layout
        dtypes.add(layout.dtype)
        sizes["keys"] += header.num_pieces * (layout.keys_bytes - layout.scales_bytes)
        sizes["values"] += header.num_pieces * (layout.piece_bytes - layout.keys_bytes)
        sizes["scales"] += header.num_pieces * layout.scales_bytes
        sizes["landmarks"] += header.landmarks.size
        sizes["checksums, lengths, header"] += header.pieces_offset - header.landmarks.size
        assert path.stat().st_size == header.file_bytes
    return sizes, dtypes


def catalogue_of(database: sqlite3.Connection) -> dict[str, int]:
    """Bytes of what stands in columns, and of everything else in the pages of the documents' tables and indexes."""
    sizes = {
        kind: database.execute(f"SELECT coalesce(sum(length(CAST({column} AS BLOB))), 0) FROM {table}").fetchone()[0]
        for kind, (table, column) in COLUMNS.items()
    }
    marks = ", ".join("?" * len(OF_DOCUMENTS))
    pages = database.execute(
        f"SELECT sum(pgsize) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE tbl_name IN ({marks}))",
        OF_DOCUMENTS,
    ).fetchone()[0]
    return sizes | {"catalogue: rows and indexes": pages - sum(sizes.values())}


if __name__ == "__main__":
    main()
