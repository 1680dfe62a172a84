"""Scores over stored keys, one copy for training and serving: late interaction, and the borders of sentences."""
