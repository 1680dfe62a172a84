"""Storage: key/value blocks in shard files, and the catalogue (SQL) that records what exists.

Knows nothing of models, tokenizers or PDFs. Open both halves:

    catalogue = Catalogue.open("sqlite:////home/me/cairn/cairn.sqlite3")
    store = KVBlockStore(home / "kv", layout, fingerprint.digest)

The way of a block: `retrieval/ingest/shard_writer.py` writes it to a shard file (`kv/store.py`) and commits its row
(`catalogue/memory.py`); `retrieval/index/blocks.py` reads it for attention and search.
"""
