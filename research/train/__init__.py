"""Training: packing of text, the loop, evaluation, and the commands `python -m research.train ...`."""

import model  # noqa: F401 - says how threads wait, before anything loads torch
