"""Training of the question's side of search: questions choose among thousands of stored blocks, as when serving.

A batch holds few blocks, and blocks kept from earlier batches are stale: a network that trains against those learns to
move its keys away from them. So here what is stored stays as it is. Documents are read once, into a memory; only the
query projection of the memory layer learns. That is little, but every step meets the whole memory:

- landmarks: the mean query and all landmarks of the memory, in one softmax.
- late: the blocks that landmarks propose and the right ones, by the score that search ranks with (without neighbours,
  see `retrieval.late_interaction`).
- span: the answer's first and last token among all tokens of those blocks.

Axes: Q questions, T tokens, N stored blocks, C candidates, L tokens in a block (without its landmark), E all heads'
dimensions together.
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from model.backbone import LandmarkModel
from model.prefill import prefill_batch
from model.training.examples import TokenDocuments, TokenQuestion
from model.training.question_rows import SOURCE_WEIGHT
from model.training.teaching import pointers, question_queries, ranking


@dataclass(frozen=True, kw_only=True)
class SearchShape:
    """Sizes of the memory and of a step."""

    blocks: int = 10_000
    """Blocks of the memory, about."""
    held_blocks: int = 1500
    """Blocks of held-out documents in it, about, whose questions are never learned."""
    questions: int = 32
    proposed: int = 160
    """Blocks that landmarks propose for each question."""
    longest_question: int = 40
    judged: int = 200
    """Held-out questions that are asked to see how far it is."""


@dataclass(frozen=True)
class Memory:
    """Documents as stored."""

    keys_NLE: Tensor
    """bfloat16, as in a memory."""
    raw_NL: Tensor
    landmarks_NE: Tensor
    document_N: NDArray[np.int64]
    title_N: NDArray[np.int64]
    first_N: NDArray[np.int64]
    """Each block's first token, as a place in its document."""

    @classmethod
    def read(cls, model: LandmarkModel, documents: dict[int, tuple[NDArray[np.uint16], int]]) -> "Memory":
        """`documents`: number -> tokens, title."""
        numbers = sorted(documents, key=lambda number: len(documents[number][0]))
        keys: dict[int, list[Tensor]] = defaultdict(list)
        lengths: dict[int, list[int]] = defaultdict(list)
        for begin in range(0, len(numbers), 8):  # of about the same length, read side by side
            chosen = numbers[begin : begin + 8]
            texts = [documents[number][0].tolist() for number in chosen]
            for row, block in prefill_batch(model, texts, kv_dtype=torch.bfloat16):
                keys[chosen[row]].append(block.keys_YGLD[-1].transpose(0, 1).flatten(1).cpu())
                lengths[chosen[row]].append(block.num_tokens)
        size = model.config.tokens_per_block
        blocks = [(number, block) for number in numbers for block in range(len(keys[number]))]
        keys_NLE = torch.stack([keys[number][block] for number, block in blocks])
        length_N = torch.tensor([lengths[number][block] for number, block in blocks])
        return cls(
            keys_NLE[:, :-1].contiguous(),
            torch.arange(size) < length_N[:, None],
            keys_NLE[:, -1].float(),
            np.array([number for number, _ in blocks]),
            np.array([documents[number][1] for number, _ in blocks]),
            np.array([block * size for _, block in blocks]),
        )

    def gold_N(self, question: TokenQuestion) -> NDArray[np.bool_]:
        size = self.raw_NL.shape[1]
        same = self.document_N == question.document
        return same & (self.first_N < question.stop) & (self.first_N + size > question.start)

    def place(self, question: TokenQuestion, token: int) -> tuple[int, int]:
        """Block and row of a token of the question's document."""
        size = self.raw_NL.shape[1]
        block = np.flatnonzero((self.document_N == question.document) & (self.first_N == token // size * size))
        return int(block[0]), token % size


@dataclass(frozen=True)
class Asked:
    """Questions of one step."""

    questions: list[TokenQuestion]
    asked_QT: Tensor
    there_QT: Tensor
    """True at tokens of the question itself."""


class QuestionSource:
    """make(i) -> Asked, a pure function of i; and the held-out questions."""

    def __init__(
        self,
        questions: Iterable[TokenQuestion],
        held_out: Iterable[TokenQuestion],
        model: LandmarkModel,
        shape: SearchShape,
        *,
        seed: int = 0,
    ) -> None:
        self._questions = [q for q in questions if q.answerable and len(q.ids) <= shape.longest_question]
        chance = np.array([SOURCE_WEIGHT.get(question.source, 1.0) for question in self._questions])
        self._chance = chance / chance.sum()
        self._shape, self._seed = shape, seed
        before, after = model.config.prompt.split("{question}")
        self._head = model.tokenizer(before, add_special_tokens=False)["input_ids"]
        self._tail = [
            *model.tokenizer(after, add_special_tokens=False)["input_ids"],
            int(model.tokenizer.eos_token_id),
        ]
        judged = [q for q in held_out if q.answerable and len(q.ids) <= shape.longest_question]
        random.Random(seed).shuffle(judged)
        self.judged = [self.asked(judged[i : i + 20]) for i in range(0, min(len(judged), shape.judged), 20)]

    def make(self, number: int) -> Asked:
        draw = np.random.default_rng((self._seed, number))
        count = min(self._shape.questions, len(self._questions))
        return self.asked([self._questions[i] for i in draw.choice(len(self._questions), count, False, self._chance)])

    def asked(self, questions: list[TokenQuestion]) -> Asked:
        """Questions in the model's prompt, the end token behind it, padded on the right."""
        head, tail = self._head, self._tail
        longest = max(len(question.ids) for question in questions) + len(head) + len(tail)
        asked_QT = torch.zeros(len(questions), longest, dtype=torch.long)
        there_QT = torch.zeros(len(questions), longest, dtype=torch.bool)
        for row, question in enumerate(questions):
            prompt = [*head, *question.ids, *tail]
            asked_QT[row, : len(prompt)] = torch.tensor(prompt)
            there_QT[row, len(head) : len(head) + len(question.ids)] = True
        return Asked(questions, asked_QT, there_QT)


def choose_documents(data: TokenDocuments, *, blocks: int, size: int, seed: int) -> set[int]:
    """Documents drawn by their questions until they hold about so many blocks."""
    draw = np.random.default_rng(seed)
    chance = np.array([SOURCE_WEIGHT.get(question.source, 1.0) for question in data.questions])
    chosen: set[int] = set()
    held = 0
    for index in draw.choice(len(chance), len(chance), False, chance / chance.sum()):
        document = data.questions[index].document
        count = -(-len(data.ids[document]) // size)
        if document not in chosen and held + count <= blocks:
            chosen.add(document)
            held += count
    return chosen


class SearchTrainee(nn.Module):
    """The model with its query projection to be trained, the memory, and temperatures."""

    def __init__(self, model: LandmarkModel, memory: Memory, shape: SearchShape) -> None:
        super().__init__()
        self.model, self.memory, self.shape = model, memory, shape
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        for parameter in model.backbone.model.layers[model.memory_layers[-1]].self_attn.q_proj.parameters():
            parameter.requires_grad_(True)
        self.log_scale_late = nn.Parameter(torch.tensor(3.4))
        self.log_scale_landmarks = nn.Parameter(torch.tensor(2.0))
        self.log_scale_span = nn.Parameter(torch.tensor(4.5))

    def save(self, folder: object) -> None:
        self.model.save(folder)  # type: ignore[arg-type]


def search_loss(trainee: SearchTrainee, batch: Asked) -> tuple[Tensor, dict[str, float | Tensor], int]:
    """The loss in the form that `run_training` takes."""
    memory, shape, device = trainee.memory, trainee.shape, trainee.model.device
    there_QT = batch.there_QT.to(device)
    queries_QTE = question_queries(trainee.model, batch.asked_QT.to(device), trainee.model.memory_layers[-1])
    mean_QE = (queries_QTE * there_QT[..., None]).sum(1) / there_QT.sum(1, keepdim=True)
    coarse_QN = mean_QE @ memory.landmarks_NE.to(device).T
    gold_QN, ignored_QN = (mask.to(device) for mask in _gold(memory, batch.questions))
    coarse, coarse_hits = ranking(coarse_QN * trainee.log_scale_landmarks.exp(), gold_QN, ignored_QN)
    pointers_Q2E = pointers(queries_QTE, there_QT) * trainee.log_scale_span.exp()
    scores, counts, spans = [], [], []
    for row, question in enumerate(batch.questions):
        reachable_N = coarse_QN[row].detach().masked_fill(ignored_QN[row] | gold_QN[row], -torch.inf)
        count = min(shape.proposed, int((reachable_N > -torch.inf).sum()))
        gold = gold_QN[row].nonzero()[:, 0]
        ids_C = torch.cat((gold, reachable_N.topk(count).indices)).cpu()
        keys_CLE, raw_CL = memory.keys_NLE[ids_C].to(device).float(), memory.raw_NL[ids_C].to(device)
        scores.append(block_scores(queries_QTE[row][there_QT[row]], keys_CLE, raw_CL))
        counts.append((len(gold), len(ids_C)))
        if question.exact:
            spans.append(_span_loss(memory, question, pointers_Q2E[row], ids_C.tolist(), keys_CLE, raw_CL))
    scores_QC = nn.utils.rnn.pad_sequence(scores, batch_first=True)
    place_C, (golds_Q, sizes_Q) = torch.arange(scores_QC.shape[1], device=device), torch.tensor(counts, device=device).T
    late, late_hits = ranking(
        scores_QC * trainee.log_scale_late.exp(), place_C < golds_Q[:, None], place_C >= sizes_Q[:, None]
    )
    span = torch.stack(spans).mean() if spans else late * 0
    metrics: dict[str, float | Tensor] = {
        "late": late.detach(),
        "late_top1": late_hits,
        "landmarks": coarse.detach(),
        "landmarks_top1": coarse_hits,
        "span": span.detach(),
    }
    return late + 0.5 * coarse + 0.3 * span, metrics, int(there_QT.sum())


def block_scores(queries_QE: Tensor, keys_CLE: Tensor, raw_CL: Tensor) -> Tensor:
    """scores_C: sum over the question's tokens, weighted by |q|, of the squared best cosine among a block's tokens."""
    cosines_QCL = (normalize(queries_QE, dim=-1) @ normalize(keys_CLE, dim=-1).flatten(0, 1).T).unflatten(
        1, raw_CL.shape
    )
    best_QC = cosines_QCL.masked_fill(~raw_CL, -1.0).amax(-1).clamp_min(0)
    share_Q = queries_QE.norm(dim=-1) / queries_QE.norm(dim=-1).sum()
    return share_Q @ best_QC.square()


def _span_loss(
    memory: Memory, question: TokenQuestion, pointers_2E: Tensor, ids: list[int], keys_CLE: Tensor, raw_CL: Tensor
) -> Tensor:
    """Cross-entropy of first and last token of the answer among all tokens of the candidates."""
    size = raw_CL.shape[1]
    places = [memory.place(question, token) for token in (question.start, question.stop - 1)]
    targets = torch.tensor([ids.index(block) * size + row for block, row in places], device=keys_CLE.device)
    logits_2P = pointers_2E @ keys_CLE.flatten(0, 1).T * keys_CLE.shape[-1] ** -0.5
    return cross_entropy(logits_2P.masked_fill(~raw_CL.flatten(), -torch.inf), targets)


def _gold(memory: Memory, questions: list[TokenQuestion]) -> tuple[Tensor, Tensor]:
    """gold_QN, ignored_QN: blocks of another document with the same title are neither right nor wrong."""
    gold_QN = np.stack([memory.gold_N(question) for question in questions])
    title = {document: title for document, title in zip(memory.document_N, memory.title_N, strict=True)}
    same_QN = np.stack(
        [
            (memory.title_N == title[question.document]) & (memory.document_N != question.document)
            for question in questions
        ]
    )
    return torch.from_numpy(gold_QN), torch.from_numpy(same_QN)


@torch.no_grad()
def judge(trainee: SearchTrainee, source: QuestionSource) -> dict[str, float]:
    """Recall of held-out questions over the whole memory: landmarks propose 512 blocks, tokens rank them."""
    memory, device = trainee.memory, trainee.model.device
    found = defaultdict(list)
    for batch in source.judged:
        queries_QTE = question_queries(trainee.model, batch.asked_QT.to(device), trainee.model.memory_layers[-1])
        gold_QN, _ = _gold(memory, batch.questions)
        for row in range(len(batch.questions)):
            queries_QE = queries_QTE[row][batch.there_QT[row].to(device)]
            landmarks_N = memory.landmarks_NE.to(device) @ queries_QE.mean(0)
            ids_C = landmarks_N.topk(min(512, len(landmarks_N))).indices.cpu()
            scores_C = block_scores(
                queries_QE, memory.keys_NLE[ids_C].to(device).float(), memory.raw_NL[ids_C].to(device)
            )
            best = gold_QN[row][ids_C][scores_C.argsort(descending=True).cpu()]
            proposed = gold_QN[row][ids_C]
            found["landmarks@8"].append(bool(proposed[:8].any()))
            found["landmarks@512"].append(bool(proposed.any()))
            found["recall@1"].append(bool(best[0]))
            found["recall@8"].append(bool(best[:8].any()))
    return {name: sum(hits) / len(hits) for name, hits in found.items()}
