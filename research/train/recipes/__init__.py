"""Whole training runs: pre-training, fine-tuning, the default model."""
