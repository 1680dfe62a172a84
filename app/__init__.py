"""The app: web UI, HTTP API, command line, settings, job runner. All of it goes through `retrieval.library.Library`."""
