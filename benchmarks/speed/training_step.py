"""Training step: landmark attention against plain causal attention, the same network, in one run.

    python benchmarks/speed/training_step.py [--compile] [--threads 2] [--tokens 512] [--steps 15]

Both sides run forward, backward and AdamW under bf16 autocast; both are eager or both compiled layer by layer; their
steps are interleaved. Prints tokens/s of both sides and their ratio (goal: 0.6), by wall clock and by the CPU time of
the process. Where others share the machine, the CPU time says more; give --threads 1 there.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from model.checkpoint.config import LandmarkConfig
from model.checkpoint.landmark_model import LandmarkModel
from research.train.engine.network import compile_layers, make_optimizer
from research.train.engine.settings import TrainingSettings
from research.train.losses.next_token import summed_cross_entropy
from research.train.recipes.pretrain import byte_tokenizer

BLOCK_SIZE = 64
VOCABULARY = 8192


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--compile", action="store_true", help="torch.compile both sides")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--steps", type=int, default=15, help="timed steps of each side")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    ids = torch.randint(0, VOCABULARY - 2, (given.rows, given.tokens + 1))
    ids[:, BLOCK_SIZE - 1 : -1 : BLOCK_SIZE] = VOCABULARY - 1
    sides = {"landmark": landmark_step(ids, given.compile), "causal": causal_step(ids, given.compile)}
    for step in sides.values():
        for _ in range(3):
            step()
    wall: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(given.steps):
        for name, step in sides.items():
            wall_before, cpu_before = time.perf_counter(), time.process_time()
            step()
            wall[name].append(time.perf_counter() - wall_before)
            cpu[name].append(time.process_time() - cpu_before)
    result = {
        **machine.described(given.threads),
        "parameters": sum(p.numel() for p in backbone().parameters()),
        "tokens": given.tokens * given.rows,
        "compiled": given.compile,
    }
    for kind, times in (("wall", wall), ("cpu", cpu)):
        medians = {name: statistics.median(values) for name, values in times.items()}
        for name, seconds in medians.items():
            result[f"{name}_tokens_per_second_{kind}"] = round(given.tokens * given.rows / seconds, 1)
        result[f"ratio_{kind}"] = round(medians["causal"] / medians["landmark"], 3)
    print(json.dumps(result) if given.json else "\n".join(f"{name:36} {value}" for name, value in result.items()))


def backbone() -> torch.nn.Module:
    """About 10 million parameters, deep and narrow (attention weighs more than in a wide network of that size)."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=10,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def landmark_step(ids: torch.Tensor, compiled: bool) -> Callable[[], None]:
    model = LandmarkModel(
        backbone(), byte_tokenizer(), LandmarkConfig(block_size=BLOCK_SIZE, landmark_token_id=VOCABULARY - 1)
    )
    return _step(model, lambda x: model.encode(x, model.context()), model.logits, ids, compiled)


def causal_step(ids: torch.Tensor, compiled: bool) -> Callable[[], None]:
    model = backbone()
    return _step(
        model, lambda x: model.model(input_ids=x, use_cache=False).last_hidden_state, model.lm_head, ids, compiled
    )


def _step(
    model: torch.nn.Module,
    encode: Callable[[torch.Tensor], torch.Tensor],
    head: Callable[[torch.Tensor], torch.Tensor],
    ids: torch.Tensor,
    compiled: bool,
) -> Callable[[], None]:
    model.train()
    if compiled:
        compile_layers(model)
    optimizer = make_optimizer(model, TrainingSettings(steps=1, learning_rate=1e-4, weight_decay=0.1))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            hidden = encode(ids[:, :-1])
            loss = summed_cross_entropy(head, hidden.flatten(0, 1), ids[:, 1:].flatten()) / ids[:, 1:].numel()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main()
