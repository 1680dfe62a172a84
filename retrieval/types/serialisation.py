"""The one serialiser of public records: frozen dataclasses to plain values and back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Self, cast

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class Record:
    """A frozen dataclass made of records, tuples, mappings, strings and numbers."""

    def to_dict(self, *names: str) -> dict[str, Any]:
        """Dicts, lists, strings and numbers, ready for `json.dumps`. `names`: these fields only, in this order."""
        adapter = _adapter(cast(Hashable, type(self)))
        plain: dict[str, Any] = adapter.dump_python(self, mode="json", include={*names} or None)
        return {name: plain[name] for name in names} if names else plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`, also of what an earlier release wrote: fields that it lacked get their defaults."""
        record: Self = _adapter(cast(Hashable, cls)).validate_python(plain)
        return record


@cache  # building one takes as long as writing many answers
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # `cairn --help` and `cairn list` start without it

    return TypeAdapter(kind)
