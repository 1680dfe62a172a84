"""How questions are put when a request does not say: small JSON files in the library's folder, one for each user."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from app.api.errors import Refused
from storage.records import Principal

VOTERS = ("token", "head", "group")
MAX_TOP_K = 64
MAX_ANSWER_TOKENS = 1024


@dataclass(frozen=True)
class Preferences:
    """`top_k`: blocks a head reads; `voters` as in SelectionPolicy; `quote`: answer word for word from the documents;
    `max_tokens` of an answer; `low_share`: memory share under which the app warns."""

    top_k: int = 8
    voters: str = "group"
    quote: bool = True
    max_tokens: int = 128
    low_share: float = 0.25

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= MAX_TOP_K:
            raise Refused(422, "invalid_request", f"top_k must be between 1 and {MAX_TOP_K}.")
        if self.voters not in VOTERS:
            raise Refused(422, "invalid_request", f"voters must be one of {', '.join(VOTERS)}.")
        if not 1 <= self.max_tokens <= MAX_ANSWER_TOKENS:
            raise Refused(422, "invalid_request", f"max_tokens must be between 1 and {MAX_ANSWER_TOKENS}.")
        if not 0.0 <= self.low_share <= 1.0:
            raise Refused(422, "invalid_request", "low_share must be between 0 and 1.")


class PreferenceFile:
    """Reads once, writes atomically. A damaged file counts as absent: preferences are not worth an outage."""

    def __init__(self, path: Path, default: Preferences | None = None):
        self._path, self._lock = path, threading.Lock()
        self._default = default or Preferences()
        self._current = self._load()

    @property
    def current(self) -> Preferences:
        return self._current

    def change(self, **changes: Any) -> Preferences:
        """Raises Refused for a value out of range; nothing changes then."""
        with self._lock:
            changed = replace(self._current, **changes)
            temporary = self._path.with_suffix(".tmp")
            temporary.write_text(json.dumps(asdict(changed), indent=1))
            os.replace(temporary, self._path)
            self._current = changed
            return changed

    def _load(self) -> Preferences:
        try:
            stored = json.loads(self._path.read_text())
            known = {key: stored[key] for key in asdict(Preferences()) if key in stored}
            return Preferences(**known)
        except (OSError, ValueError, TypeError, Refused):
            return self._default


class PreferenceFolder:
    """Everybody's own preferences. Without accounts there is one file; with them, users begin with what it says."""

    def __init__(self, home: Path):
        self._home, self._lock = home, threading.Lock()
        self._common = PreferenceFile(home / "preferences.json")
        self._of_users: dict[str, PreferenceFile] = {}

    def of(self, principal: Principal) -> PreferenceFile:
        if principal.user_id is None:
            return self._common
        with self._lock:
            if principal.user_id not in self._of_users:
                folder = self._home / "preferences"
                folder.mkdir(exist_ok=True, mode=0o700)
                path = folder / f"{principal.user_id}.json"
                self._of_users[principal.user_id] = PreferenceFile(path, self._common.current)
            return self._of_users[principal.user_id]
