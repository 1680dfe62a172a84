"""Tokens in, tokens out: reading texts into blocks, sessions over a memory, generation."""
