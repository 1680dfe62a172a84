"""The cheap part of the training: token codes learned as a bag-of-words dual encoder, thousands of questions a minute.

A block is the sum of its tokens' codes, scaled to norm 1; a question the mean of its tokens' codes, turned by one
matrix. This is what the
landmarks of a freshly built model compute (see `initialise.py`), so the network starts where this training ends.

Axes: V vocabulary, E width, Q questions, N blocks, T tokens.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model.training.examples import TokenDocuments


@dataclass(frozen=True, kw_only=True)
class BagSettings:
    """Sizes and rates of the bag training."""

    steps: int = 2000
    questions: int = 384
    neighbours: int = 2
    """Wrong blocks of the same document beside each gold one."""
    strangers: int = 1024
    """Blocks from anywhere."""
    learning_rate: float = 3e-4
    matrix_rate: float = 1e-4
    scale: float = 60.0
    max_seconds: float = 400.0


class BagEncoder(nn.Module):
    """Codes of tokens (norm at most 1) and the matrix that questions are turned by."""

    def __init__(self, codes_VE: NDArray[np.float32], scale: float) -> None:
        super().__init__()
        self.codes_VE = nn.Parameter(torch.from_numpy(codes_VE.copy()))
        self.turn_EE = nn.Parameter(torch.eye(codes_VE.shape[1]))
        self.log_scale = nn.Parameter(torch.tensor(float(np.log(scale))))

    def limited(self) -> Tensor:
        """codes_VE with norms of at most 0.99."""
        norm = self.codes_VE.norm(dim=1, keepdim=True)
        return self.codes_VE * (0.99 / norm.clamp_min(0.99))

    def blocks(self, ids_NT: Tensor, there_NT: Tensor) -> Tensor:
        """blocks_NE of norm 1."""
        sums = nn.functional.embedding_bag(ids_NT, self.limited(), mode="sum", per_sample_weights=there_NT.float())
        return nn.functional.normalize(sums, dim=-1)

    def questions(self, ids_QT: Tensor, there_QT: Tensor) -> Tensor:
        """questions_QE."""
        weights = there_QT.float() / there_QT.sum(-1, keepdim=True).clamp_min(1)
        return (
            nn.functional.embedding_bag(ids_QT, self.limited(), mode="sum", per_sample_weights=weights) @ self.turn_EE
        )


def train_codes(
    data: TokenDocuments,
    codes_VE: NDArray[np.float32],
    source_weight: dict[str, float],
    *,
    tokens_per_block: int,
    settings: BagSettings | None = None,
    seed: int = 0,
    watch: Callable[[BagEncoder, int, float], None] | None = None,
) -> BagEncoder:
    """Learn codes (content part only, without the common dimension) from questions and their gold blocks."""
    settings = settings or BagSettings()
    random = np.random.default_rng(seed)
    encoder = BagEncoder(codes_VE, settings.scale)
    optimizer = torch.optim.AdamW(
        [
            {"params": [encoder.codes_VE], "lr": settings.learning_rate},
            {"params": [encoder.log_scale], "lr": 0.01},
            {"params": [encoder.turn_EE], "lr": settings.matrix_rate},
        ],
        weight_decay=0.0,
        betas=(0.9, 0.98),
    )
    peaks = [group["lr"] for group in optimizer.param_groups]
    questions = [question for question in data.questions if question.answerable]
    chance = np.array([source_weight.get(question.source, 1.0) for question in questions])
    chance /= chance.sum()
    names: dict[str, int] = {}
    title = [names.setdefault(name, len(names)) if name else -1 - number for number, name in enumerate(data.titles)]
    began = time.monotonic()
    for step in range(settings.steps):
        left = 1 - max(step / settings.steps, (time.monotonic() - began) / settings.max_seconds)
        if left <= 0:
            break
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * min(1.0, left + 0.02, (step + 1) / 20)
        chosen = [questions[number] for number in random.choice(len(questions), settings.questions, p=chance)]
        pieces, owner = [], []
        for question in chosen:
            document = data.ids[question.document]
            middle = (question.start + question.stop) // 2
            start = max(0, middle - int(random.integers(0, tokens_per_block)))
            pieces.append(document[start : start + tokens_per_block])
            owner.append(title[question.document])
        for question in chosen * settings.neighbours:
            document = data.ids[question.document]
            start = int(random.integers(0, max(1, len(document) - tokens_per_block // 2)))
            overlaps = start < question.stop and start + tokens_per_block > question.start
            pieces.append(document[start : start + tokens_per_block])
            owner.append(-1_000_000_000 if overlaps else -2_000_000_000)
        for number in random.integers(0, len(data.ids), settings.strangers):
            document = data.ids[number] if len(data.ids[number]) else data.ids[0]
            start = int(random.integers(0, max(1, len(document) - tokens_per_block // 2)))
            pieces.append(document[start : start + tokens_per_block])
            owner.append(title[number])
        scores = encoder.questions(*_padded([question.ids for question in chosen])) @ encoder.blocks(*_padded(pieces)).T
        scores = scores * encoder.log_scale.exp()
        # A neighbour is a hard negative for its own question, unless it overlaps the answer; other blocks of the same
        # title do not count.
        count = len(chosen)
        owner_N, own_Q = torch.tensor(owner), torch.tensor(owner[:count])
        ignored = (owner_N[None] == own_Q[:, None]) | (owner_N == -1_000_000_000)[None]
        titles = torch.tensor([title[question.document] for question in chosen]).repeat(settings.neighbours)
        near = torch.zeros_like(ignored)
        near[:, count : count * (1 + settings.neighbours)] = titles[None] == own_Q[:, None]
        mine = torch.zeros_like(ignored)
        for copy in range(settings.neighbours):
            mine[torch.arange(count), count * (1 + copy) + torch.arange(count)] = True
        ignored |= near & ~mine
        ignored[torch.arange(count), torch.arange(count)] = False
        loss = nn.functional.cross_entropy(scores.masked_fill(ignored, -1e9), torch.arange(count))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watch is not None:
            watch(encoder, step, float(loss.detach()))
    return encoder


def _padded(pieces: list) -> tuple[Tensor, Tensor]:
    lengths = np.array([len(piece) for piece in pieces])
    ids = np.zeros((len(pieces), int(lengths.max())), np.int64)
    there = np.arange(ids.shape[1])[None] < lengths[:, None]
    ids[there] = np.concatenate([np.asarray(piece, np.int64) for piece in pieces])
    return torch.from_numpy(ids), torch.from_numpy(there)
