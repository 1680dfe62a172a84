"""Bundles: documents with their memory in one file, exported, and imported without being read again."""
