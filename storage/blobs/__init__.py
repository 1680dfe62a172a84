"""Where shards, originals and sidecars lie: in the home folder, or in a bucket with a cache on this machine's disk."""
