"""Scores over stored keys, one copy for training and serving: late interaction, answer spans, sentences."""
