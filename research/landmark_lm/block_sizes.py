"""How well landmarks find, by the size of their blocks: for how much text one key can stand.

The network stays as it is. Passages and questions are read alone, once, and the states of some layers are kept. What is
learned is what a landmark does in one layer: in each head it attends to the tokens of its block by a query of its own,
and what it gathers becomes the key; a question does the same with its tokens. The loss is that of `loss.py`: the mean
over heads of the softmax over all landmarks, at the blocks that hold the answer.

All sizes cut the same passages, and the questions judged are about articles that nothing was learned from. Small blocks
are more blocks to choose from, so they are also compared by the text read: among the best blocks of `READ` tokens.

Axes: T tokens of a text, E width, N blocks, L tokens of a block, Q questions, H heads, D head dim, M landmarks of a
block, K = H x M.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from model.checkpoint.landmark_model import LandmarkModel
from research.landmark_lm.evaluation import bm25_ranks
from research.landmark_lm.sources import Tokens, read_contexts
from research.train.evaluation.report import table

SIZES, LAYERS = (16, 25, 32, 50, 64, 100), (9, 12, 15, 18, 22, 26)
LAYER, SIZE = 15, 64
"""Where the others are compared."""
READ = 512
HEADS, HEAD_DIM, TOGETHER = 8, 64, 8
Figures = dict[str, Any]


@dataclass(frozen=True)
class TextsRead:
    """Passages and questions about them, with the states of one layer: states_TE each. `asked`: for each question its
    text, its passage, and the tokens first..last-1 of the answer."""

    passages: list[list[int]]
    asked: list[tuple[str, int, int, int]]
    passage_states: dict[int, list[Tensor]]
    question_states: dict[int, list[Tensor]]

    def blocks(self, size: int) -> Iterator[tuple[int, slice]]:
        """(passage, its tokens) of each block of `size` ordinary tokens."""
        for number, ids in enumerate(self.passages):
            yield from ((number, slice(at, min(at + size, len(ids)))) for at in range(0, len(ids), size))

    def gold(self, size: int) -> list[list[int]]:
        """For each question the numbers of the blocks that hold some of the answer."""
        places = list(self.blocks(size))
        return [
            [
                number
                for number, (own, place) in enumerate(places)
                if own == passage and place.start < last and first < place.stop
            ]
            for _, passage, first, last in self.asked
        ]


def read_texts(tokens: Tokens, file: Path, layers: Sequence[int], count: int, seed: int) -> TextsRead:
    """Some passages of a set of questions, each read alone, with up to four questions about each."""
    model, rng = tokens.model, random.Random(seed)
    contexts = [context for group in read_contexts(file) for context in group]
    passages, asked = list[list[int]](), list[tuple[str, int, int, int]]()
    for context in rng.sample(contexts, min(count, len(contexts))):
        ids, found = tokens.passage(context, rng, wanted=4)
        asked += [(question, len(passages), first, last) for question, _, first, last in found]
        passages.append(ids)
    prompts = [model.prompt(question) for question, *_ in asked]
    whole = states_of(model, [prompt.ids[: prompt.question.stop] for prompt in prompts], layers)
    questions = {
        layer: [states[prompt.question] for states, prompt in zip(of_layer, prompts, strict=True)]
        for layer, of_layer in whole.items()
    }
    return TextsRead(passages, asked, states_of(model, passages, layers), questions)


@torch.no_grad()
def states_of(model: LandmarkModel, texts: Sequence[Sequence[int]], layers: Sequence[int]) -> dict[int, list[Tensor]]:
    """By layer, the states_TE that enter it, of mean 0 and variance 1; what stands behind a text changes nothing."""
    found: dict[int, list[Tensor]] = {layer: [torch.empty(0)] * len(texts) for layer in layers}
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    for at in range(0, len(order), TOGETHER):
        some = order[at : at + TOGETHER]
        ids_BT = pad_sequence([torch.tensor(texts[number]) for number in some], batch_first=True)
        hidden_BTE, done = model.embed(ids_BT.to(model.device)), 0
        for layer in layers:
            hidden_BTE, done = model.run_layers(hidden_BTE, range(done, layer), model.context()), layer
            normed_BTE = nn.functional.layer_norm(hidden_BTE.float(), hidden_BTE.shape[-1:]).bfloat16().cpu()
            for number, states_TE in zip(some, normed_BTE, strict=True):
                found[layer][number] = states_TE[: len(texts[number])].clone()
    return found


@dataclass(frozen=True)
class Cut:
    """Texts in blocks of one size, as tensors of one layer; `valid`: False at padding."""

    blocks_NLE: Tensor
    valid_NL: Tensor
    questions_QTE: Tensor
    asked_QT: Tensor
    gold_QN: Tensor

    @classmethod
    def of(cls, texts: TextsRead, layer: int, size: int) -> "Cut":
        states = texts.passage_states[layer]
        blocks_NLE, valid_NL = _padded([states[number][place] for number, place in texts.blocks(size)])
        gold_QN = torch.zeros(len(texts.asked), len(blocks_NLE), dtype=torch.bool)
        for number, gold in enumerate(texts.gold(size)):
            gold_QN[number, gold] = True
        return cls(blocks_NLE, valid_NL, *_padded(texts.question_states[layer]), gold_QN)


def _padded(states: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """x_BTE in float32 and valid_BT."""
    lengths = torch.tensor([len(each) for each in states])
    x_BTE = pad_sequence([each.float() for each in states], batch_first=True)
    return x_BTE, torch.arange(x_BTE.shape[1]) < lengths[:, None]


class Gathered(nn.Module):
    """K queries that each attend to the tokens of a text; what they gather is projected by the matrix of their head."""

    def __init__(self, width: int, each: int = 1) -> None:
        super().__init__()
        self.query_KE = nn.Parameter(torch.randn(HEADS * each, width) * width**-0.5)
        self.matrix_HED = nn.Parameter(torch.randn(HEADS, width, HEAD_DIM) * width**-0.5)

    def forward(self, x_BTE: Tensor, valid_BT: Tensor) -> Tensor:
        """out_HBMD."""
        logits_BTK = (x_BTE @ self.query_KE.T).masked_fill(~valid_BT[..., None], -torch.inf)
        mixed_BKE = logits_BTK.softmax(1).mT @ x_BTE
        mixed_HBME = mixed_BKE.unflatten(1, (HEADS, -1)).transpose(0, 1)
        return torch.einsum("hbme,hed->hbmd", mixed_HBME, self.matrix_HED)


class Landmarks(nn.Module):
    """Votes of questions for blocks. With several landmarks a block counts by the log-sum-exp of their logits."""

    def __init__(self, width: int, landmarks: int) -> None:
        super().__init__()
        self.of_block, self.of_question = Gathered(width, landmarks), Gathered(width)

    def votes(self, cut: Cut, some_Q: Tensor) -> Tensor:
        """votes_QN of some questions: the mean over heads of the softmax over all landmarks."""
        keys_HNMD = self.of_block(cut.blocks_NLE, cut.valid_NL)
        queries_HQD = self.of_question(cut.questions_QTE[some_Q], cut.asked_QT[some_Q]).squeeze(2)
        logits_HQNM = torch.einsum("hqd,hnmd->hqnm", queries_HQD, keys_HNMD) * HEAD_DIM**-0.5
        votes_QN: Tensor = logits_HQNM.logsumexp(-1).softmax(-1).mean(0)
        return votes_QN


def learn(cut: Cut, *, landmarks: int, steps: int, seed: int = 0, rate: float = 2e-3) -> Landmarks:
    """Landmarks that were taught the questions of a set, 64 at a time."""
    torch.manual_seed(seed)
    found = Landmarks(cut.blocks_NLE.shape[-1], landmarks)
    optimizer = torch.optim.AdamW(found.parameters(), lr=rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        some_Q = torch.randperm(len(cut.gold_QN))[:64]
        share_Q = (found.votes(cut, some_Q) * cut.gold_QN[some_Q]).sum(-1)
        optimizer.zero_grad()
        (-(share_Q + 1e-6).log().mean()).backward()
        optimizer.step()
        schedule.step()
    return found


@torch.no_grad()
def ranks_of(found: Landmarks, cut: Cut) -> list[int]:
    """For each question how many blocks have more votes than its best right one."""
    votes_QN = found.votes(cut, torch.arange(len(cut.gold_QN)))
    best_Q1 = votes_QN.masked_fill(~cut.gold_QN, -1.0).amax(-1, keepdim=True)
    ranks: list[int] = (votes_QN > best_Q1).sum(-1).tolist()
    return ranks


def figures_of(arm: Figures, ranks: Sequence[int], blocks: int) -> Figures:
    """`first`: share of questions whose best block holds the answer; `within`: the same among the best blocks of `READ`
    tokens; `error`: standard error of `within`; `chance`: `within` of blocks drawn at random, about."""
    most = max(1, READ // int(arm["size"]))
    within = sum(rank < most for rank in ranks) / len(ranks)
    return arm | {
        "blocks": blocks,
        "first": round(sum(rank < 1 for rank in ranks) / len(ranks), 3),
        "within": round(within, 3),
        "error": round((within * (1 - within) / len(ranks)) ** 0.5, 3),
        "chance": round(most / blocks, 3),
    }


def compare(
    tokens: Tokens, data: Path, out: Path, *, passages: int, steps: int, say: Callable[[str], None] = print
) -> list[Figures]:
    """All arms; writes block_sizes.json and prints the table. `data`: with qa/squad11.train and .dev."""
    taught, asked = (
        read_texts(tokens, data / "qa" / f"squad11.{part}.jsonl.xz", LAYERS, count, seed=0)
        for part, count in (("train", passages), ("dev", passages // 2))
    )
    say(f"{len(taught.asked)} questions taught, {len(asked.asked)} asked")
    arms = [(size, LAYER, 1) for size in SIZES] + [(size, LAYER, 2) for size in (32, SIZE)]
    arms += [(SIZE, layer, 1) for layer in LAYERS if layer != LAYER]
    rows = []
    for size, layer, landmarks in arms:
        found = learn(Cut.of(taught, layer, size), landmarks=landmarks, steps=steps)
        cut = Cut.of(asked, layer, size)
        arm = {"key": "landmark", "size": size, "layer": layer, "landmarks": landmarks}
        rows.append(figures_of(arm, ranks_of(found, cut), len(cut.blocks_NLE)))
        say(json.dumps(rows[-1]))
    for size in SIZES:
        texts = [tokens.model.decode(asked.passages[number][place]) for number, place in asked.blocks(size)]
        ranks = bm25_ranks(texts, [question for question, *_ in asked.asked], asked.gold(size))
        rows.append(figures_of({"key": "BM25", "size": size, "layer": "", "landmarks": ""}, ranks, len(texts)))
    out.mkdir(parents=True, exist_ok=True)
    (out / "block_sizes.json").write_text(json.dumps(rows, indent=1) + "\n")
    say(table(rows))
    return rows
