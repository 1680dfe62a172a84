"""Defaults of questions that users choose: small JSON files in the library's store, one for each user."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retrieval.types.answers import DEFAULT_K, DEFAULT_MAX_TOKENS, DEFAULT_POSITIONS, DEFAULT_QUOTE, DEFAULT_VOTERS
from storage.blobs.protocol import Blobs
from storage.errors import StoreUnavailable
from storage.records import Principal

FRESH_SECONDS = 1.0
MAX_TOP_K = 64
MAX_ANSWER_TOKENS = 1024
TopK = Annotated[int, Field(ge=1, le=MAX_TOP_K)]
Voters = Literal["token", "head", "group"]
Positions = Literal["library", "paper"]
AnswerLength = Annotated[int, Field(ge=1, le=MAX_ANSWER_TOKENS)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Preferences(BaseModel):
    """`top_k`: blocks a head reads; `voters`, `positions` as in SelectionPolicy; `quote`: word for word from the
    documents (None: as suits the model or the writer); `max_tokens` of an answer (None: as suits who writes);
    `low_share`: memory share below which the app warns."""

    model_config = ConfigDict(frozen=True)

    top_k: TopK = DEFAULT_K
    voters: Voters = DEFAULT_VOTERS
    positions: Positions = DEFAULT_POSITIONS
    quote: bool | None = DEFAULT_QUOTE
    max_tokens: AnswerLength | None = DEFAULT_MAX_TOKENS
    low_share: Share = 0.25


class PreferenceFile:
    """The preferences of one user, as they are in the store now: another server may change them. A damaged file counts
    as absent: preferences are not worth an outage."""

    def __init__(self, blobs: Blobs, name: str, default: Callable[[], Preferences] = Preferences):
        self._blobs, self._name, self._default = blobs, name, default
        self._lock = threading.Lock()
        self._read: tuple[float, Preferences | None] = -math.inf, None

    @property
    def current(self) -> Preferences:
        """At most `FRESH_SECONDS` old."""
        read_at, known = self._read
        if time.monotonic() - read_at > FRESH_SECONDS:
            with suppress(StoreUnavailable):
                known = self._load()
            self._read = time.monotonic(), known
        return self._default() if known is None else known

    def change(self, **changes: Any) -> Preferences:
        """Raises ValidationError for a value out of range; nothing changes then."""
        with self._lock:
            before = self._load() or self._default()
            changed = Preferences.model_validate({**before.model_dump(), **changes})
            self._blobs.replace(self._name, changed.model_dump_json(indent=1).encode())
            self._read = time.monotonic(), changed
            return changed

    def _load(self) -> Preferences | None:
        try:
            return Preferences.model_validate_json(self._blobs.read(self._name))
        except (OSError, ValidationError):
            return None


class PreferenceFolder:
    """The preferences of all users, in the store. Without accounts there is one file; with them, users begin with its
    contents."""

    def __init__(self, blobs: Blobs):
        self._blobs, self._lock = blobs, threading.Lock()
        self._common = PreferenceFile(self._blobs, "preferences.json")
        self._of_users: dict[str, PreferenceFile] = {}

    def of(self, principal: Principal) -> PreferenceFile:
        if principal.user_id is None:
            return self._common
        with self._lock:
            if principal.user_id not in self._of_users:
                name = f"preferences/{principal.user_id}.json"
                file = PreferenceFile(self._blobs, name, lambda: self._common.current)
                self._of_users[principal.user_id] = file
            return self._of_users[principal.user_id]
