"""How questions are put when a request does not say: small JSON files in the library's folder, one for each user."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retrieval.types.defaults import DEFAULT_K, DEFAULT_MAX_TOKENS, DEFAULT_QUOTE, DEFAULT_VOTERS
from storage.records import Principal

MAX_TOP_K = 64
MAX_ANSWER_TOKENS = 1024
TopK = Annotated[int, Field(ge=1, le=MAX_TOP_K)]
Voters = Literal["token", "head", "group"]
AnswerLength = Annotated[int, Field(ge=1, le=MAX_ANSWER_TOKENS)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Preferences(BaseModel):
    """`top_k`: blocks a head reads; `voters` as in SelectionPolicy; `quote`: word for word from the documents (None: as
    suits the model or the writer); `max_tokens` of an answer (None: as suits who writes); `low_share`: memory share
    below which the app warns."""

    model_config = ConfigDict(frozen=True)

    top_k: TopK = DEFAULT_K
    voters: Voters = DEFAULT_VOTERS
    quote: bool | None = DEFAULT_QUOTE
    max_tokens: AnswerLength | None = DEFAULT_MAX_TOKENS
    low_share: Share = 0.25


class PreferenceChange(BaseModel):
    """Only the fields that are present change."""

    top_k: TopK | None = None
    voters: Voters | None = None
    quote: bool | None = None
    max_tokens: AnswerLength | None = None
    low_share: Share | None = None


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
        """Raises ValidationError for a value out of range; nothing changes then."""
        with self._lock:
            changed = Preferences.model_validate({**self._current.model_dump(), **changes})
            temporary = self._path.with_suffix(".tmp")
            temporary.write_text(changed.model_dump_json(indent=1))
            os.replace(temporary, self._path)
            self._current = changed
            return changed

    def _load(self) -> Preferences:
        try:
            return Preferences.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
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
