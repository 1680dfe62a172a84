"""The way of a file into the memory, and what keeps the memory whole."""
