"""Answers that a writer words: passages for it, citations, and the check of every sentence."""
