"""Where memory lives: key/value blocks in shard files, and the catalogue (SQL) that says what exists.

Knows no model, no tokenizer and no PDF. Open both halves, write a shard, commit it:

    catalogue = Catalogue.open("sqlite:////home/me/cairn/cairn.sqlite3")
    store = KVBlockStore(home / "kv", layout, fingerprint.digest)
"""

from storage.catalogue import Catalogue
from storage.errors import (
    CannotWrite,
    CatalogueTooNew,
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
from storage.kv.format import FORMAT_VERSION, KVLayout
from storage.kv.store import KVBlockStore, ShardFile
from storage.maintenance import Garbage, ShardDamage, StorageReport, collect_garbage, verify
from storage.records import (
    AnswerHead,
    Block,
    BlockRefs,
    Box,
    Collection,
    Conversation,
    DeletedDocuments,
    Document,
    ExtractedText,
    Job,
    JobProgress,
    NewBlock,
    NewDocument,
    Page,
    Shard,
    StoredAnswer,
    Submitted,
    Totals,
    User,
)
from storage.workers import this_worker

__all__ = [
    "FORMAT_VERSION",
    "AnswerHead",
    "Block",
    "BlockRefs",
    "Box",
    "CannotWrite",
    "Catalogue",
    "CatalogueTooNew",
    "Collection",
    "Conversation",
    "Damage",
    "DamagedBlock",
    "DamagedMemory",
    "DamagedShard",
    "DeletedDocuments",
    "Document",
    "ExtractedText",
    "ForeignShard",
    "Garbage",
    "Job",
    "JobProgress",
    "KVBlockStore",
    "KVLayout",
    "MemoryFingerprint",
    "MissingShard",
    "NameTaken",
    "NewBlock",
    "NewDocument",
    "NotFound",
    "Page",
    "Shard",
    "ShardDamage",
    "ShardFile",
    "StorageError",
    "StorageReport",
    "StoreFull",
    "StoredAnswer",
    "Submitted",
    "Totals",
    "User",
    "collect_garbage",
    "this_worker",
    "verify",
]
