"""The same weights under changed landmark settings."""

from dataclasses import replace
from typing import Any

from model.checkpoint.landmark_model import LandmarkModel


def with_config(model: LandmarkModel, **changes: Any) -> LandmarkModel:
    """Raises `ModelError` for settings that cannot work."""
    return LandmarkModel(model.backbone, model.tokenizer, replace(model.config, **changes), source=model.source)
