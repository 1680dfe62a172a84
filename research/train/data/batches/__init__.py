"""Micro-batches of every kind of training, each a pure function of its number."""
