"""Rewrites a checkpoint in fewer bits: `python -m model.training fewer-bits --help`.

The finder's matrices and those of its reader are packed (`model.checkpoint.packed`); every other file stays as it is,
but for white space in tokenizers. Rounding knows the inputs of each matrix: some passages and questions of the training
sets are read first. Embeddings are looked up instead of multiplied, so they are rounded to the nearest step.

Axes: T tokens, I inputs of a matrix.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from model.checkpoint.int8 import WEIGHTS_FILE
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from model.checkpoint.packed.weights_file import KIND, Rule, to_packed
from model.inference.prefill import prefill
from model.inference.prompt import encode_prompt
from model.reading.rows import RowTokens, join_rows
from model.reading.second_look import FOLDER, WINDOW, SecondLook, load_second_look
from model.training.data.corpus import read_jsonl

FINDER = (Rule("", 6, 128), Rule("embed_tokens", 4, 32))
READER = (
    Rule("", 6, 128),
    Rule("word_embeddings", 4, 32),
    Rule("position", 8),
    Rule("token_type", 8),
    Rule("points.", 8),
)
Part = Literal["finder", "reader"]
EXAMPLES = 10
"""Passages that are read of each question set."""
SOURCES = ("squad11", "policyqa", "nq_openbook", "openstax_glossary", "factbook_templated", "medquad")
"""Question sets of which something is read."""
_APART = 40
"""Rows of a question set between two that are read: neighbours are often about the same passage."""


class Example(NamedTuple):
    question: str
    title: str
    passage: str


def rewrite(
    model: Path, out: Path, data: Path, rules: Mapping[Part, Sequence[Rule]], *, examples: int = EXAMPLES
) -> int:
    """Write the checkpoint in `model` to the new folder `out`, the parts named in `rules` in fewer bits; its bytes.

    `examples`: passages with a question to read of each question set in `data`. Raises ValueError if `out` exists,
    `ModelError` for a checkpoint that cannot be opened.
    """
    if out.exists():
        raise ValueError(f"{out} exists; name a folder that is to be made.")
    read = calibration_examples(data, examples)
    finder = load_backbone(model, device="cpu", dtype=torch.float32)
    shutil.copytree(model, out)
    if "finder" in rules:
        for file in out.glob("model*.safetensors*"):
            file.unlink()
        stored = to_packed(finder.backbone.state_dict(), rules["finder"], finder_products(finder, read))
        save_file(stored, out / WEIGHTS_FILE, metadata={"format": "pt"})
        config = json.loads((model / "config.json").read_text(encoding="utf-8")) | {"weights": KIND}
        (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    if "reader" in rules and (model / FOLDER).is_dir():
        look = load_second_look(model / FOLDER)
        stored = to_packed(look.reader.state_dict(), rules["reader"], reader_products(look, read))
        save_file(stored, out / FOLDER / WEIGHTS_FILE)
    for file in out.rglob("tokenizer.json"):
        text = json.dumps(json.loads(file.read_text(encoding="utf-8")), ensure_ascii=False, separators=(",", ":"))
        file.write_text(text, encoding="utf-8")
    return sum(file.stat().st_size for file in out.rglob("*") if file.is_file())


def rules_of(given: Sequence[str], default: Sequence[Rule]) -> Sequence[Rule]:
    """Rules from "6", for all matrices, "embed=4", for those with "embed" in their name, or "embed=4/32", with a scale
    for every 32 columns; the default if none are given. Raises ValueError for anything else."""
    rules = []
    for text in given:
        part, _, form = text.rpartition("=")
        bits, slash, group = form.partition("/")
        if not bits.isdecimal() or (slash and not group.isdecimal()):
            raise ValueError(f"{text!r} is no number of bits; give 6, or embed=4 or embed=4/32 for some matrices.")
        rules.append(Rule(part, int(bits), int(group)) if slash else Rule(part, int(bits)))
    return rules or default


def calibration_examples(data: Path, count: int, sources: Sequence[str] = SOURCES) -> list[Example]:
    """`count` of each question set. Raises ValueError if there are none."""
    files = [data / "qa" / f"{source}.train.jsonl.xz" for source in sources]
    rows = [row for file in files if file.is_file() for row in islice(read_jsonl(file), 0, count * _APART, _APART)]
    if not rows:
        raise ValueError(f"{data / 'qa'} holds none of {', '.join(file.name for file in files)}.")
    return [Example(row["question"], row.get("context_title") or "", row["context"]) for row in rows]


@torch.no_grad()
def finder_products(model: LandmarkModel, examples: Sequence[Example]) -> dict[str, Tensor]:
    """Products of the inputs of the finder's matrices while it reads passages, in whole blocks, and questions."""
    with _collected(model.backbone) as products:
        for each in examples:
            ids = model.tokenize(each.passage).ids
            for _ in prefill(model, ids[: len(ids) - len(ids) % model.config.tokens_per_block]):
                pass
            encode_prompt(model, model.prompt(each.question).ids)
    return products


@torch.no_grad()
def reader_products(look: SecondLook, examples: Sequence[Example]) -> dict[str, Tensor]:
    """Products of the inputs of the reader's matrices."""
    tokens = RowTokens.of(look.tokenizer)
    with _collected(look.reader) as products:
        for each in examples:
            asked, title, passage = (look.tokenizer.encode(text, add_special_tokens=False).ids for text in each)
            look.reader(*join_rows([(asked, title, passage[:WINDOW])], 1, tokens).inputs())
    return products


@contextmanager
def _collected(network: nn.Module) -> Iterator[dict[str, Tensor]]:
    """By a matrix's name products_II: the sum over all tokens, from now on, of its inputs' outer products."""
    products: dict[str, Tensor] = {}

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def add(_: nn.Module, given: tuple[Tensor, ...], __: Any) -> None:
            inputs_TI = given[0].flatten(0, -2).float()
            products[name] = products.get(name, torch.zeros(())) + inputs_TI.T @ inputs_TI

        return add

    hooks = [
        part.register_forward_hook(hook(f"{name}.weight"))
        for name, part in network.named_modules()
        if isinstance(part, nn.Linear)
    ]
    try:
        yield products
    finally:
        for each in hooks:
            each.remove()
