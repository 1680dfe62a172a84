"""Flipped bits, cut files, swapped and overwritten blocks: found before a single wrong number is returned."""

import json
import os
import random
import shutil
import zlib

import numpy as np
import pytest
import torch

from storage.errors import DamagedBlock, DamagedMemory, DamagedShard
from storage.kv.format import PREFIX, KVLayout
from storage.kv.shard import OpenShard
from storage.kv.store import KVBlockStore
from storage.kv.whole_shards import renamed
from tests.storage.stored import LAYOUT, header_of, read_block, read_blocks, verify, write_shard

NUM_BLOCKS = 5


def read_everything(folder, layout, name):
    """What a fresh process would hand to a model: every piece, the landmarks, the lengths."""
    store = KVBlockStore(folder, layout, "fingerprint")
    pieces = [read_blocks(store, name, layer, range(NUM_BLOCKS)) for layer in layout.layers]
    return store.landmarks(name), store.lengths(name), pieces


def flip_a_bit(content: bytearray, dice: random.Random) -> None:
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)


def cut(content: bytearray, dice: random.Random) -> None:
    del content[dice.randrange(len(content)) :]


def lengthen(content: bytearray, dice: random.Random) -> None:
    content.extend(dice.randbytes(dice.randrange(1, 100)))


def overwrite(content: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(content) - 64)
    content[start : start + 64] = dice.randbytes(64)


def zero_a_stretch(content: bytearray, dice: random.Random) -> None:
    while True:
        start = dice.randrange(len(content) - 512)
        if any(content[start : start + 512]):
            content[start : start + 512] = bytes(512)
            return


def swap_two_pieces(content: bytearray, dice: random.Random, layout: KVLayout = LAYOUT) -> None:
    size = layout.piece_bytes
    number = len(layout.layers) * layout.kv_heads * NUM_BLOCKS
    pieces_offset = len(content) - number * size
    first, second = (pieces_offset + index * size for index in dice.sample(range(number), 2))
    content[first : first + size], content[second : second + size] = (
        content[second : second + size],
        content[first : first + size],
    )


DAMAGES = (flip_a_bit, flip_a_bit, cut, overwrite, zero_a_stretch, swap_two_pieces, lengthen)


@pytest.mark.parametrize("damages", [70, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", ["bf16", "int8", "k4v2", "k4"])
def test_every_random_damage_is_found_before_bytes_are_returned(tmp_path, dtype, damages):
    layout = KVLayout(LAYOUT.layers, LAYOUT.kv_heads, LAYOUT.block_size, LAYOUT.head_dim, dtype)
    store = KVBlockStore(tmp_path, layout, "fingerprint")
    shard = write_shard(store, NUM_BLOCKS)
    path = tmp_path / shard.name
    sound = path.read_bytes()
    read_everything(tmp_path, layout, shard.name)
    dice = random.Random(dtype)
    missed = []
    for number in range(damages):
        damage = DAMAGES[number % len(DAMAGES)]
        content = bytearray(sound)
        if damage is swap_two_pieces:
            swap_two_pieces(content, dice, layout)
        else:
            damage(content, dice)
        assert content != sound
        path.write_bytes(content)
        try:
            read_everything(tmp_path, layout, shard.name)
        except DamagedMemory:
            if verify(store, shard.name):
                continue
        missed.append((number, damage.__name__))
    assert missed == []


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_no_byte_of_the_file_may_change_unnoticed(store, step):
    """Every seventh byte; with `-m slow` every byte."""
    shard = write_shard(store, 1)
    path = store.folder / shard.name
    sound = path.read_bytes()
    for place in range(0, len(sound), step):
        content = bytearray(sound)
        content[place] ^= 0x10
        path.write_bytes(content)
        assert verify(store, shard.name, shard.checksum), f"byte {place}"


def test_a_damaged_block_is_named_and_its_neighbours_still_read(store):
    shard = write_shard(store, NUM_BLOCKS)
    path = store.folder / shard.name
    header = header_of(store, shard.name)
    layer_index, head, block = 1, 1, 3
    place = (layer_index * LAYOUT.kv_heads + head) * NUM_BLOCKS + block
    content = bytearray(path.read_bytes())
    content[header.pieces_offset + place * LAYOUT.piece_bytes + 7] ^= 1
    path.write_bytes(content)
    fresh = KVBlockStore(store.folder, LAYOUT, "fingerprint")
    with pytest.raises(DamagedBlock) as found:
        read_blocks(fresh, shard.name, 2, range(NUM_BLOCKS))
    damage = found.value.damage
    assert (damage.shard, damage.section, damage.layer, damage.head, damage.block) == (shard.name, "piece", 2, 1, 3)
    assert "cairn repair" in str(found.value)
    assert verify(fresh, shard.name) == [damage]
    read_blocks(fresh, shard.name, 2, [0, 1, 2, 4])
    read_blocks(fresh, shard.name, 1, range(NUM_BLOCKS))


def test_keys_are_not_read_alone_from_a_block_that_is_damaged_anywhere(store):
    shard = write_shard(store, NUM_BLOCKS)
    path = store.folder / shard.name
    store.read_keys([(shard.name, block) for block in range(NUM_BLOCKS)], 2)
    content = bytearray(path.read_bytes())
    last_value = (
        header_of(store, shard.name).pieces_offset + (1 * LAYOUT.kv_heads * NUM_BLOCKS + 1) * LAYOUT.piece_bytes - 1
    )
    content[last_value] ^= 1
    path.write_bytes(content)
    assert len(store.read_keys([(shard.name, 1)], 2)) == 1
    with pytest.raises(DamagedBlock):
        store.read_keys([(shard.name, 0)], 2)


@pytest.mark.parametrize("which", ["lengths", "landmarks", "checksums"])
def test_a_damaged_section_is_named(store, which):
    shard = write_shard(store, NUM_BLOCKS)
    path = store.folder / shard.name
    content = bytearray(path.read_bytes())
    content[getattr(header_of(store, shard.name), which).offset] ^= 0x80
    path.write_bytes(content)
    assert [damage.section for damage in verify(store, shard.name)] == [which]
    read = {
        "lengths": store.lengths,
        "landmarks": store.landmarks,
        "checksums": lambda name: read_block(store, name, 1, 0, 0),
    }
    with pytest.raises(DamagedShard, match=which):
        KVBlockStore.close(store)
        read[which](shard.name)


def test_damage_to_an_open_file_is_found_although_the_block_was_read_before(store):
    shard = write_shard(store, NUM_BLOCKS)
    path = store.folder / shard.name
    read_block(store, shard.name, 1, 0, 0)
    content = bytearray(path.read_bytes())
    content[header_of(store, shard.name).pieces_offset] ^= 1
    path.write_bytes(content)
    os.utime(path, (1, 1))  # whatever the clock's grain
    with pytest.raises(DamagedBlock):
        read_block(store, shard.name, 1, 0, 0)


def test_damage_to_the_front_of_an_open_file_is_reported_to_every_reader(store):
    """And not only to the first, after whom the blocks would pass as verified."""
    shard = write_shard(store, NUM_BLOCKS)
    path = store.folder / shard.name
    read_block(store, shard.name, 1, 0, 0)
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    content[header_of(store, shard.name).pieces_offset] ^= 1
    path.write_bytes(content)
    os.utime(path, (1, 1))
    for _ in range(3):
        with pytest.raises(DamagedMemory):
            read_block(store, shard.name, 1, 0, 0)


def test_a_damaged_size_of_the_header_does_not_become_a_huge_allocation(store):
    shard = write_shard(store)
    path = store.folder / shard.name
    content = bytearray(path.read_bytes())
    content[15] = 0xFF
    path.write_bytes(content)
    store.close()
    with pytest.raises(DamagedShard, match="cut short"):
        store.lengths(shard.name)


def test_a_file_cut_short_while_it_is_open_is_an_error_and_not_a_crash(store):
    shard = write_shard(store, NUM_BLOCKS)
    read_block(store, shard.name, 1, 0, 0)
    os.truncate(store.folder / shard.name, shard.size_bytes - 1)
    with pytest.raises(DamagedMemory):
        read_block(store, shard.name, 5, 1, NUM_BLOCKS - 1)


def test_a_damaged_piece_among_many_read_at_once_is_named(store):
    shard = write_shard(store, NUM_BLOCKS)
    layer, head, block = LAYOUT.layers[1], 1, 3
    place = (LAYOUT.layers.index(layer) * LAYOUT.kv_heads + head) * NUM_BLOCKS + block
    with open(store.folder / shard.name, "r+b") as file:
        file.seek(header_of(store, shard.name).pieces_offset + place * LAYOUT.piece_bytes + 9)
        file.write(b"\xff\xfe\xfd")
    reader = KVBlockStore(store.folder, LAYOUT, "fingerprint")
    for read in (reader.read_keys, reader.read_many):
        with pytest.raises(DamagedBlock) as caught:
            read([(shard.name, number) for number in range(NUM_BLOCKS)], layer)
        damage = caught.value.damage
        assert (damage.shard, damage.layer, damage.head, damage.block) == (shard.name, layer, head, block)
    sound = [(shard.name, number) for number in range(NUM_BLOCKS) if number != block]
    assert torch.equal(reader.read_keys(sound, layer), store.read_many(sound, layer)[0])


def test_where_a_file_ends_within_a_reading_the_first_missing_piece_is_named(store):
    shard = write_shard(store, NUM_BLOCKS)
    opened = OpenShard(store.blobs.open(shard.name), shard.name)
    os.truncate(store.folder / shard.name, shard.size_bytes - 2 * LAYOUT.piece_bytes + 1)
    places = np.arange(opened.header.num_pieces)[-NUM_BLOCKS:]
    with pytest.raises(DamagedBlock, match="cut short") as caught:
        opened.read_pieces(np.empty((NUM_BLOCKS, LAYOUT.piece_bytes), np.uint8), places, np.arange(NUM_BLOCKS))
    assert caught.value.damage.block == NUM_BLOCKS - 2


def test_the_same_block_of_another_shard_is_not_accepted(store):
    """Same model, same place, sound bytes and a matching checksum entry, but of another file."""
    shards = [write_shard(store, NUM_BLOCKS, seed) for seed in (1, 2)]
    paths = [store.folder / shard.name for shard in shards]
    contents = [bytearray(path.read_bytes()) for path in paths]
    offset = header_of(store, shards[0].name).pieces_offset
    contents[0][offset : offset + LAYOUT.piece_bytes] = contents[1][offset : offset + LAYOUT.piece_bytes]
    paths[0].write_bytes(contents[0])
    with pytest.raises(DamagedBlock):
        read_block(KVBlockStore(store.folder, LAYOUT, "fingerprint"), shards[0].name, 1, 0, 0)


def test_a_whole_and_sound_file_that_is_not_the_committed_one_is_found(store):
    committed = write_shard(store, NUM_BLOCKS)
    other = write_shard(store, NUM_BLOCKS, seed=1)
    assert verify(store, committed.name, committed.checksum) == []
    assert [damage.section for damage in verify(store, committed.name, other.checksum)] == ["file"]


def test_a_file_that_is_no_shard_is_refused_in_words(store):
    (store.folder / "letter.kv").write_bytes(b"Dear Sir or Madam, " * 10)
    with pytest.raises(DamagedShard, match="not a Cairn memory file"):
        store.lengths("letter.kv")
    (store.folder / "empty.kv").write_bytes(b"")
    with pytest.raises(DamagedShard, match="cut short"):
        store.lengths("empty.kv")


def test_a_number_format_that_its_version_does_not_have_is_refused(store):
    path = store.folder / write_shard(store).name
    content = bytearray(path.read_bytes())
    magic, version, header_bytes, _ = PREFIX.unpack(content[: PREFIX.size])
    assert version == 1
    unsigned = PREFIX.pack(magic, 2, header_bytes, 0)
    crc = zlib.crc32(content[PREFIX.size : PREFIX.size + header_bytes], zlib.crc32(unsigned[:16]))
    content[: PREFIX.size] = PREFIX.pack(magic, 2, header_bytes, crc)
    path.write_bytes(content)
    store.close()
    with pytest.raises(DamagedShard, match="format version 2 has no number format bf16"):
        store.lengths(path.name)


def test_a_newer_format_is_refused_with_both_versions(store):
    shard = write_shard(store)
    path = store.folder / shard.name
    content = bytearray(path.read_bytes())
    magic, _, header_bytes, crc = PREFIX.unpack(content[: PREFIX.size])
    content[: PREFIX.size] = PREFIX.pack(magic, 99, header_bytes, crc)
    shutil.copy(path, path.with_suffix(".copy"))
    path.write_bytes(content)
    with pytest.raises(DamagedShard, match="format version 99; this release reads version 1"):
        store.close()
        store.lengths(shard.name)


@pytest.mark.parametrize("wrong", ["3", None, 3.0, -1, 10**30, [], {}])
def test_a_header_that_somebody_made_up_is_refused(store, wrong):
    """With a right checksum, which anybody can compute."""
    shard = write_shard(store)
    content = (store.folder / shard.name).read_bytes()
    magic, version, size, _ = PREFIX.unpack(content[: PREFIX.size])
    fields = json.loads(content[PREFIX.size : PREFIX.size + size])
    for place in ("name", "num_blocks", "pieces_offset", "lengths offset", "landmarks size", "checksums crc32"):
        *outer, last = place.split()
        made_up = json.loads(json.dumps(fields))
        (made_up[outer[0]] if outer else made_up)[last] = wrong
        text = json.dumps(made_up).encode().ljust(size)
        crc = zlib.crc32(text, zlib.crc32(PREFIX.pack(magic, version, size, 0)[:16]))
        spoiled = PREFIX.pack(magic, version, size, crc) + text + content[PREFIX.size + size :]
        with pytest.raises(DamagedShard):
            renamed(spoiled, "copy.kv", fingerprint=store.fingerprint, layout=LAYOUT)
