"""Followed folders: new, changed, moved and removed files there change the documents of the library."""
