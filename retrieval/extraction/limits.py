"""What one file may cost, and what is said of one that is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from retrieval.errors import ExtractError

# A file may take what its size suggests: several times what ordinary files of that size take.
_BASE_SECONDS, _SECONDS_A_MEGABYTE = 10.0, 120.0
_BASE_MEMORY_BYTES, _MEMORY_A_BYTE = 384 << 20, 48


@dataclass(frozen=True)
class ExtractLimits:
    """What one file may cost. A file that costs more is refused with a reason; nothing else suffers."""

    seconds: float = 300.0  # of the processor; by the clock three times as long, for machines that do other work
    memory_bytes: int = 2 << 30  # address space beyond the reader's own; not limited where the platform cannot
    pages: int = 5_000
    pixels: int = 40_000_000  # of one page image
    characters: int = 10_000_000

    def __post_init__(self) -> None:
        for name in ("seconds", "memory_bytes", "pages", "pixels", "characters"):
            if getattr(self, name) <= 0:
                raise ValueError(f"ExtractLimits.{name} must be above 0, not {getattr(self, name)}")

    def for_size(self, size_bytes: int) -> ExtractLimits:
        """What a file of that size may cost of these: a small one that unpacks to gigabytes fails early."""
        return replace(
            self,
            seconds=min(self.seconds, _BASE_SECONDS + _SECONDS_A_MEGABYTE * size_bytes / 1e6),
            memory_bytes=min(self.memory_bytes, _BASE_MEMORY_BYTES + _MEMORY_A_BYTE * size_bytes),
        )

    def out_of_memory(self) -> str:
        """The reason that a person reads."""
        return (
            f"Reading the file took more than {self.memory_bytes / 1e9:.1f} GB of memory and was stopped. "
            "Split it or export it again."
        )


@contextmanager
def damage_named(what: str) -> Iterator[None]:
    """Raises ExtractError for whatever a parser raises on a file, which may be hostile; memory and depth are limited
    elsewhere."""
    try:
        yield
    except (ExtractError, MemoryError, RecursionError):
        raise
    except Exception as error:
        raise ExtractError(f"The {what} is damaged ({type(error).__name__}: {str(error)[:150]}).") from error
