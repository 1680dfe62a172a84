"""A landmark language model that is trained in about a minute to say a pass key that it has read.

`python -m tests.mission.passkey_model` trains it and writes `STORED`, which tests open; slow tests train it anew.

It learns as it is used: a text of a few blocks is read alone and stored, and the question is asked over this memory,
whose blocks attention chooses by their landmarks. What it has learned is asked of it later over a memory many times as
long.

Axes: B rows, T tokens with landmarks, G KV heads, N stored blocks, L tokens in a block, D head dim.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from model.attention.memory import InMemoryReader
from model.attention.selection import SelectionPolicy
from model.checkpoint.backbones import DynamicCache
from model.checkpoint.landmark_model import LandmarkModel, cached
from research.landmark_models import with_config
from research.train.data.tokenizer import train_tokenizer
from research.train.evaluation.passkey import FILLER
from research.train.recipes.presets import Architecture, RowSettings
from research.train.recipes.pretrain import new_model

STORED = Path(__file__).resolve().parents[1] / "golden" / "passkey"
QUESTION = "What is the pass key? The pass key is"
SENTENCES = [f"{each.strip()}." for each in FILLER.split(".") if each.strip()]
STEPS, ROWS, RATE, BLOCKS = 200, 32, 3e-3, (5, 9)


def text_with_key(rng: random.Random, sentences: int) -> tuple[str, int]:
    """A text of at most so many sentences of filler around a key."""
    key = rng.randint(100, 999)
    before = [rng.choice(SENTENCES) for _ in range(rng.randint(0, sentences))]
    behind = [rng.choice(SENTENCES) for _ in range(rng.randint(0, sentences - len(before)))]
    stated = f"The pass key is {key}. Remember it. {key} is the pass key."
    return " ".join([*before, stated, *behind]) + "\n", key


def passkey_model(seed: int = 0) -> LandmarkModel:
    """Trained, on the CPU, in float32; its prompt is the question alone."""
    rng = random.Random(seed)
    sample = [f"{text_with_key(rng, 6)[0]}{QUESTION} 0123456789." for _ in range(64)]
    architecture = Architecture(
        hidden_size=128, intermediate_size=352, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
        max_position_embeddings=4096, tie_word_embeddings=True, initializer_range=0.1,
    )  # fmt: skip
    rows = RowSettings(raw_tokens=64, block_size=8, rows=ROWS)
    model = new_model(architecture, train_tokenizer(sample, vocab_size=420), rows, seed=seed)
    model = with_config(model, prompt="{question}", window_blocks=8, context_blocks=0)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, step / 30) * (0.55 + 0.45 * math.cos(math.pi * step / STEPS))
        loss = _loss(model, rng, rng.randint(*BLOCKS), top_k=9 if step < STEPS // 2 else 3)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def _loss(model: LandmarkModel, rng: random.Random, blocks: int, top_k: int) -> Tensor:
    """Of the answer's tokens, asked over the stored text, and a tenth of that of the text's."""
    texts, asked = zip(*(_row(model, rng, blocks) for _ in range(ROWS)), strict=True)
    ids_BT = torch.tensor([model.with_landmarks(text) for text in texts])
    cache = DynamicCache()
    hidden_BTE = model.encode(ids_BT, model.context(), cache)
    memory = _Stored(model, cache, blocks)
    context = model.context(reader=memory, policy=SelectionPolicy(top_k=top_k, voters="token"))
    asked_BT = torch.tensor([model.with_landmarks(each) for each in asked])
    answer_BT = asked_BT[0] != model.config.landmark_token_id
    begun = len(model.with_landmarks(model.tokenize(QUESTION).ids)) - 1
    answer_BT[:begun] = False
    of_answer = _next_token_loss(model, model.encode(asked_BT, context), asked_BT, answer_BT)
    of_text = _next_token_loss(model, hidden_BTE, ids_BT, ids_BT[0] != model.config.landmark_token_id)
    return of_answer + 0.1 * of_text


def _row(model: LandmarkModel, rng: random.Random, blocks: int) -> tuple[list[int], list[int]]:
    """A text that fills its blocks, and the question with the answer."""
    wanted = blocks * model.config.tokens_per_block
    while True:
        text, key = text_with_key(rng, blocks)
        ids = model.tokenize(text).ids
        if len(ids) <= wanted:
            more = model.tokenize(" ".join(rng.choice(SENTENCES) for _ in range(wanted))).ids
            return (ids + more)[:wanted], model.tokenize(f"{QUESTION} {key}.").ids


def _next_token_loss(model: LandmarkModel, hidden_BTE: Tensor, ids_BT: Tensor, counted_T: Tensor) -> Tensor:
    """At the ordinary tokens `counted_T`: of the ordinary token after each."""
    rows = counted_T.nonzero().flatten()
    raw = (ids_BT[0] != model.config.landmark_token_id).nonzero().flatten()
    following = torch.tensor([int(raw[raw > row][0]) for row in rows[:-1]])
    return cross_entropy(model.logits(hidden_BTE[:, rows[:-1]]).flatten(0, 1), ids_BT[:, following].flatten())


class _Stored(InMemoryReader):
    """The keys and values of a pass, block by block, with their gradients."""

    def __init__(self, model: LandmarkModel, cache: DynamicCache, blocks: int) -> None:
        super().__init__(model.memory_layers)
        self._blocks = blocks
        self._held = {
            layer: [kv.unflatten(2, (blocks, -1)) for kv in cached(cache, layer)] for layer in model.memory_layers
        }
        self._length = model.config.tokens_per_block

    @property
    def num_blocks(self) -> int:
        return self._blocks

    def landmarks(self, layer: int) -> Tensor:
        return self._held[layer][0][..., -1, :]

    def read(self, layer: int, ids_BGXS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, groups = ids_BGXS.shape[:2]
        row, head = torch.arange(batch).view(-1, 1, 1, 1), torch.arange(groups).view(1, -1, 1, 1)
        keys, values = (held[row, head, ids_BGXS] for held in self._held[layer])
        return keys, values, torch.full_like(ids_BGXS, self._length)


if __name__ == "__main__":
    passkey_model().to(torch.float16).save(STORED)
