"""Folders whose files are followed: what is new, changed, moved or gone there happens to the documents too."""
