"""Round trips, refusals, and what a reader sees while shards come and go."""

import dataclasses
import errno
import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from storage.blobs.files import TEMPORARY
from storage.errors import CannotWrite, DamagedShard, ForeignShard, MissingShard, StoreFull
from storage.kv.format import KV_DTYPES, KVLayout
from storage.kv.store import KVBlockStore
from tests.storage.stored import LAYOUT, random_blocks, read_block, read_blocks, write_shard

EXACT = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def layout_of(dtype: str) -> KVLayout:
    return dataclasses.replace(LAYOUT, dtype=dtype)


@pytest.mark.parametrize("dtype", EXACT)
def test_what_is_read_is_bit_for_bit_what_was_written(tmp_path, dtype):
    layout = layout_of(dtype)
    store = KVBlockStore(tmp_path, layout, "f")
    keys_NYGLD, values_NYGLD, lengths_N = random_blocks(layout, 4)
    keys_NYGLD, values_NYGLD = keys_NYGLD.to(EXACT[dtype]), values_NYGLD.to(EXACT[dtype])
    shard = store.write(keys_NYGLD, values_NYGLD, lengths_N)
    reopened = KVBlockStore(tmp_path, layout, "f")
    for y, layer in enumerate(layout.layers):
        for head in range(layout.kv_heads):
            for block in range(4):
                keys_LD, values_LD = read_block(reopened, shard.name, layer, head, block)
                assert keys_LD.dtype == EXACT[dtype]
                assert torch.equal(keys_LD, keys_NYGLD[block, y, head])
                assert torch.equal(values_LD, values_NYGLD[block, y, head])
    assert torch.equal(reopened.landmarks(shard.name), keys_NYGLD[..., -1, :])
    assert torch.equal(reopened.lengths(shard.name), lengths_N)


def test_many_blocks_of_many_shards_come_in_the_order_asked_for(store):
    shards = [write_shard(store, 3, seed) for seed in range(3)]
    written = [random_blocks(LAYOUT, 3, seed) for seed in range(3)]
    refs = [(2, 1), (0, 2), (2, 1), (1, 0)]
    for y, layer in enumerate(LAYOUT.layers):
        keys_NGLD, values_NGLD = store.read_many([(shards[s].name, block) for s, block in refs], layer)
        for n, (s, block) in enumerate(refs):
            assert torch.equal(keys_NGLD[n], written[s][0][block, y].bfloat16())
            assert torch.equal(values_NGLD[n], written[s][1][block, y].bfloat16())
        keys_NGLD, _ = read_blocks(store, shards[0].name, layer, [2, 0])
        assert torch.equal(keys_NGLD[1], written[0][0][0, y].bfloat16())


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_keys_alone_are_the_keys_of_the_whole_blocks(tmp_path, dtype):
    layout = layout_of(dtype)
    shard = write_shard(KVBlockStore(tmp_path, layout, "f"), 4)
    store = KVBlockStore(tmp_path, layout, "f")
    refs = [(shard.name, block) for block in (3, 0, 2, 2)]
    for layer in layout.layers:
        fresh = store.read_keys(refs, layer)
        again = store.read_keys(refs, layer)  # verified by now: values are not read
        whole, _ = store.read_many(refs, layer)
        assert fresh.dtype == layout.landmark_dtype and torch.equal(fresh, again)
        assert torch.equal(fresh[..., :-1, :], whole[..., :-1, :].to(fresh.dtype))
    assert store.read_keys([], layout.layers[0]).shape == (0, layout.kv_heads, layout.block_size, layout.head_dim)


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_reading_no_blocks_gives_empty_tensors(tmp_path, dtype):
    store = KVBlockStore(tmp_path, layout_of(dtype), "f")
    keys_NGLD, values_NGLD = store.read_many([], 5)
    assert keys_NGLD.shape == values_NGLD.shape == (0, 2, 6, 4)


def test_int8_is_wrong_by_half_a_step_at_most_and_keeps_landmarks_in_16_bit(tmp_path):
    layout = KVLayout((0, 3), 2, 16, 8, "int8")
    store = KVBlockStore(tmp_path, layout, "f")
    keys_NYGLD, values_NYGLD, lengths_N = random_blocks(layout, 5)
    keys_NYGLD[..., -1, :] *= 50  # a landmark far larger than its block must not cost the others precision
    values_NYGLD[2] = 0
    shard = store.write(keys_NYGLD, values_NYGLD, lengths_N)
    for y, layer in enumerate(layout.layers):
        keys_NGLD, values_NGLD = read_blocks(store, shard.name, layer, range(5))
        assert torch.equal(keys_NGLD[:, :, -1], keys_NYGLD[:, y, :, -1].half().float())
        for n in range(5):
            rows = slice(0, int(lengths_N[n]))
            for read, written in ((keys_NGLD[n], keys_NYGLD[n, y]), (values_NGLD[n], values_NYGLD[n, y])):
                step_G = written[:, rows].abs().amax((1, 2)) / 127
                error_G = (read[:, rows] - written[:, rows]).abs().amax((1, 2))
                assert (error_G <= step_G / 2 * 1.001).all()
    assert store.landmarks(shard.name).dtype == torch.float16


def test_int8_memory_is_about_half_the_size_of_bf16(tmp_path):
    sizes = {}
    for dtype in ("bf16", "int8"):
        layout = KVLayout((0, 1), 2, 64, 64, dtype)
        sizes[dtype] = write_shard(KVBlockStore(tmp_path / dtype, layout, "f"), 16).size_bytes
        assert layout.block_bytes * 16 <= sizes[dtype] <= layout.block_bytes * 16 + 4096
    assert sizes["bf16"] / sizes["int8"] > 1.9


@pytest.mark.parametrize(("dtype", "bits"), [("int4", (4, 4)), ("k4v2", (4, 2))])
def test_few_bits_are_wrong_by_half_a_step_of_their_channel_at_most(tmp_path, dtype, bits):
    layout = KVLayout((0, 3), 2, 16, 8, dtype)
    store = KVBlockStore(tmp_path, layout, "f")
    keys_NYGLD, values_NYGLD, lengths_N = random_blocks(layout, 5)
    keys_NYGLD[..., -1, :] *= 50
    keys_NYGLD[..., 3] *= 100  # one channel far larger than the others must not cost them precision
    values_NYGLD[2] = 0
    values_NYGLD[3, 0, 0, :, 1] = 1e-9  # below what a scale in 16 bit can hold
    shard = store.write(keys_NYGLD, values_NYGLD, lengths_N)
    for y, layer in enumerate(layout.layers):
        read = read_blocks(store, shard.name, layer, range(5))
        assert torch.equal(read[0][:, :, -1], keys_NYGLD[:, y, :, -1].half().float())
        assert not read[1][2].any()
        for which, written_NYGLD in enumerate((keys_NYGLD, values_NYGLD)):
            for n in range(5):
                rows = slice(0, int(lengths_N[n]))
                written_GLD = written_NYGLD[n, y, :, rows]
                step_GD = written_GLD.abs().amax(1) / 2 ** (bits[which] - 1)
                error_GD = (read[which][n, :, rows] - written_GLD).abs().amax(1)
                assert (error_GD <= step_GD * 0.505 + 1e-6).all()  # the scale itself is rounded


def test_a_channel_too_large_for_a_scale_in_16_bit_is_refused(tmp_path):
    store = KVBlockStore(tmp_path, layout_of("int4"), "f")
    keys_NYGLD, values_NYGLD, lengths_N = random_blocks(store.layout, 2)
    values_NYGLD[0, 1, 0, 0, 0] = 1e6
    with pytest.raises(ValueError, match=r"values of layer 2.*scales.*not finite"):
        store.write(keys_NYGLD, values_NYGLD, lengths_N)
    assert store.files() == set()


def test_few_bits_take_as_much_less_room_as_is_promised(tmp_path):
    """int4 for any checkpoint; k4v2 for the shipped one, whose heads are 32 wide and whose tokens fill their blocks."""
    sizes = {dtype: KVLayout((0, 1), 2, 64, 64, dtype).block_bytes for dtype in ("bf16", "int4")}
    assert sizes["bf16"] / sizes["int4"] > 3.6
    layout = KVLayout((6,), 12, 64, 32, "k4v2")
    assert layout.block_bytes / 63 < 400
    shard = write_shard(KVBlockStore(tmp_path, layout, "f"), 16)
    assert layout.block_bytes * 16 <= shard.size_bytes <= layout.block_bytes * 16 + 2048


def test_without_values_keys_are_the_same_and_values_are_zeros(tmp_path):
    layouts = [layout_of("k4"), layout_of("k4v2")]
    stores = [KVBlockStore(tmp_path / layout.dtype, layout, "f") for layout in layouts]
    for store in stores:
        write_shard(store, 4)
    (alone, none), (keys, _) = (read_blocks(store, *store.files(), 2, range(4)) for store in stores)
    assert torch.equal(alone, keys) and not none.any()
    assert layouts[0].block_bytes < layouts[1].block_bytes


def test_the_memory_of_another_model_is_refused_and_the_field_named(tmp_path, store):
    shard = write_shard(store)
    with pytest.raises(ForeignShard, match="fingerprint") as refused:
        read_block(KVBlockStore(tmp_path / "kv", LAYOUT, "another"), shard.name, 1, 0, 0)
    assert refused.value.field == "fingerprint"
    with pytest.raises(ForeignShard, match="layout"):
        KVBlockStore(tmp_path / "kv", dataclasses.replace(LAYOUT, layers=(1, 2, 6)), "fingerprint").lengths(shard.name)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_numbers_that_are_not_finite_are_never_stored(tmp_path, dtype, wrong):
    store = KVBlockStore(tmp_path, layout_of(dtype), "f")
    keys_NYGLD, values_NYGLD, lengths_N = random_blocks(store.layout, 2)
    values_NYGLD[1, 2, 0, 3, 1] = wrong
    with pytest.raises(ValueError, match="values of layer 5 are not finite"):
        store.write(keys_NYGLD, values_NYGLD, lengths_N)
    assert store.files() == set()


def test_numbers_too_large_for_fp16_are_refused_rather_than_stored_as_infinity(tmp_path):
    store = KVBlockStore(tmp_path, layout_of("fp16"), "f")
    keys_NYGLD, values_NYGLD, lengths_N = random_blocks(store.layout, 2)
    keys_NYGLD[0, 0, 0, 0, 0] = 70_000
    with pytest.raises(ValueError, match="store its memory as bf16"):
        store.write(keys_NYGLD, values_NYGLD, lengths_N)


@pytest.mark.parametrize("lengths", [[0, 3], [3, 6], []])
def test_a_block_without_tokens_or_with_too_many_is_refused(store, lengths):
    keys_NYGLD, values_NYGLD, _ = random_blocks(LAYOUT, len(lengths)) if lengths else random_blocks(LAYOUT, 1)
    with pytest.raises(ValueError, match="block"):
        store.write(keys_NYGLD[: len(lengths)], values_NYGLD[: len(lengths)], torch.tensor(lengths))


def test_tensors_of_another_shape_are_refused(store):
    keys_NYGLD, values_NYGLD, lengths_N = random_blocks(LAYOUT, 2)
    with pytest.raises(ValueError, match="values have shape"):
        store.write(keys_NYGLD, values_NYGLD[:, :2], lengths_N)


def test_unknown_number_formats_are_refused():
    with pytest.raises(ValueError, match="bf16, fp16, fp32, int8, int4, k4v2, k4"):
        layout_of("int3")


def test_deleting_frees_the_bytes_and_the_empty_folder(store):
    kept = write_shard(store, group="a")
    gone = [write_shard(store, group="b") for _ in range(2)]
    assert store.files() == {shard.name for shard in (kept, *gone)}
    assert store.delete([shard.name for shard in gone]) == sum(shard.size_bytes for shard in gone)
    assert store.files() == {kept.name}
    assert [path.name for path in store.folder.iterdir()] == ["a"]
    assert store.delete([gone[0].name]) == 0
    with pytest.raises(MissingShard, match="missing"):
        read_block(store, gone[0].name, 1, 0, 0)


def test_a_shard_that_is_deleted_while_it_is_opened_does_not_stay_open(store, monkeypatch):
    shard, kept = write_shard(store), write_shard(store)
    real = store.blobs.open

    def opened(name: str):
        found = real(name)
        store.delete([shard.name])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(store.blobs, "open", opened)
        read_block(store, shard.name, 1, 0, 0)  # as long as it is open, it can be read
    assert shard.name not in store._open
    with pytest.raises(MissingShard):
        read_block(store, shard.name, 1, 0, 0)
    read_block(store, kept.name, 1, 0, 0)
    assert list(store._open) == [kept.name]


def test_more_shards_than_open_files_are_all_readable(tmp_path):
    store = KVBlockStore(tmp_path, LAYOUT, "f")
    store._max_open_files = 3
    shards = [write_shard(store, 2, seed) for seed in range(10)]
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    for _ in range(2):
        for seed, shard in enumerate(shards):
            keys_LD, _ = read_block(store, shard.name, 2, 1, 1)
            assert torch.equal(keys_LD, random_blocks(LAYOUT, 2, seed)[0][1, 1, 1].bfloat16())
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 3


def test_a_disk_that_fills_up_leaves_nothing_behind(store, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFull, match="No space left"):
        write_shard(store)
    assert store.files() == set()


def test_a_folder_that_cannot_be_written_is_named(store, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(CannotWrite, match="Permission denied") as refused:
        write_shard(store)
    assert not isinstance(refused.value, StoreFull)
    assert store.files() == set()


def test_a_file_is_durable_before_it_has_its_name(store, monkeypatch):
    """The order of the calls is the promise: file, then name, then the folder that holds the name."""
    calls = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))[1])
    monkeypatch.setattr(os, "rename", lambda old, new: (calls.append(f"rename {new}"), rename(old, new))[1])
    shard = write_shard(store, group="document")
    assert Path(calls[0]).name.startswith(TEMPORARY)
    assert calls[1] == f"rename {store.folder / shard.name}"
    assert set(calls[2:]) == {str(store.folder / "document"), str(store.folder)}


def test_a_reader_may_go_on_while_its_shard_is_deleted(store):
    shard = write_shard(store, 3)
    expected, _ = read_block(store, shard.name, 1, 0, 2)
    opened = store._shard(shard.name)
    store.delete([shard.name])
    piece = np.empty((1, LAYOUT.piece_bytes), np.uint8)
    opened.read_pieces(piece, opened.places(0, np.array([0]), np.array([2])), np.array([0]))
    read = torch.from_numpy(piece[0]).view(torch.bfloat16)[: expected.numel()].view(expected.shape)
    assert torch.equal(read, expected)


def test_blocks_are_the_same_in_any_order_and_number(store):
    """However readings are joined: forwards, backwards, with gaps, twice, across shards, checked or not."""
    shards = [write_shard(store, 4, seed) for seed in range(2)]
    every = [(shard.name, block) for shard in shards for block in range(4)]
    wanted = {(name, block): read_blocks(store, name, LAYOUT.layers[1], [block]) for name, block in every}
    draw = random.Random(0)
    for _ in range(20):
        reader = draw.choice((store, KVBlockStore(store.folder, LAYOUT, store.fingerprint)))
        refs = draw.choices(every, k=draw.randrange(1, 12))
        keys_NGLD, values_NGLD = reader.read_many(refs, LAYOUT.layers[1])
        assert torch.equal(keys_NGLD, torch.cat([wanted[ref][0] for ref in refs]))
        assert torch.equal(values_NGLD, torch.cat([wanted[ref][1] for ref in refs]))


def test_threads_share_a_store(store):
    shards = [write_shard(store, 3, seed) for seed in range(6)]
    expected = [random_blocks(LAYOUT, 3, seed)[0].bfloat16() for seed in range(6)]
    wrong: list[object] = []

    def read_all() -> None:
        try:
            for _ in range(20):
                for seed, shard in enumerate(shards):
                    keys_NGLD, _ = read_blocks(store, shard.name, 5, [0, 1, 2])
                    if not torch.equal(keys_NGLD, expected[seed][:, 2]):
                        wrong.append(seed)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_shard_under_the_name_of_another_is_found(store):
    first, second = write_shard(store, 3, 1), write_shard(store, 3, 2)
    os.replace(store.folder / first.name, store.folder / second.name)
    with pytest.raises(DamagedShard, match="this is the file of"):
        read_block(KVBlockStore(store.folder, LAYOUT, "fingerprint"), second.name, 1, 0, 0)


def test_blocks_per_shard_bounds_the_size_of_a_shard(tmp_path):
    layout = KVLayout((0, 1), 2, 64, 64, "bf16")
    number = layout.blocks_per_shard(1 << 20)
    shard = write_shard(KVBlockStore(tmp_path, layout, "f"), number)
    assert 0.9 * (1 << 20) < shard.size_bytes < 1.01 * (1 << 20)
    assert layout.blocks_per_shard(1) == 1


def test_stored_memory_is_private_to_its_user(store):
    shard = write_shard(store, group="document")
    assert (store.folder / shard.name).stat().st_mode & 0o077 == 0
    assert Path(store.folder).stat().st_mode & 0o077 == 0


def test_no_more_shards_are_open_than_a_process_may_open(tmp_path, monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda kind: (64, 64))
    store = KVBlockStore(tmp_path, LAYOUT, "fingerprint")
    for seed in range(20):
        store.lengths(write_shard(store, 1, seed).name)
    assert len(store._open) == 16
