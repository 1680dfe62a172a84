"""Exports: an answer as a file, a citation, the rows for programs."""
