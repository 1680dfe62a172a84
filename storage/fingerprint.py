"""The identity of what made a memory: keys and values mean something only to the model that computed them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class MemoryFingerprint:
    """Named digests and settings of the model (`LandmarkModel.identity`, `EncoderModel.identity`), kv_dtype and
    format_version. Memories can be combined only if all fields are equal."""

    fields: Mapping[str, str]

    def __post_init__(self) -> None:
        for name, value in self.fields.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise ValueError(f"fingerprint field {name!r} must be text, not {value!r}")
        object.__setattr__(self, "fields", dict(sorted(self.fields.items())))

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """sha256 of the sorted fields, prefixed with the algorithm's name."""
        plain = json.dumps(self.fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return "sha256:" + hashlib.sha256(b"cairn memory fingerprint\n" + plain.encode()).hexdigest()

    def differences(self, other: MemoryFingerprint) -> list[str]:
        """Sorted names of the fields that differ, including those that only one of the two has."""
        names = self.fields.keys() | other.fields.keys()
        return sorted(name for name in names if self.fields.get(name) != other.fields.get(name))


UNKNOWN_MODEL = MemoryFingerprint({"weights": "unknown"})
"""Of documents of which a rescue found only the original: the model that reads them first makes their memory."""
