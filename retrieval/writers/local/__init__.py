"""A checkpoint on this machine as a writer, and what it keeps of the passages that it has read."""
