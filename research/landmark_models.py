"""What training does with a landmark model."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from model.attention.selection import SelectionPolicy
from model.checkpoint.landmark_model import LandmarkModel


def with_config(model: LandmarkModel, **changes: Any) -> LandmarkModel:
    """The same weights under changed landmark settings. Raises `ModelError` for settings that cannot work."""
    return LandmarkModel(model.backbone, model.tokenizer, replace(model.config, **changes), source=model.source)


def search_queries(model: LandmarkModel, ids_BT: Tensor) -> dict[int, Tensor]:
    """queries_BHTD by layer of texts encoded without a memory, as `MemoryReader.search` takes them: the product with an
    un-rotated landmark key is the landmark's logit under library positions."""
    context = model.context(policy=SelectionPolicy())
    context.search_queries = {}
    model.encode(ids_BT, context)
    return context.search_queries
