"""The training loop: optimiser, checkpoints, log. Knows no text."""
