"""The landmark-attention transformer (arXiv 2305.16300) on torch and transformers.

Start with `attention/grouped_softmax.py` (the paper's weights), then `attention/landmark_attention.py` (the one
attention function), `attention/memory.py` (what it reads from), `checkpoint/` (Hugging Face checkpoints) and
`inference/`. Knows nothing of documents, files or databases.
"""

from model.threads import wait_passively

wait_passively()  # before anything loads torch: OpenMP reads its environment once
