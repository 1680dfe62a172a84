"""Errors that a user of `model/` can cause. Every message says what was wrong and what to do next."""

from collections.abc import Iterator
from contextlib import contextmanager


class ModelError(ValueError):
    """Base of all errors of this package."""


class UnsupportedBackbone(ModelError):
    """The checkpoint is of a family or a configuration that landmark attention was not tested on."""


class ContextTooLong(ModelError):
    """Local window and slots together need more positions than the backbone was trained for."""


@contextmanager
def readable(what: object) -> Iterator[None]:
    """Raises `ModelError` that names `what`, where a file of a checkpoint cannot be understood.

    The libraries that read such files (transformers, tokenizers, safetensors) raise whatever error the first wrong
    value leads to. Too little memory is not meant.
    """
    try:
        yield
    except (ModelError, MemoryError):
        raise
    except Exception as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(". ")
        raise ModelError(
            f"{what} cannot be read: {said}. Only safetensors are read, and no code of a checkpoint is run; a damaged "
            "checkpoint has to be copied again."
        ) from error
