"""The landmark-attention transformer (arXiv 2305.16300) on torch and transformers.

Start with `grouped_softmax.py` (the paper's weights), then `attention.py` (the one attention function), `memory.py`
(what it reads from), `backbone.py` (Hugging Face checkpoints), `prefill.py` and `generate.py`. Knows nothing of
documents, files or databases.
"""

from model.threads import wait_passively

wait_passively()  # before anything here loads torch; nothing heavy is imported
