"""Compound files (OLE), as Outlook writes its messages: just enough of the format to make some for tests."""

from __future__ import annotations

import struct

_SECTOR, _SMALL, _END, _FREE, _FAT = 512, 4096, 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD
_UNICODE, _BINARY, _LONG, _TIME = 0x1F, 0x102, 0x03, 0x40
Tree = dict[str, "bytes | Tree"]


def compound_file(tree: Tree) -> bytes:
    """A file with these streams (bytes) and storages (dicts)."""
    entries: list[list] = [["Root Entry", 5, _FREE, _FREE, _FREE, _END, 0]]
    data, small = bytearray(), bytearray()
    fat: list[int] = []
    small_fat: list[int] = []

    def put(content: bytes, into: bytearray, table: list[int], size: int) -> int:
        """The first of the sectors of that size that the content takes."""
        sectors, start = max(1, -(-len(content) // size)), len(table)
        table.extend([*range(start + 1, start + sectors), _END])
        into.extend(content.ljust(sectors * size, b"\0"))
        return start

    def add(name: str, content: bytes | Tree) -> int:
        number = len(entries)
        entries.append([name, 1, _FREE, _FREE, _FREE, 0, 0])
        if isinstance(content, dict):
            entries[number][4] = link([add(key, value) for key, value in content.items()])
        elif len(content) < _SMALL:
            entries[number] = [name, 2, _FREE, _FREE, _FREE, put(content, small, small_fat, 64), len(content)]
        else:
            entries[number] = [name, 2, _FREE, _FREE, _FREE, put(content, data, fat, _SECTOR), len(content)]
        return number

    def link(numbers: list[int]) -> int:
        """The entries of a storage as a balanced tree, ordered by the length of the name, then the name."""
        if not numbers:
            return _FREE
        numbers = sorted(numbers, key=lambda n: (len(entries[n][0]), entries[n][0].upper()))
        middle = len(numbers) // 2
        entries[numbers[middle]][2] = link(numbers[:middle])
        entries[numbers[middle]][3] = link(numbers[middle + 1 :])
        return numbers[middle]

    entries[0][4] = link([add(key, value) for key, value in tree.items()])
    entries[0][5], entries[0][6] = put(bytes(small), data, fat, _SECTOR), len(small)
    table = struct.pack(f"<{len(small_fat)}I", *small_fat)
    small_sectors = max(1, -(-len(table) // _SECTOR))
    first_small = put(table + b"\xff" * (small_sectors * _SECTOR - len(table)), data, fat, _SECTOR)
    first_directory = put(b"".join(_entry(*entry) for entry in entries), data, fat, _SECTOR)
    fat_sectors = 1
    while (len(fat) + fat_sectors) * 4 > fat_sectors * _SECTOR:
        fat_sectors += 1
    first_fat = len(fat)
    fat.extend([_FAT] * fat_sectors)
    table = struct.pack(f"<{len(fat)}I", *fat).ljust(fat_sectors * _SECTOR, b"\xff")
    header = struct.pack(
        "<8s16xHHHHH6xIIIIIIIII", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6,
        0, fat_sectors, first_directory, 0, _SMALL, first_small, small_sectors, _END, 0,
    )  # fmt: skip
    places = [*range(first_fat, first_fat + fat_sectors)]
    return header + struct.pack("<109I", *places, *[_FREE] * (109 - len(places))) + bytes(data) + table


def outlook_message(
    subject: str,
    body: str,
    sender: str = "",
    attachments: dict[str, bytes] | None = None,
    *,
    kind: str = "IPM.Note",
) -> bytes:
    """A message with one recipient, Anna."""
    attachments = attachments or {}
    tree: Tree = {
        **_properties(
            struct.pack("<8x4I8x", 1, len(attachments), 1, len(attachments)),
            {0x001A: kind, 0x0037: subject, 0x1000: body, 0x0C1A: sender, 0x0C1F: "sender@example.org"},
        ),
        "__recip_version1.0_#00000000": _properties(bytes(8), {0x3001: "Anna", 0x3003: "anna@example.org"}),
        "__nameid_version1.0": {"__substg1.0_00020102": b""},
    }
    for number, (name, data) in enumerate(attachments.items()):
        tree[f"__attach_version1.0_#{number:08X}"] = _properties(bytes(8), {0x3707: name, 0x3701: data, 0x3705: 1})
    return compound_file(tree)


def _properties(header: bytes, values: dict[int, str | bytes | int]) -> Tree:
    stream, tree = bytearray(header), {}
    for number, value in values.items():
        if isinstance(value, int):
            stream += struct.pack("<HHIII", _LONG, number, 6, value, 0)
            continue
        kind, data = (_UNICODE, value.encode("utf-16-le")) if isinstance(value, str) else (_BINARY, value)
        tree[f"__substg1.0_{number:04X}{kind:04X}"] = data
        stream += struct.pack("<HHIII", kind, number, 6, len(data) + (2 if kind == _UNICODE else 0), 0)
    return {"__properties_version1.0": bytes(stream), **tree}


def _entry(name: str, kind: int, left: int, right: int, child: int, start: int, size: int) -> bytes:
    spelled = name.encode("utf-16-le") + b"\0\0"
    head = struct.pack("<64sHBBIII", spelled, len(spelled), kind, 1, left, right, child)
    return head + bytes(36) + struct.pack("<IQ", start, size)
