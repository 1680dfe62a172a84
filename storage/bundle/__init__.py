"""Bundles: one checked file with documents, their memory and their originals, that another home takes in."""
