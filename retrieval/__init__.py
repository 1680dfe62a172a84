"""Retrieval: ingestion, search, reading stored memory, attribution. Start with `retrieval.library.Library`."""

import model  # noqa: F401  before storage loads torch: how its threads wait is set there
