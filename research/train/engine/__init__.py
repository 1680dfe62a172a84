"""The training loop: optimizer, checkpoints, log. Knows no text."""
