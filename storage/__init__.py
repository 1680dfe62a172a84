"""Where memory lives: key/value blocks in shard files, and the catalogue (SQL) that says what exists.

Knows no model, no tokenizer and no PDF. Open both halves, write a shard, commit it:

    catalogue = Catalogue.open("sqlite:////home/me/cairn/cairn.sqlite3")
    store = KVBlockStore(home / "kv", layout, fingerprint.digest)
"""

from storage.errors import (
    Damage,
    DamagedBlock,
    DamagedMemory,
    DamagedShard,
    ForeignShard,
    MissingShard,
    NameTaken,
    NotFound,
    StorageError,
    StoreFull,
)
from storage.fingerprint import MemoryFingerprint
from storage.kv_format import FORMAT_VERSION, KVLayout
from storage.kv_store import KVBlockStore, ShardFile

__all__ = [
    "FORMAT_VERSION",
    "Damage",
    "DamagedBlock",
    "DamagedMemory",
    "DamagedShard",
    "ForeignShard",
    "KVBlockStore",
    "KVLayout",
    "MemoryFingerprint",
    "MissingShard",
    "NameTaken",
    "NotFound",
    "ShardFile",
    "StorageError",
    "StoreFull",
]
