"""Reading stored blocks is reading the same blocks from RAM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from model.attention.memory import InMemoryReader
from model.attention.selection import SelectionPolicy
from model.inference.generate import Sampling, generate
from model.inference.prefill import prefill
from retrieval.index.blocks import BlockCache, BlockShape
from retrieval.library import Library
from retrieval.query.attention_mass import AnswerMass
from tests.retrieval.conftest import BLOCK_SIZE, FOX, RAIN, WHALE, add
from tests.tiny_model import tiny_model

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.fixture(scope="module", params=["bf16", "fp16", "fp32"])  # int8 is not lossless: tests/storage bounds its error
def stored(request, tmp_path_factory, model):
    """A library of one text and the blocks that prefill made of it."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "a.txt").write_text(FOX + WHALE)
    with Library.open(folder / "home", model, shard_bytes=20_000, kv_dtype=request.param) as library:
        add(library, folder / "a.txt")
        text = library.view.passages.text(library.documents.list()[0].id)
        yield library, list(prefill(model, model.tokenize(text).ids, kv_dtype=DTYPES[request.param]))


@pytest.mark.parametrize("voters", ["token", "head", "group"])
def test_answers_over_the_store_have_the_logits_of_answers_over_ram(stored, model, voters):
    library, blocks = stored
    ram = InMemoryReader.from_blocks(model.memory_layers, blocks, dtype=model.dtype)
    prompt, policy = model.prompt("What does the fox do?").ids, SelectionPolicy(top_k=4, voters=voters)
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        positions = torch.arange(3, 40, 2)
        part = InMemoryReader.from_blocks(model.memory_layers, [blocks[n] for n in positions], dtype=model.dtype)
        for reader, memory in ((snapshot.reader(), ram), (snapshot.reader(positions), part)):
            from_store, from_ram = (
                list(generate(model, prompt, memory=m, policy=policy, sampling=Sampling(max_tokens=5)))
                for m in (reader, memory)
            )
            assert [token.id for token in from_store] == [token.id for token in from_ram]
            for mine, other in zip(from_store, from_ram, strict=True):
                assert mine.logprob == pytest.approx(other.logprob, abs=1e-5)
                for a, b in zip(mine.selections, other.selections, strict=True):
                    assert torch.equal(a.ids_BHQS, b.ids_BHQS)
                    torch.testing.assert_close(a.gate_BHQS, b.gate_BHQS, atol=1e-6, rtol=1e-5)


class CountingSource:
    """Blocks whose numbers say where they came from; counts reads."""

    def __init__(self, shape: BlockShape):
        self.shape, self.reads = shape, 0

    def read_many(self, refs, layer, device=None):
        self.reads += len(refs)
        shape = (len(refs), self.shape.kv_heads, self.shape.block_size, self.shape.head_dim)
        keys = torch.tensor([float(row) + 1000 * layer for _, row in refs])[:, None, None, None].expand(shape)
        return keys, -keys

    def read_keys(self, refs, layer):
        return self.read_many(refs, layer)[0].bfloat16()


SHAPE = BlockShape((1, 2), 2, 4, 3, torch.float32, torch.device("cpu"))


@pytest.fixture
def source():
    return CountingSource(SHAPE)


@pytest.fixture
def cache(source):
    return BlockCache(source, SHAPE, limit_bytes=10 * 4 * SHAPE.keys_bytes)


def read(cache: BlockCache, layer: int, rows: list[int]) -> torch.Tensor:
    pick = torch.arange(len(rows)).expand(1, 2, 1, -1)
    keys, values = cache.read(layer, np.array(rows) + 500, [("s", row) for row in rows], pick)
    assert torch.equal(keys, -values)
    assert keys[0, 1, 0, :, 0, 0].tolist() == [row + 1000 * layer for row in rows]
    return keys


def test_the_cache_never_holds_more_bytes_than_it_may(cache):
    for start in range(0, 200, 7):
        read(cache, 1, list(range(start, start + 7)))
        read(cache, 2, list(range(start + 3, start + 9)))
        assert cache.size_bytes <= 10 * 4 * cache.shape.keys_bytes


def test_hot_blocks_are_read_from_the_store_once_and_the_longest_unused_go_first(cache, source):
    read(cache, 1, list(range(10)))
    assert source.reads == 10
    read(cache, 1, [0, 1, 2])
    assert source.reads == 10
    read(cache, 1, [20, 21])  # drops 3 and 4
    read(cache, 1, [0, 1, 2, 5, 6, 7, 8, 9])
    assert source.reads == 12
    read(cache, 1, [3])
    assert source.reads == 13


def test_a_read_larger_than_the_cache_is_served_without_it(cache):
    read(cache, 1, list(range(25)))
    assert cache.size_bytes == 0


def test_forgotten_blocks_are_read_again(cache, source):
    read(cache, 1, [1, 2])
    cache.forget([502])
    read(cache, 1, [1, 2])
    assert source.reads == 4


def read_keys(cache: BlockCache, rows: list[int]) -> None:
    keys = cache.read_keys(2, np.array(rows) + 500, [("s", row) for row in rows])
    assert keys.dtype == torch.bfloat16 and keys.shape == (len(rows), 2, 4, 3)
    assert keys[:, 1, 0, 0].tolist() == torch.tensor([row + 2000.0 for row in rows]).bfloat16().tolist()


def test_keys_alone_are_kept_in_their_share_of_the_bytes(source):
    cache = BlockCache(source, SHAPE, limit_bytes=80 * SHAPE.keys_bytes, key_layers=(2,))
    key_places = int(20 * SHAPE.keys_bytes / (SHAPE.keys_bytes / 2))  # a quarter of the bytes; bf16 is half of float32
    for start in range(0, 200, 9):
        read_keys(cache, list(range(start, start + 30)))
        read(cache, 1, list(range(start, start + 7)))
        read(cache, 2, list(range(start, start + 7)))
        assert cache.size_bytes <= 80 * SHAPE.keys_bytes
    reads = source.reads
    read_keys(cache, list(range(199, 228))[::-1])
    assert source.reads == reads
    read_keys(cache, list(range(300, 301 + key_places)))  # more than there is room for
    read_keys(cache, list(range(199, 228)))
    assert source.reads == reads + key_places + 1
    cache.forget([500 + 199])
    read_keys(cache, [199, 200])
    assert source.reads == reads + key_places + 3


def test_many_threads_read_what_is_stored(cache):
    import threading

    errors = []

    def work(seed: int):
        random = torch.Generator().manual_seed(seed)
        try:
            for _ in range(100):
                read(cache, 1 + seed % 2, torch.randperm(40, generator=random)[:6].tolist())
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp16", "fp32", "int8"])
def test_the_keys_of_a_snapshot_are_those_that_attention_reads(kv_dtype, open_library, write):
    model = tiny_model(block_size=BLOCK_SIZE, window_blocks=4, context_blocks=2, ranks_by_tokens=True)
    library = open_library(model=model, kv_dtype=kv_dtype)
    add(library, write("a.txt", FOX + WHALE))
    text = library.view.passages.text(library.documents.list()[0].id)
    blocks = list(prefill(model, model.tokenize(text).ids, kv_dtype=DTYPES.get(kv_dtype)))
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        positions = torch.tensor([5, 2, 9, len(blocks) - 1])
        keys_WCGLD, lengths_C = snapshot.token_keys(positions)
        assert lengths_C.tolist() == [blocks[n].num_tokens for n in positions]
        for layer, keys_CGLD in zip(model.searched_layers, keys_WCGLD, strict=True):
            ids = positions.expand(1, model.num_kv_heads, 1, -1)
            whole_CGLD = snapshot.reader().read(layer, ids)[0][0, :, 0].transpose(0, 1)
            atol = 1e-2 if kv_dtype == "int8" else 0  # dequantised keys are kept in 16 bit
            torch.testing.assert_close(keys_CGLD[..., :-1, :].float(), whole_CGLD[..., :-1, :], atol=atol, rtol=0)


def test_documents_that_are_not_whole_are_no_part_of_the_memory(open_library, write):
    library = open_library()
    add(library, write("a.txt", RAIN))
    library.documents.submit(write("b.txt", FOX))  # queued, never run
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        assert len(snapshot.document_ids) == 1


class Waits(TorchFunctionMode):
    """What makes the host wait for a device: numbers that it reads there, and unpinned ones that it sends there."""

    READING = frozenset(
        ("item", "tolist", "cpu", "numpy", "nonzero", "unique", "masked_select")
        + ("__bool__", "__int__", "__float__", "__index__", "__array__")
    )

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, sent = getattr(func, "__name__", ""), "device" in (kwargs or {}) and not isinstance(args[0], torch.Tensor)
        if name in self.READING or (name in ("tensor", "as_tensor") and sent):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def on_a_device(stored):
    """A snapshot whose cache has room for questions that hold all their blocks, as on a GPU."""
    library, _ = stored
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        loaded = library.view.workspace.loaded()
        yield replace(snapshot, cache=BlockCache(loaded.store, snapshot.cache.shape, 10**8, whole_share=0.5))


@pytest.mark.parametrize("voters", ["token", "group"])
def test_a_token_makes_the_host_wait_twice(on_a_device, model, voters):
    """Once for the token, once for what it read. A prompt may wait in every layer."""
    prompt, policy = model.prompt("What does the fox do?").ids, SelectionPolicy(top_k=4, voters=voters)
    sampling = Sampling(max_tokens=12)
    stream = generate(model, prompt, memory=on_a_device.reader(), policy=policy, sampling=sampling)
    mass = AnswerMass(model.memory_layers, model.num_heads)
    mass.add(next(stream).selections)
    with Waits() as choosing:
        tokens = list(stream)
    assert choosing.names == ["tolist"] * len(tokens)
    with Waits() as reading:
        mass.add(tokens[0].selections)
    assert reading.names[0] == "cpu" and reading.names.count("cpu") == 1  # what follows is on the host


def test_blocks_held_on_the_device_are_those_of_the_cache(on_a_device, stored, model):
    library, _ = stored
    ids = torch.tensor([[0, 5, 9], [1, 5, 2]])[None, :, None]
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        for positions in (None, torch.arange(2, 30, 2)):
            held, cached = on_a_device.reader(positions), snapshot.reader(positions)
            for layer in model.memory_layers:
                assert all(map(torch.equal, held.read(layer, ids), cached.read(layer, ids)))


def test_room_for_blocks_on_the_device_is_given_back(source):
    cache = BlockCache(source, SHAPE, limit_bytes=100 * 4 * SHAPE.keys_bytes, whole_share=0.5)
    first = cache.room_for(30)
    assert first and not cache.room_for(30)
    cache.give_back(first)
    assert cache.room_for(30)
    assert not BlockCache(source, SHAPE, limit_bytes=10**9).room_for(1)  # a CPU waits for no copy
