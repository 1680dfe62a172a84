"""The landmark-attention transformer (arXiv 2305.16300) on torch and transformers.

Start with `attention/grouped_softmax.py` (the paper's weights), then `attention/landmark_attention.py` (the one
attention function), `checkpoint/` (Hugging Face checkpoints) and `inference/`. Knows nothing of documents, files or
databases.

The way of a block: `inference/prefill.py` makes it from tokens (a `KVBlock`, its keys before rotation); it is kept
elsewhere; attention finds and fetches it through a `MemoryReader` (`attention/memory.py`) and rotates its keys to a
slot (`attention/positions.py`).
"""

from model.threads import wait_passively

wait_passively()  # before anything loads torch: OpenMP reads its environment once
