"""The app: web UI, HTTP API, command line, settings and the job runner. Everything goes through `retrieval.library.Library`."""
