"""Matrices of a checkpoint in few bits: packed into bytes, with a scale for every few columns of a row."""
