"""Libraries that travel: documents with their memory into one file, and out of it without being read again."""
