import gc
import weakref
from pathlib import Path

import torch

from model.checkpoint.landmark_model import LandmarkModel
from retrieval.library import Library
from tests.tiny_model import tiny_model


def test_a_closed_library_gives_its_model_back(tmp_path: Path) -> None:
    made: list[weakref.ref[torch.nn.Module]] = []

    def load() -> LandmarkModel:
        model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
        made.append(weakref.ref(model.backbone))
        return model

    for number in range(2):
        library = Library.open(tmp_path / str(number), load)
        library.warm_up()
        library.close()
        del library
    gc.collect()
    assert len(made) == 2
    assert [each() for each in made] == [None, None]
