"""Storage: key/value blocks in shard files, and the catalogue (SQL) that records what exists.

Knows nothing of models, tokenizers or PDFs. Open both halves:

    catalogue = Catalogue.open("sqlite:////home/me/cairn/cairn.sqlite3")
    store = KVBlockStore(home / "kv", layout, fingerprint.digest)
"""
