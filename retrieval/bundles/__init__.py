"""Libraries in a file: documents with their memory, exported, and imported without being read again."""
