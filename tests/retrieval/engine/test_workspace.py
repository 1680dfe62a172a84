import gc
import weakref
from pathlib import Path

import pytest
import torch

from model.checkpoint.landmark_model import LandmarkModel
from retrieval.engine.workspace import _points
from retrieval.library import Library
from tests.tiny_model import tiny_model


def test_a_closed_library_gives_its_model_back(tmp_path: Path) -> None:
    made: list[weakref.ref[torch.nn.Module]] = []

    def load() -> LandmarkModel:
        model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
        made.append(weakref.ref(model.backbone))
        return model

    gc.collect()
    gc.disable()  # a model of hundreds of megabytes does not wait for the collector
    try:
        for number in range(2):
            library = Library.open(tmp_path / str(number), load)
            library.warm_up()
            library.close()
            del library
        assert len(made) == 2
        assert [each() for each in made] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("frozen_before", [0, 7])
def test_a_model_is_frozen_once_until_its_library_is_closed_and_what_others_froze_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frozen_before: int
) -> None:
    done: list[str] = []
    frozen = [frozen_before]
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen[0])
    monkeypatch.setattr(gc, "freeze", lambda: done.append("frozen") or frozen.__setitem__(0, 9))
    monkeypatch.setattr(gc, "unfreeze", lambda: done.append("unfrozen") or frozen.__setitem__(0, 0))
    model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
    with Library.open(tmp_path / "a", model) as one, Library.open(tmp_path / "b", model) as other:
        one.warm_up()
        other.warm_up()
    with Library.open(tmp_path / "a", model) as again:
        again.warm_up()
    assert done == ([] if frozen_before else ["frozen", "unfrozen", "frozen", "unfrozen"])


def test_questions_that_wait_are_read_in_one_pass_by_each_reader():
    passes: list[tuple[str, list[int]]] = []

    class Counting:
        def __init__(self, name: str) -> None:
            self.name = name

        def points(self, questions):
            passes.append((self.name, list(questions)))
            return [torch.tensor(float(each)) for each in questions]

    one, two = Counting("one"), Counting("two")
    assert [float(each) for each in _points([(one, 1), (two, 2), (one, 3)])] == [1.0, 2.0, 3.0]
    assert passes == [("one", [1, 3]), ("two", [2])]
