"""Where memory lives: key/value blocks in shard files, and the catalogue (SQL) that says what exists.

Knows no model, no tokenizer and no PDF. Open both halves, write a shard, commit it:

    catalogue = Catalogue.open("sqlite:////home/me/cairn/cairn.sqlite3")
    store = KVBlockStore(home / "kv", layout, fingerprint.digest)
"""
