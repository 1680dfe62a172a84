"""A writer behind an OpenAI-compatible server."""
