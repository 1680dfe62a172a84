"""Open question 2: a retrieval-augmented arm. The same network gets passages chosen by BM25 in front of its window,
where landmark attention would read blocks of its memory (in-context retrieval, arXiv 2302.00083).

- A passage is a block of the text itself, as raw tokens; the query is the last block before the predicted tokens.
- `stride` blocks are predicted after each choice. With a stride below the window the local context slides along, which
  costs window / stride forward passes a token.

Axes: M predicted tokens, N earlier blocks.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from model.checkpoint.landmark_model import LandmarkModel
from research.train.convert.init_from_encoder import Encoder

K1, B = 1.5, 0.75
Chooser = Callable[[Sequence[Sequence[int]], Sequence[int], int], list[int]]
"""(passages, query, k) -> numbers of at most k passages, ascending."""


def bm25(passages: Sequence[Sequence[int]], query: Sequence[int], k: int) -> list[int]:
    """The k passages that score highest; of equal ones the newest (Lucene's form of BM25, over tokens)."""
    scores_N = bm25_scores(passages, query)
    return sorted(sorted(range(len(passages)), key=lambda n: (scores_N[n], n))[-k:])


def bm25_scores(passages: Sequence[Sequence[int]], query: Sequence[int]) -> list[float]:
    """score_N of all passages."""
    counts = [Counter(passage) for passage in passages]
    mean_length = sum(map(len, passages)) / max(1, len(passages))
    scores = [0.0] * len(passages)
    for token in query:
        holding = [n for n, count in enumerate(counts) if token in count]
        weight = math.log(1 + (len(passages) - len(holding) + 0.5) / (len(holding) + 0.5))
        for n in holding:
            often = counts[n][token]
            scores[n] += weight * often / (often + K1 * (1 - B + B * len(passages[n]) / mean_length))
    return scores


def newest(passages: Sequence[Sequence[int]], query: Sequence[int], k: int) -> list[int]:
    """The last k passages: a longer local window."""
    return list(range(max(0, len(passages) - k), len(passages)))


def nearest(encoder: Encoder, decode: Callable[[Sequence[int]], str]) -> Chooser:
    """The k passages whose mean state of a sentence encoder has the largest cosine with the query's; each passage is
    read by the encoder once."""
    known: dict[tuple[int, ...], Tensor] = {}

    def vectors(texts: Sequence[Sequence[int]]) -> Tensor:
        for new in dict.fromkeys(tuple(text) for text in texts if tuple(text) not in known):
            states_BTE, real_BT, _ = encoder.states([decode(new)])
            mean_E = (states_BTE * real_BT[..., None]).sum(1)[0] / real_BT.sum().clamp_min(1)
            known[new] = nn.functional.normalize(mean_E, dim=0)
        return torch.stack([known[tuple(text)] for text in texts])

    def choose(passages: Sequence[Sequence[int]], query: Sequence[int], k: int) -> list[int]:
        scores_N = (vectors(passages) @ vectors([query])[0]).tolist()
        return sorted(sorted(range(len(passages)), key=lambda n: (scores_N[n], n))[-k:])

    return choose


@torch.no_grad()
def passage_losses(
    model: LandmarkModel, segment: Sequence[int], *, window_blocks: int, k: int, choose: Chooser, stride: int
) -> Tensor:
    """losses_M in nats of all raw tokens of a segment but the first, and those of a window that nothing precedes.

    Every forward pass reads at most `window_blocks` blocks, of which the last `stride` are predicted, behind k passages
    from before the window. Raises ValueError for a stride longer than the window, or a network that was trained to
    predict landmarks, whose place in front of a passage would be another one.
    """
    if model.config.landmark_in_loss:
        raise ValueError("Passages are compared with networks that do not predict landmarks (targets skip-landmarks).")
    if not 1 <= stride <= window_blocks:
        raise ValueError(f"A stride of {stride} blocks does not fit a window of {window_blocks}.")
    size = model.config.tokens_per_block
    blocks = [list(segment[at : at + size]) for at in range(0, len(segment), size)]
    losses = []
    for first in range(0, len(blocks), stride):
        start = max(0, first + stride - window_blocks)
        chosen = choose(blocks[:start], blocks[first - 1], k) if start and k else []
        read = [token for n in chosen for token in blocks[n]]
        local = [token for block in blocks[start : first + stride] for token in block]
        wanted = min((first + stride) * size, len(segment)) - max(1, first * size)
        if wanted > 0 and len(read + local) > 1:
            losses.append(_last_losses(model, read + local, wanted))
    return torch.cat(losses)


def _last_losses(model: LandmarkModel, raw_ids: list[int], count: int) -> Tensor:
    """losses_M of the last raw tokens; a token that nothing precedes is left out."""
    ids, count = model.with_landmarks(raw_ids[:-1]), min(count, len(raw_ids) - 1)
    is_landmark_T = torch.tensor(ids, device=model.device) == model.config.landmark_token_id
    hidden_TE = model.encode(torch.tensor([ids], device=model.device), model.context())[0]
    targets_M = torch.tensor(raw_ids[-count:], device=model.device)
    logits = model.logits(hidden_TE[~is_landmark_T][-count:]).float()
    return nn.functional.cross_entropy(logits, targets_M, reduction="none").cpu()
