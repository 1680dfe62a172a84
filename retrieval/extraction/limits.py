"""What one file may cost."""

from __future__ import annotations

from dataclasses import dataclass


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

    def out_of_memory(self) -> str:
        """The reason that a person reads."""
        return (
            f"Reading the file took more than {self.memory_bytes / 1e9:.1f} GB of memory and was stopped. "
            "Split it or export it again."
        )
