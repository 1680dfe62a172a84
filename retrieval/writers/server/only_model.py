"""The model of a server that has only one, as far as it is known: asked for in a moment, or not at all."""

from __future__ import annotations

import threading
import time

import httpx

_PATIENCE_SECONDS = 1.0
_AGAIN_SECONDS = 30.0  # before a server that said nothing useful is asked once more


class OnlyModel:
    """Of the server at `url` (up to and with `/v1`). Thread-safe."""

    def __init__(self, url: str, *, key: str | None, local: bool):
        self._url, self._key, self._local = url, key, local
        self._lock = threading.Lock()
        self._name, self._asked_at = "", float("-inf")

    def name(self) -> str:
        """Empty where the server has several, or does not say at once."""
        with self._lock:
            if not self._name and time.monotonic() - self._asked_at >= _AGAIN_SECONDS:
                self._name = self._ask()
                self._asked_at = time.monotonic()
            return self._name

    def _ask(self) -> str:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            # A proxy of the environment is for other machines.
            with httpx.Client(trust_env=not self._local, timeout=_PATIENCE_SECONDS) as client:
                listed = client.get(f"{self._url.rstrip('/')}/models", headers=headers).raise_for_status().json()
            names = [model["id"] for model in listed["data"]]
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError):
            return ""
        return names[0] if len(names) == 1 and isinstance(names[0], str) else ""
