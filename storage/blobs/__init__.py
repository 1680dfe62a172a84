"""Stores of shards, originals and sidecars: the home folder, or a bucket with a cache on this machine's disk."""
