"""The memory of one long text that is evaluated: in RAM, or in files of a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from model.attention.memory import InMemoryReader, TextMemory
from model.checkpoint.landmark_model import LandmarkModel
from research.offloaded_text import offloaded_text


@contextmanager
def text_memory(model: LandmarkModel, offload: Path | None, capacity: int | None = None) -> Iterator[TextMemory]:
    """An empty memory. offload: the folder for its blocks, which keeps them all; `capacity` drops the oldest of those
    in RAM. Raises ValueError for both."""
    if offload is None:
        yield InMemoryReader(range(model.num_layers), capacity=capacity)
        return
    if capacity is not None:
        raise ValueError("Blocks in files are all kept: give --blocks or --offload, not both.")
    with offloaded_text(model, offload) as memory:
        yield memory
