"""Training: packing of text, the loop, evaluation, and the commands `python -m research.train ...`."""
