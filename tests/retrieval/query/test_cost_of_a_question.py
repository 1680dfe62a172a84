"""What one question costs: no step does again what an earlier one has done."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest

from model.checkpoint.landmark_model import LandmarkModel
from retrieval.index import terms
from retrieval.index.blocks import MemorySnapshot
from storage.catalogue import Catalogue
from tests.retrieval.conftest import add
from tests.retrieval.test_shipped_model import QUESTIONS, TEXT
from tests.tiny_model import shipped_model

CEILING = {"encodings": 1, "key fetches": 1, "row reads": 1, "term extractions": 1}
"""Of one question; every pass through the model counts as an encoding. To be lowered with every change that needs less,
never raised; the aim is one of each."""


def calls_of(work: Callable[[], Any]) -> Counter[CodeType]:
    """Calls of every function in this thread."""
    calls: Counter[CodeType] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls[frame.f_code] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.sqlite_only
@pytest.mark.files_only
def test_a_question_is_encoded_and_its_blocks_are_read_as_often_as_stated(open_library, write) -> None:
    library = open_library(model=shipped_model)
    add(library, write("lighthouses.txt", TEXT))
    list(library.ask(QUESTIONS[0][0]))  # warms up
    calls = calls_of(lambda: list(library.ask(QUESTIONS[1][0])))
    counted = {
        "encodings": calls[LandmarkModel.context.__code__],
        "key fetches": calls[MemorySnapshot.token_keys.__code__],
        "row reads": calls[Catalogue.blocks_by_id.__code__],
        "term extractions": calls[terms.asked_terms.__code__],
    }
    assert counted == CEILING
