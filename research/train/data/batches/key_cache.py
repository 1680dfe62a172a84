"""Training documents as a library would store them, and their questions as search would meet them.

- Nothing below the stored keys learns any more, so every document is encoded once and every question once.
- Both are kept in a folder and taken from there by a later run: `keys.npy` of the blocks, `questions.safetensors`. Each
  appears when it is complete, with a file beside it that says which weights, documents and questions it was made of.

Axes: N stored blocks, L tokens in a block (landmark last), E width of a key (all heads of the memory layer laid end to
end), T tokens of a question, M questions, P proposed blocks, F found blocks.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from model.attention.block_grid import num_blocks
from model.checkpoint.landmark_model import LandmarkModel
from research.landmark_models import search_queries
from research.prefill_batch import prefill_batch
from research.train.data.token_cosines import TokenCosines

NO_TOKEN = -1
PROPOSED = 64
"""Blocks that landmarks propose for a question, among which the keys of tokens choose."""
_ROWS = 16
_QUESTIONS = 64


@dataclass(frozen=True)
class KeyCache:
    """Blocks of many documents, one document behind the other."""

    keys_NLE: NDArray[np.float16]
    tokens_NL: NDArray[np.int32]
    """Raw tokens; -1 at landmarks and padding."""
    first: Mapping[int, int]
    """Number of the first block of each document."""

    @property
    def tokens_per_block(self) -> int:
        return int(self.tokens_NL.shape[1]) - 1

    def place(self, document: int, token: int) -> tuple[int, int]:
        """(block, row) of a raw token of a document."""
        return self.first[document] + token // self.tokens_per_block, token % self.tokens_per_block

    def blocks(self, document: int, start: int, stop: int) -> list[int]:
        """Numbers of the blocks that hold raw tokens [start, stop)."""
        return list(range(self.place(document, start)[0], self.place(document, max(start, stop - 1))[0] + 1))


def cache_keys(model: LandmarkModel, documents: Mapping[int, NDArray[np.integer]], folder: Path) -> KeyCache:
    """The keys of the last memory layer of all documents, or what `folder` holds of them already."""
    size = model.config.block_size
    counts = {number: num_blocks(len(ids), size) for number, ids in documents.items()}
    ends = np.cumsum(list(counts.values()))
    first = dict(zip(counts, (ends - np.array(list(counts.values()))).tolist(), strict=True))
    tokens_NL = np.full((int(ends[-1]), size), NO_TOKEN, np.int32)
    for number, ids in documents.items():
        rows = tokens_NL[first[number] : first[number] + counts[number], :-1]
        padded = np.full(rows.size, NO_TOKEN, np.int32)
        padded[: len(ids)] = ids
        rows[:] = padded.reshape(rows.shape)
    file, made_of = folder / "keys.npy", [model.identity(), _digest(tokens_NL.tobytes())]
    if not _is_kept(file, made_of):
        half = folder / "keys.part"
        keys = np.lib.format.open_memmap(
            half, mode="w+", dtype=np.float16, shape=(*tokens_NL.shape, model.num_kv_heads * model.head_dim)
        )
        numbers = sorted(documents, key=lambda number: -len(documents[number]))
        for start in tqdm(range(0, len(numbers), _ROWS), desc=f"documents stored, {_ROWS} at once"):
            chosen = numbers[start : start + _ROWS]
            at = {row: first[number] for row, number in enumerate(chosen)}
            for row, block in prefill_batch(model, [documents[number].tolist() for number in chosen]):
                keys[at[row]] = block.keys_YGLD[-1].transpose(0, 1).flatten(1).half().cpu().numpy()
                at[row] += 1
        keys.flush()
        half.rename(file)
    return KeyCache(np.load(file, mmap_mode="r"), tokens_NL, first)


def _is_kept(file: Path, made_of: list[Any]) -> bool:
    """Whether `file` is there; before it is made what it is made of is noted. Raises ValueError if it was made of other
    things."""
    note = file.with_suffix(".json")
    if file.exists():
        if not note.exists() or json.loads(note.read_text()) != made_of:
            raise ValueError(
                f"{file} was made with other weights, documents or questions; remove {file.parent} to make it again."
            )
        return True
    file.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps(made_of))
    return False


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class RetrievedCandidates:
    """Question i: queries_TE[begin_M[i] : begin_M[i + 1]], the last two of which are the pointers; and the blocks that
    search finds for it, best first."""

    queries_TE: NDArray[np.float16]
    begin_M: NDArray[np.int64]
    found_MF: NDArray[np.int32]


def retrieve_candidates(
    model: LandmarkModel, stored: KeyCache, questions: Sequence[Sequence[int]], folder: Path, *, found: int
) -> RetrievedCandidates:
    """Queries of questions (their raw tokens, without prompt), encoded alone, and what they find among all blocks."""
    asked = json.dumps([[int(token) for token in ids] for ids in questions])
    file = folder / "questions.safetensors"
    made_of = [model.identity(), _digest(stored.tokens_NL.tobytes()), _digest(asked.encode()), found]
    if not _is_kept(file, made_of):
        queries = _encode(model, questions)
        found_MF = np.stack(list(_find(stored, queries, found)))
        begin_M = np.cumsum([0, *map(len, queries)])
        arrays = {"queries": torch.cat(queries).numpy(), "begin": begin_M, "found": found_MF}
        half = folder / "questions.part"
        save_file(arrays, half)
        half.rename(file)
    kept = load_file(file)
    return RetrievedCandidates(kept["queries"], kept["begin"], kept["found"])


@torch.no_grad()
def _encode(model: LandmarkModel, questions: Sequence[Sequence[int]]) -> list[Tensor]:
    """queries_TE (float16, CPU) of every question in the frame of search: its tokens, the prompt's last and an end."""
    prompts = [model.prompt_of(question) for question in questions]
    layer, end = model.memory_layers[-1], int(model.tokenizer.eos_token_id)
    encoded: list[Tensor] = [torch.empty(0)] * len(questions)
    order = sorted(range(len(questions)), key=lambda number: len(questions[number]))
    for start in tqdm(range(0, len(order), _QUESTIONS), desc=f"questions encoded, {_QUESTIONS} at once"):
        chosen = order[start : start + _QUESTIONS]
        ids = [torch.tensor([*prompts[number].ids, end]) for number in chosen]
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        assert padded.shape[1] < model.config.block_size, "a question fits into a block, so no landmark stands in it"
        queries_QTE = search_queries(model, padded.to(model.device))[layer].transpose(1, 2).flatten(2).half().cpu()
        for number, queries_TE, length in zip(chosen, queries_QTE, map(len, ids), strict=True):
            encoded[number] = queries_TE[prompts[number].question.start : length].clone()
    return encoded


def _find(stored: KeyCache, queries: Sequence[Tensor], found: int) -> Iterator[NDArray[np.int32]]:
    """For each question: landmarks propose, the keys of tokens choose. Always `found` numbers; where there are fewer
    blocks the last is repeated."""
    landmarks_NE = torch.from_numpy(np.array(stored.keys_NLE[:, -1])).float()
    for start in tqdm(range(0, len(queries), _QUESTIONS), desc=f"questions searched, {_QUESTIONS} at once"):
        chosen = [queries_TE[:-2].float() for queries_TE in queries[start : start + _QUESTIONS]]
        # All landmarks against many questions at once: they are too many to be read anew for each.
        scores_QN = torch.stack([queries_TE.mean(0) for queries_TE in chosen]) @ landmarks_NE.T
        proposed_QP = scores_QN.topk(min(PROPOSED, len(landmarks_NE))).indices.numpy()
        for queries_TE, proposed_P in zip(chosen, proposed_QP, strict=True):
            keys_PLE = torch.from_numpy(stored.keys_NLE[proposed_P]).float()
            valid_PL = torch.from_numpy(stored.tokens_NL[proposed_P] != NO_TOKEN)
            mask_1T = torch.ones(1, len(queries_TE), dtype=torch.bool)
            scores_P = TokenCosines.of(queries_TE[None], mask_1T, keys_PLE).block_scores(valid_PL)[0]
            best = proposed_P[scores_P.argsort(descending=True)[:found].numpy()].astype(np.int32)
            yield np.concatenate((best, np.full(found - len(best), best[-1], np.int32)))
