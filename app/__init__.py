"""The app: web UI, HTTP API, command line, settings, job runner. All of it goes through `retrieval.library.Library`."""

import model  # noqa: F401  before anything loads torch: how its threads wait is set there
