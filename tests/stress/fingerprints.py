"""Fourteen ways in which a model or its memory can differ: is each refused before a word, by the name of what differs?

    python tests/stress/fingerprints.py

A library is made with one model and opened with another that differs in a single thing. `search`, `ask` and handing in
a file must all be refused, and the message must name that thing. The same model, made anew or saved and loaded, must be
accepted. Prints one JSON object; exit status 1 otherwise.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from retrieval.errors import MemoryMismatch
from retrieval.extraction import extract
from retrieval.library import Library
from storage.kv.format import KVLayout
from tests.retrieval.conftest import prose
from tests.retrieval.reading_here import ReadingHere
from tests.tiny_model import FAMILIES, tiny_model

SETTINGS = {"block_size": 16, "window_blocks": 4, "context_blocks": 2}
QUESTION = "What does the keeper of the tower carry?"


def same(**changes: object) -> LandmarkModel:
    return tiny_model(**{**SETTINGS, **changes})  # type: ignore[arg-type]


def one_step_of_one_weight() -> LandmarkModel:
    """The smallest change that a float can have."""
    model = same()
    with torch.no_grad():
        numbers = list(model.backbone.parameters())[3].view(-1)
        numbers[5] = torch.nextafter(numbers[5], torch.tensor(9.0))
    return model


def adapter() -> LandmarkModel:
    """A low-rank change of one layer, merged, as fine-tuning with LoRA leaves it."""
    model = same()
    with torch.no_grad():
        weight = model.backbone.model.layers[1].self_attn.k_proj.weight
        weight += 1e-4 * torch.ones(len(weight), 1) @ torch.ones(1, weight.shape[1])
    return model


def two_rows_swapped() -> LandmarkModel:
    """The same numbers, elsewhere."""
    model = same()
    with torch.no_grad():
        weight = model.backbone.model.embed_tokens.weight
        weight[[10, 11]] = weight[[11, 10]]
    return model


def with_rope(**rope: object) -> LandmarkModel:
    name = "other rope"
    config = type(FAMILIES["llama"])(**{**FAMILIES["llama"].to_dict(), "rope_parameters": rope})
    FAMILIES[name] = config
    try:
        return same(family=name)
    finally:
        del FAMILIES[name]


def with_tokenizer(change: Callable[[dict], None]) -> LandmarkModel:
    model = same()
    content = json.loads(model.tokenizer.backend_tokenizer.to_str())
    change(content)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(content)))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<landmark>"]})
    model.tokenizer = tokenizer
    return model


def merge(content: dict) -> None:
    content["model"]["vocab"]["th"] = len(content["model"]["vocab"]) + 8
    content["model"]["merges"] = [["t", "h"]]


def other_landmark() -> LandmarkModel:
    model = same()
    object.__setattr__(model.config, "landmark_token_id", model.config.landmark_token_id - 1)
    return model


@contextmanager
def format_version(number: int) -> Iterator[None]:
    before = KVLayout.format_version
    KVLayout.format_version = property(lambda _layout: number)  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        KVLayout.format_version = before  # type: ignore[method-assign]


MUTATIONS: dict[str, tuple[str, Callable[[], LandmarkModel]]] = {
    "one weight by one step": ("weights", one_step_of_one_weight),
    "a merged adapter": ("weights", adapter),
    "two rows swapped": ("weights", two_rows_swapped),
    "another seed": ("weights", lambda: same(seed=2)),
    "a merge of the tokenizer": ("tokenizer", lambda: with_tokenizer(merge)),
    "a normalisation of the tokenizer": (
        "tokenizer",
        lambda: with_tokenizer(lambda content: content.update(normalizer={"type": "Lowercase"})),
    ),
    "the base of the rotation": ("rope", lambda: with_rope(rope_type="default", rope_theta=20000.0)),
    "a scaling of the rotation": ("rope", lambda: with_rope(rope_type="linear", rope_theta=10000.0, factor=2.0)),
    "the block size": ("block_size", lambda: same(block_size=8)),
    "the landmark token": ("landmark_token_id", other_landmark),
    "the memory layers": ("memory_layers", lambda: same(memory_layers=(2,))),
    "the window of reading": ("prefill", lambda: same(window_blocks=8)),
}


def refusal(home: Path, path: Path, model: LandmarkModel, kv_dtype: str = "bf16") -> str | None:
    """What every use says; None if one of them works."""
    with Library.open(home, model, kv_dtype=kv_dtype, shard_bytes=20_000) as library:
        said = ""
        uses = (
            lambda: library.search(QUESTION, 2),
            lambda: next(library.ask(QUESTION)),
            lambda: library.documents.submit(path),
        )
        for use in uses:
            try:
                use()
            except MemoryMismatch as error:
                said = str(error)
            else:
                return None
        return said


def main() -> int:
    torch.set_num_threads(1)
    extract.SANDBOX = ReadingHere()
    began = time.monotonic()
    violations, refused, accepted = [], [], []
    with tempfile.TemporaryDirectory(prefix="cairn-prints-") as folder:
        home, path, other = Path(folder) / "home", Path(folder) / "a.txt", Path(folder) / "b.txt"
        path.write_text(prose(1, 800))
        other.write_text(prose(2, 300))
        with Library.open(home, same(), shard_bytes=20_000) as library:
            assert library.jobs.run(library.documents.submit(path).id).state == "done"

        def expect(kind: str, field: str, said: str | None) -> None:
            refused.append(kind)
            if said is None or f"{field} differs" not in said:
                violations.append(f"{kind}: {said}")

        for kind, (field, make) in MUTATIONS.items():
            expect(kind, field, refusal(home, other, make()))
        expect("the number format", "kv_dtype", refusal(home, other, same(), kv_dtype="int8"))
        with format_version(99):
            expect("the version of the format", "format_version", refusal(home, other, same()))
        same().save(Path(folder) / "saved")
        for kind, make in {
            "made anew": same,
            "saved and loaded": lambda: load_backbone(Path(folder) / "saved"),
        }.items():
            accepted.append(kind)
            if refusal(home, other, make()) is not None:
                violations.append(f"{kind}: refused")
    seconds = round(time.monotonic() - began, 1)
    result = {"refused": refused, "accepted": accepted, "violations": violations, "seconds": seconds}
    print(json.dumps({**machine.described(1), **result}))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
