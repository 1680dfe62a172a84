"""Errors that a user of `model/` can cause. Every message says what was wrong and what to do next."""


class ModelError(ValueError):
    """Base of all errors of this package."""


class UnsupportedBackbone(ModelError):
    """The checkpoint is of a family or a configuration that landmark attention was not tested on."""


class ContextTooLong(ModelError):
    """Local window and slots together need more positions than the backbone was trained for."""
