"""Token states of a frozen encoder, computed once and kept on disk.

A text is encoded alone, so its states are the same whatever is asked about it. `StateCache` keeps them in shards; each
shard appears when it is complete, so an interrupted run goes on where it stopped. States are kept in float16: what
fewer bits cost is for the reader's training to find out (`model.scoring.span_reader.quantise`).

Axes: N tokens of all texts of a shard, T tokens of one text, S states of a token (layers, or keys and values),
E width of a state, B texts in a batch.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from model.checkpoint.landmark_model import LandmarkModel
from model.inference.prefill import prefill_batch

SHARD_TEXTS = 256
_BATCH = 16


@dataclass(frozen=True)
class TokenStates:
    """One encoded text: states_TSE (float16), where its tokens stand in it (offsets_T2, characters), and their ids."""

    states_TSE: Tensor
    offsets_T2: Tensor
    ids_T: Tensor


class StateEncoder(Protocol):
    """What encodes texts one by one."""

    @property
    def identity(self) -> str:
        """Names the encoder, its weights and the states it gives."""

    def encode(self, texts: Sequence[str], *, questions: bool) -> Iterator[TokenStates]:
        """The states of each text, in order."""


class BidirectionalStates:
    """Hidden states of some layers of a BERT-like encoder from a folder; special tokens are left out."""

    def __init__(self, folder: Path, layers: Sequence[int], *, longest: int = 512) -> None:
        self._network: Any = AutoModel.from_pretrained(folder, local_files_only=True).eval()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._layers, self._longest = tuple(layers), longest
        self.identity = f"{self._network.config.model_type} {folder.name} layers {list(layers)}"

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], *, questions: bool) -> Iterator[TokenStates]:
        batch = self._tokenizer(
            list(texts),
            padding=True,
            truncation=True,
            max_length=self._longest,
            return_offsets_mapping=True,
            return_tensors="pt",
        )
        offsets_BT2 = batch.pop("offset_mapping")
        hidden = self._network(**batch, output_hidden_states=True).hidden_states
        states_BTSE = torch.stack([hidden[layer] for layer in self._layers], 2).half()
        real_BT = offsets_BT2[..., 1] > offsets_BT2[..., 0]
        for row, real_T in enumerate(real_BT):
            ids_T = batch["input_ids"][row, real_T]
            yield TokenStates(states_BTSE[row, real_T], offsets_BT2[row, real_T].int(), ids_T.int())


class LandmarkStates:
    """What the memory of a landmark checkpoint holds of a text: keys and values of its last memory layer (S = 2), each
    token knowing what it saw when it was read. Of a question: its queries, twice."""

    def __init__(self, model: LandmarkModel) -> None:
        self._model = model
        self.identity = f"landmark {json.dumps(model.identity(), sort_keys=True)}"

    def encode(self, texts: Sequence[str], *, questions: bool) -> Iterator[TokenStates]:
        return map(self._question, texts) if questions else self._texts(texts)

    def _texts(self, texts: Sequence[str]) -> Iterator[TokenStates]:
        ids = [list(self._model.tokenize(text).ids) for text in texts]
        read: list[list[Tensor]] = [[] for _ in texts]
        for row, block in prefill_batch(self._model, ids):
            both_SGLD = torch.stack((block.keys_YGLD[-1], block.values_YGLD[-1]))[:, :, : block.num_tokens]
            read[row].append(both_SGLD.permute(2, 0, 1, 3).flatten(2).half())
        for blocks, ids_T in zip(read, ids, strict=True):
            yield TokenStates(torch.cat(blocks), self._offsets(ids_T), torch.tensor(ids_T, dtype=torch.int32))

    @torch.no_grad()
    def _question(self, text: str) -> TokenStates:
        ids = list(self._model.tokenize(text).ids)
        prompt = self._model.prompt_of(ids)
        asked = torch.tensor([list(prompt.ids)], device=self._model.device)
        queries_HTD = self._model.search_queries(asked)[self._model.memory_layers[-1]][0, :, prompt.question]
        queries_TE = queries_HTD.transpose(0, 1).flatten(1).float()
        queries_TE = (queries_TE * self._model.head_dim**0.5).half()  # of the size of keys: without attention's scaling
        states_TSE = queries_TE[:, None].expand(-1, 2, -1).contiguous()
        return TokenStates(states_TSE.cpu(), self._offsets(ids), torch.tensor(ids, dtype=torch.int32))

    def _offsets(self, ids: list[int]) -> Tensor:
        ends_T = torch.tensor(self._model.token_text.ends(ids), dtype=torch.int32)
        return torch.stack((torch.cat((ends_T.new_zeros(1), ends_T[:-1])), ends_T), 1)


class StateCache:
    """States of texts in a folder; `get` reads from mapped files, so several processes share the memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._place: dict[str, tuple[int, int]] = {}
        self._shards: list[dict[str, Tensor]] = []
        for file in sorted(folder.glob("shard-*.safetensors")):
            self._load(file)

    def __contains__(self, text: str) -> bool:
        return _digest(text) in self._place

    @property
    def width(self) -> int:
        """Width of one state. Raises ValueError for a cache that holds none."""
        if not self._shards:
            raise ValueError(f"{self.folder} holds no states; run `span-reader states` first.")
        return self._shards[0]["states"].shape[-1]

    def get(self, text: str) -> TokenStates:
        """The states of a text. Raises KeyError if it was not added."""
        shard, row = self._place[_digest(text)]
        tensors = self._shards[shard]
        begin, end = tensors["begin"][row : row + 2].tolist()
        return TokenStates(*(tensors[name][begin:end] for name in ("states", "offsets", "ids")))

    def add(self, encoder: StateEncoder, texts: Sequence[str], *, questions: bool = False) -> Iterator[int]:
        """Encode the texts that are missing, shard by shard; yields how many are left after each. Raises ValueError if
        the folder holds states of another encoder."""
        self._bind(encoder.identity)
        missing = [text for text in dict.fromkeys(texts) if text not in self]
        for start in range(0, len(missing), SHARD_TEXTS):
            self._write(encoder, missing[start : start + SHARD_TEXTS], questions)
            yield max(0, len(missing) - start - SHARD_TEXTS)

    def _bind(self, identity: str) -> None:
        note = self.folder / "encoder.txt"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not note.exists():
            note.write_text(identity)
        elif note.read_text() != identity:
            raise ValueError(f"{self.folder} holds states of {note.read_text()!r}, not of {identity!r}; use another.")

    def _write(self, encoder: StateEncoder, texts: list[str], questions: bool) -> None:
        texts = sorted(texts, key=len)
        encoded = [
            each
            for start in range(0, len(texts), _BATCH)
            for each in encoder.encode(texts[start : start + _BATCH], questions=questions)
        ]
        lengths = [len(each.ids_T) for each in encoded]
        tensors = {
            "states": torch.cat([each.states_TSE for each in encoded]),
            "offsets": torch.cat([each.offsets_T2 for each in encoded]),
            "ids": torch.cat([each.ids_T for each in encoded]),
            "begin": torch.from_numpy(np.cumsum([0, *lengths])),
            "digests": torch.tensor([list(bytes.fromhex(_digest(text))) for text in texts], dtype=torch.uint8),
        }
        half = self.folder / "part.tmp"
        save_file(tensors, half)
        file = self.folder / f"shard-{len(self._shards):05d}.safetensors"
        half.rename(file)
        self._load(file)

    def _load(self, file: Path) -> None:
        tensors = load_file(file)
        for row, digest in enumerate(tensors["digests"].numpy()):
            self._place[digest.tobytes().hex()] = (len(self._shards), row)
        self._shards.append(tensors)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
