"""Checkpoints of others as a start: encoders, published weight differences."""
