"""A local writer with its matrices in 8 or 4 bits against the same writer as its checkpoint has them.

    python benchmarks/writers/writer_weights.py --writer Qwen/Qwen2.5-0.5B-Instruct

Twelve built-in prompts (those of the guard) are read, and the answer of the unrounded writer is read behind them. For
each kind: bytes of all weights, processor seconds to read a prompt and to write a token, how often the next token is
the one of the unrounded writer, and how far its distribution is from it (KL, nats a token). Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import torch

from model.checkpoint.chat.chat_model import ChatModel
from model.checkpoint.load import load_chat_model
from model.inference.reuse.assembled_text import AssembledText
from model.inference.reuse.segments import read_prefix
from retrieval.writers.local.guard import INSTRUCTION, built_in

TOKENS = 16


@dataclass(frozen=True, eq=False)
class Reading:
    """Of one prompt: the tokens that follow, each token's distribution, and processor seconds."""

    ids: list[int]
    logprobs_TV: torch.Tensor
    prompt_seconds: float
    token_seconds: float


def read(model: ChatModel, passages: Sequence[str], question: str, following: Sequence[int] | None) -> Reading:
    """Read a prompt whole; then write greedily, or read what another writer wrote."""
    suffix = model.suffix_ids(f"{INSTRUCTION}\n\nQuestion: {question}")
    texts = [model.tokenize(passage) for passage in passages]
    text = AssembledText(model, read_prefix(model), texts, room=len(suffix) + TOKENS)
    began = time.process_time()
    text.read_again()
    fed = text.feed(suffix)
    read_at = time.process_time()
    ids: list[int] = []
    rows: list[torch.Tensor] = []
    while True:
        rows.append(model.logits(fed.hidden_QE[-1]).log_softmax(-1))
        ids.append(int(rows[-1].argmax()) if following is None else following[len(ids)])
        if len(ids) == (TOKENS if following is None else len(following)):
            break
        fed = text.feed([ids[-1]])
    token_seconds = (time.process_time() - read_at) / max(1, len(ids) - 1)
    return Reading(ids, torch.stack(rows), read_at - began, token_seconds)


def bytes_of(model: ChatModel) -> int:
    """Of all weights, in whatever tensors they are kept."""
    total = 0
    for weight in model.backbone.parameters():
        inner = getattr(weight, "qdata", None)
        kept = [inner, weight.scale] if inner is not None else [weight]
        state = getattr(weight, "quant_state", None)
        kept += [state.absmax] if state is not None else []
        total += sum(tensor.numel() * tensor.element_size() for tensor in kept)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--writer", required=True, help="a checkpoint's folder, or its name on the hub")
    parser.add_argument("--dtype", help="of the unrounded weights; the default of the device if it is left out")
    parser.add_argument("--kinds", nargs="*", default=["int8", "nf4"])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    asked = [
        ([f"[{number}01] {title}\n{text}\n\n" for number, (title, text) in enumerate(passages, 1)], question.text)
        for passages, questions in built_in()
        for question in questions
    ]
    rows: dict[str, dict[str, float]] = {}
    first: list[Reading] = []
    for kind in (None, *arguments.kinds):
        model = load_chat_model(arguments.writer, dtype=arguments.dtype, few_bits=kind)
        read(model, *asked[0], None)  # packages prepare weights in their first pass
        readings = [read(model, *one, first[n].ids if first else None) for n, one in enumerate(asked)]
        first = first or readings
        pairs = [(one.logprobs_TV, other.logprobs_TV) for one, other in zip(readings, first, strict=True)]
        same = torch.cat([(one.argmax(-1) == other.argmax(-1)).float() for one, other in pairs])
        apart = torch.cat([(other.exp() * (other - one)).sum(-1) for one, other in pairs])
        rows[kind or "unrounded"] = {
            "weights_megabytes": round(bytes_of(model) / 1e6, 1),
            "prompt_processor_seconds": round(sum(one.prompt_seconds for one in readings) / len(readings), 3),
            "token_processor_seconds": round(sum(one.token_seconds for one in readings) / len(readings), 4),
            "same_next_token": round(float(same.mean()), 4),
            "kl": round(float(apart.mean()), 4),
        }
        del model
    print(json.dumps({**machine.described(arguments.threads), **vars(arguments), "kinds": rows}))


if __name__ == "__main__":
    main()
