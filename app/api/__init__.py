"""HTTP API and web app over a Library: `build_app(settings, library)`."""

from app.api.application import build_app

__all__ = ["build_app"]
