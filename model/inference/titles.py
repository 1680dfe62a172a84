"""A document's title as the model reads it."""

import re

from model.checkpoint.landmark_model import LandmarkModel

# The first token of a text has an unusual key, so a title is read as the end of a sentence.
_OPENING = "This is about"
_LONGEST = 32


def title_ids(model: LandmarkModel, title: str) -> tuple[list[int], slice]:
    """Raw tokens to encode, and where the title is among them: at most 32 tokens, none of an empty one."""
    opening = model.tokenize(_OPENING).ids
    ids = model.tokenize(f" {_spelled(title)}").ids[:_LONGEST] if title.strip() else []
    return [*opening, *ids], slice(len(opening), len(opening) + len(ids))


def _spelled(title: str) -> str:
    """A file name as words."""
    words = re.sub(r"[_\s]+", " ", title).strip()
    return words if " " in words else words.replace("-", " ")
