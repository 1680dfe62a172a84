"""Retrieval: ingestion, landmark search, reading stored memory, attribution. `retrieval.library.Library` is the way
in."""
