"""Retrieval: ingestion, landmark search, reading stored memory, attribution. `retrieval.library.Library` is the way
in."""

import model  # noqa: F401  before storage loads torch: how its threads wait is set there
