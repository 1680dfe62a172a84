"""Measuring a checkpoint: passkey retrieval, perplexity, plots."""
