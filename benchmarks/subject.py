"""What the benchmarks run on: a checkpoint, and text to read."""

from __future__ import annotations

import argparse
import copy
import json
import lzma
import random
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone

WORDS = """time year people way day man thing woman life child world school state family student group country problem
hand part place case week company system program question work government number night point home water room mother"""
DEFAULT = ROOT / "model" / "default"


def options(description: str, *, threads: int | None = None) -> argparse.ArgumentParser:
    """A parser of a benchmark about a model: `--model` and `--threads` (default: what torch takes, or `threads`)."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--model", help="a checkpoint's folder; default: the shipped one")
    parser.add_argument("--threads", type=int, default=threads or torch.get_num_threads())
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments. Sets the number of threads that torch computes with to `--threads`."""
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    return arguments


def load(path: str | None) -> LandmarkModel:
    """The checkpoint at `path`, else the shipped one."""
    return load_backbone(path or DEFAULT, device="cpu", dtype=torch.float32)


def plain_twin(model: LandmarkModel) -> PreTrainedModel:
    """The same weights as an ordinary Hugging Face model with its fastest attention."""
    config = copy.deepcopy(model.backbone.config)
    twin = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=model.dtype)
    twin.load_state_dict(model.backbone.state_dict())
    return twin.eval()


def text_of(model: LandmarkModel, num_tokens: int, seed: int = 0) -> str:
    """Sentences of common words, `num_tokens` long for this model's tokenizer (to within a sentence)."""
    rng = random.Random(seed)
    words = WORDS.split()
    per_sentence = len(model.tokenize("The year moves the people near water 500. ").ids)
    sentences = []
    for _ in range(2 * num_tokens // per_sentence):
        one, two, three = rng.sample(words, 3)
        sentences.append(f"The {one} moves the {two} near {three} {rng.randrange(1000)}. ")
    text = "".join(sentences)
    tokens = model.tokenize(text)
    return text if len(tokens.ids) <= num_tokens else text[: int(tokens.ends[num_tokens - 1])]


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON lines file, packed with xz or not."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]
