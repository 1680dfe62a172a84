"""From a block's landmark to its bytes: indexes, snapshots, cache, reader."""
