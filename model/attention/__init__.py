"""Landmark attention as functions of tensors: knows no checkpoint, no text, no transformers."""
