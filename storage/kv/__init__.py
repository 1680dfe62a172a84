"""Shard files of keys and values: format, codec, store."""
