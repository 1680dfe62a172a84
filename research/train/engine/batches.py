"""Where micro-batches come from: a stream that can say where it stands and be put back there."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol


class Batches(Protocol):
    """An endless stream of micro-batches. After `load_state(state())` it goes on with the very same batches."""

    def __iter__(self) -> Iterator[Any]: ...

    def state(self) -> dict[str, Any]:
        """JSON-able position: the next batch to come. Nothing may be read ahead of it."""
        ...

    def load_state(self, state: dict[str, Any]) -> None: ...


class IndexedBatches:
    """Micro-batch number i is `make(i)`: a pure function of the index, so the position is one number."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make
        self._next = 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            index = self._next
            self._next = index + 1
            yield self._make(index)

    def state(self) -> dict[str, Any]:
        return {"next": self._next}

    def load_state(self, state: dict[str, Any]) -> None:
        self._next = int(state["next"])
