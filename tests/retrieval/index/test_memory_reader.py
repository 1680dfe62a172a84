"""One suite for every reader of blocks: from RAM, and from the store with a cache that is cold, warm or too small.

The oracle is what prefill made, block by block.
"""

from __future__ import annotations

import pytest
import torch

from model.attention.memory import InMemoryReader
from model.attention.selection import select_blocks
from model.inference.prefill import prefill
from retrieval.library import Library
from tests.retrieval.conftest import FOX, WHALE, add

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
READERS = ("in RAM", "cold cache", "warm cache", "cache too small", "some of the blocks")


@pytest.fixture(scope="module", params=DTYPES)  # int8 is not lossless: tests/storage bounds its error
def stored(request, tmp_path_factory, model):
    """The home of a library of one text, the dtype that it stores, and the blocks that prefill makes of the text."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "a.txt").write_text(FOX + WHALE)
    with Library.open(folder / "home", model, shard_bytes=20_000, kv_dtype=request.param) as library:
        document_id = add(library, folder / "a.txt")
        ids = model.tokenize(library.view.passages.text(document_id)).ids
    return folder / "home", request.param, list(prefill(model, ids, kv_dtype=DTYPES[request.param]))


@pytest.fixture(params=READERS)
def reader_and_blocks(request, stored, model):
    home, dtype, blocks = stored
    if request.param == "in RAM":
        yield InMemoryReader.from_blocks(model.memory_layers, blocks, dtype=model.dtype), blocks
        return
    small = {"block_cache_bytes": 1} if request.param == "cache too small" else {}
    with (
        Library.open(home, model, kv_dtype=dtype, **small) as library,
        library.view.index.open_snapshot(library.view.catalogue) as snapshot,
    ):
        if request.param == "some of the blocks":
            positions = torch.arange(3, len(blocks), 2)
            yield snapshot.reader(positions), [blocks[n] for n in positions]
            return
        reader = snapshot.reader()
        if request.param == "warm cache":
            for layer in reader.layers:
                reader.read(layer, torch.arange(len(blocks)).expand(1, model.num_kv_heads, 1, -1))
        assert all(layer.max_places == 1 for layer in snapshot.cache._blocks.values()) or not small
        yield reader, blocks


def test_it_names_its_layers_and_counts_its_blocks(reader_and_blocks, model):
    reader, blocks = reader_and_blocks
    assert tuple(reader.layers) == tuple(model.memory_layers) and reader.num_blocks == len(blocks)


def test_blocks_come_back_bit_for_bit_in_any_order_and_as_often_as_they_are_named(reader_and_blocks, model):
    reader, blocks = reader_and_blocks
    generator = torch.Generator().manual_seed(4)
    ids_BGXS = torch.randint(0, len(blocks), (1, model.num_kv_heads, 3, 9), generator=generator)
    for y, layer in enumerate(reader.layers):
        keys, values, lengths = reader.read(layer, ids_BGXS)
        assert keys.dtype == values.dtype == model.dtype and lengths.dtype == torch.int64
        for g, x, s in torch.cartesian_prod(*map(torch.arange, ids_BGXS.shape[1:])).tolist():
            block = blocks[ids_BGXS[0, g, x, s]]
            assert torch.equal(keys[0, g, x, s], block.keys_YGLD[y, g].to(model.dtype))
            assert torch.equal(values[0, g, x, s], block.values_YGLD[y, g].to(model.dtype))
            assert lengths[0, g, x, s] == block.num_tokens


@pytest.mark.parametrize("k", [1, 5, 10_000])
def test_a_search_chooses_as_a_vote_over_all_landmarks(reader_and_blocks, model, k):
    reader, blocks = reader_and_blocks
    queries = torch.randn(1, model.num_kv_heads, 2, 3, model.head_dim, generator=torch.Generator().manual_seed(5))
    for y, layer in enumerate(reader.layers):
        landmarks_GND = torch.stack([block.keys_YGLD[y, :, -1] for block in blocks], 1).to(model.dtype)
        logits = torch.einsum("bgxrd,gnd->bgxrn", queries, landmarks_GND)
        chosen = reader.search(layer, queries, k)
        assert torch.equal(chosen, select_blocks(logits, k)) and chosen.shape[-1] == min(k, len(blocks))
