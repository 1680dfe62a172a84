"""Files of earlier releases are read for ever: `golden/` holds one of each format, written once and never again.

When the file format or the schema changes, add files for the new one (`python -m tests.storage.kv.test_golden`) and
keep the old: an older catalogue must migrate, an older memory file must be read or refused in words.
"""

import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
import torch

from storage.catalogue import Catalogue
from storage.kv.codec import encode_shard
from storage.kv.format import KV_DTYPES, KVLayout
from storage.kv.store import KVBlockStore
from storage.migrations.upgrade import HEAD
from tests.storage.stored import FINGERPRINT, LAYOUT, add_ready, open_home, read_blocks, sqlite_only, verify

GOLDEN = Path(__file__).parents[1] / "golden"
DTYPES = KV_DTYPES
# Largest error of the recipe's numbers, which are at most 4: half a step of the number format.
ERRORS = {"int8": (4 / 127, 4 / 127), "int4": (1 / 8, 1 / 4), "k4v2": (1 / 8, 1.0), "k4": (1 / 8, 4.0)}


def blocks_of_the_recipe() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Numbers that every format holds well and that no random generator decides."""
    shape = (2, len(LAYOUT.layers), LAYOUT.kv_heads, LAYOUT.block_size, LAYOUT.head_dim)
    numbers = torch.arange(torch.Size(shape).numel()).view(shape)
    return (numbers % 255 - 127) / 64, (numbers % 249 - 124) / 32, torch.tensor([LAYOUT.block_size - 1, 3])


def layout_of(dtype: str) -> KVLayout:
    return KVLayout(LAYOUT.layers, LAYOUT.kv_heads, LAYOUT.block_size, LAYOUT.head_dim, dtype)


def golden_name(dtype: str) -> str:
    return f"format-{layout_of(dtype).format_version}-{dtype}.kv"


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_files_of_every_format_are_read(tmp_path, dtype):
    name = golden_name(dtype)
    shutil.copy(GOLDEN / name, tmp_path)
    store = KVBlockStore(tmp_path, layout_of(dtype), "golden")
    keys_NYGLD, values_NYGLD, lengths_N = blocks_of_the_recipe()
    assert verify(store, name) == []
    assert torch.equal(store.lengths(name), lengths_N)
    assert torch.equal(store.landmarks(name).float(), keys_NYGLD[..., -1, :])
    for y, layer in enumerate(LAYOUT.layers):
        keys_NGLD, values_NGLD = read_blocks(store, name, layer, [0, 1])
        key_error, value_error = ERRORS.get(dtype, (0.0, 0.0))
        for n, rows in enumerate(lengths_N.tolist()):
            assert (keys_NGLD[n, :, :rows] - keys_NYGLD[n, y, :, :rows]).abs().max() <= key_error
            assert (values_NGLD[n, :, :rows] - values_NYGLD[n, y, :, :rows]).abs().max() <= value_error


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_blocks_are_still_written_as_the_same_bytes(dtype):
    """A change here without a new format version would make two kinds of files with one number."""
    name = golden_name(dtype)
    written = bytes(encode_shard(name, "golden", layout_of(dtype), *blocks_of_the_recipe()))
    assert written == (GOLDEN / name).read_bytes()


@sqlite_only
@pytest.mark.parametrize("dump", sorted(path.name for path in GOLDEN.glob("*.sql")))
def test_a_catalogue_of_every_earlier_schema_opens_with_all_it_held(tmp_path, dump):
    connection = sqlite3.connect(tmp_path / "cairn.sqlite3")
    connection.executescript((GOLDEN / dump).read_text())
    connection.close()
    catalogue = Catalogue.open(f"sqlite:///{tmp_path}/cairn.sqlite3")
    (document,) = catalogue.documents()
    assert (document.title, document.state, document.num_blocks, document.num_tokens) == ("Report 1", "ready", 6, 18)
    (collection,) = catalogue.collections()
    assert (collection.name, collection.num_documents, collection.everyone, document.collection_id) == (
        "Shelf",
        1,
        False,
        collection.id,
    )
    assert catalogue.extracted_text(document.id).text == "x" * 60
    assert [page.label for page in catalogue.pages(document.id)] == ["i", "1"]
    blocks = catalogue.blocks_of_document(document.id)
    assert [block.ordinal for block in blocks] == list(range(6))
    assert (blocks[1].tokens, blocks[1].boxes) == ((1, 2, 3), ((0, 0.1, 0.2, 0.3, 0.4),))
    assert catalogue.fingerprints() == [FINGERPRINT]
    (head,) = catalogue.answers(search="where")
    assert catalogue.answer(head.id).document_ids == (document.id,)
    assert [job.state for job in catalogue.jobs()] == ["done"]
    assert catalogue.counting_problems() == []
    catalogue.close()


def test_there_is_a_golden_file_of_today():
    assert (GOLDEN / f"catalogue-{HEAD}.sql").exists()
    assert all((GOLDEN / golden_name(dtype)).exists() for dtype in DTYPES)


def write_golden_files() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for dtype in DTYPES:
        path = GOLDEN / golden_name(dtype)
        if not path.exists():
            path.write_bytes(encode_shard(path.name, "golden", layout_of(dtype), *blocks_of_the_recipe()))
    path = GOLDEN / f"catalogue-{HEAD}.sql"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            catalogue, store = open_home(Path(folder))
            document = add_ready(catalogue, store, 1, collection="Shelf")
            catalogue.ensure_conversation("0" * 32, "Talk")
            catalogue.save_answer(
                question="Where?",
                text="Here.",
                body='{"text": "Here."}',
                document_ids=[document.id],
                conversation_id="0" * 32,
            )
            catalogue.close()
            connection = sqlite3.connect(Path(folder) / "cairn.sqlite3")
            path.write_text("\n".join(connection.iterdump()) + "\n")
            connection.close()


if __name__ == "__main__":
    write_golden_files()
