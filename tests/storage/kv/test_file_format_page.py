"""docs/kv-file-format.md describes the files that are really written: its decoder is run on them."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.kv.format import ALIGNMENT, FORMAT_VERSIONS, KV_DTYPES, MAGIC, PREFIX
from storage.kv.store import KVBlockStore
from tests.storage.stored import LAYOUT, read_block, write_shard

PAGE = Path(__file__).parents[3] / "docs" / "kv-file-format.md"


def decoder() -> dict[str, Any]:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_the_decoder_on_the_page_reads_what_the_store_reads(tmp_path, dtype):
    store = KVBlockStore(tmp_path, dataclasses.replace(LAYOUT, dtype=dtype), "fingerprint")
    shard = write_shard(store, 4, group="document")
    names = decoder()
    content = (tmp_path / shard.name).read_bytes()
    header = names["read_header"](content)
    assert header["name"] == shard.name and header["num_blocks"] == 4
    assert np.array_equal(names["read_landmarks"](content, header), store.landmarks(shard.name).float().numpy())
    lengths = np.frombuffer(names["section"](content, header, "lengths"), "<u4", 4)
    assert lengths.tolist() == store.lengths(shard.name).tolist()
    for layer in LAYOUT.layers:
        for head in range(LAYOUT.kv_heads):
            for block in range(4):
                read = names["read_piece"](content, header, layer, head, block)
                for ours, theirs in zip(read, read_block(store, shard.name, layer, head, block), strict=True):
                    assert np.array_equal(ours, theirs.float().numpy())


def test_the_decoder_on_the_page_refuses_a_damaged_piece(store):
    shard = write_shard(store, 4)
    names = decoder()
    content = bytearray((store.folder / shard.name).read_bytes())
    content[-1] ^= 1
    with pytest.raises(AssertionError):
        names["read_piece"](content, names["read_header"](content), 5, 1, 3)


def test_the_decoder_needs_nothing_but_the_standard_library_and_numpy():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    imported = re.findall(r"^(?:import|from) (.*)$", code, re.MULTILINE)
    assert imported == ["json, struct, zlib", "numpy as np"]


def test_the_constants_on_the_page_are_those_of_the_code(store):
    page = PAGE.read_text()
    assert f"`{MAGIC.decode()}`, format version (u32, {' or '.join(map(str, FORMAT_VERSIONS))})" in page
    assert f"| prefix | {PREFIX.size} |" in page
    assert f"multiples of {ALIGNMENT} bytes" in page
    header = decoder()["read_header"]((store.folder / write_shard(store).name).read_bytes())
    assert all(f"`{field}`" in page for field in header)
    assert all(f"`{field}`" in page for field in header["layout"])
