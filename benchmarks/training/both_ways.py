"""A finder whose reading windows are causal and one whose windows see both ways, trained alike: same start, data, order
of the data, steps and losses (no next-token loss for either; the causal arm would be allowed one).

    python benchmarks/training/both_ways.py --data DATA --encoder FOLDER --out OUT --window causal|both [--steps 180]
    [--begin FOLDER --go-on] [--grader READER]
    python benchmarks/quality/retrieval_quality.py --data DATA --model OUT/model [--documents N]

The teaching phase of `default-model` in small batches; `--steps 0` writes the start itself, `--go-on` begins with the
weights of `--begin`, `--grader` adds graded targets. Prints machine, versions and seconds; OUT/teach/log.jsonl has the
losses of every tenth step.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import torch

from model.checkpoint.config import WINDOW_ATTENTION
from model.precision import fast_precision
from model.reading.second_look import load_second_look
from research.train.convert.init_from_encoder import Encoder
from research.train.data.batches.distillation_batches import DistillationShape
from research.train.data.encoder_frame import frame_of
from research.train.recipes.default_data import prepare
from research.train.recipes.default_model import FRAME_TOKENS, export, load_weights, start, teach
from research.train.recipes.default_recipe import Recipe

SHAPE = DistillationShape(rows=8, text_rows=3, questions=16)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=Path, required=True, help="folder with text/ and qa/")
    options.add_argument("--encoder", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--window", choices=WINDOW_ATTENTION, required=True)
    options.add_argument("--steps", type=int, default=180)
    options.add_argument("--rows", type=int, default=SHAPE.rows, help="rows of four blocks in a step")
    options.add_argument("--begin", type=Path, help="a folder of this recipe whose tokenizer is taken")
    options.add_argument("--go-on", action="store_true", help="begin with the weights of --begin, too")
    options.add_argument("--grader", type=Path, help="folder of a reader that grades what search finds")
    arguments = options.parse_args()
    if arguments.go_on and arguments.begin is None:
        options.error("--go-on needs --begin")
    torch.set_flush_denormal(True)
    print(machine.described(torch.get_num_threads()), flush=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    recipe = Recipe().reading_both_ways().in_precision(fast_precision(device))
    share = arguments.rows / SHAPE.rows
    recipe = replace(
        recipe,
        window_attention=arguments.window,
        text_characters=20_000_000,
        shape=replace(
            SHAPE,
            rows=arguments.rows,
            text_rows=round(SHAPE.text_rows * share),
            questions=round(SHAPE.questions * share),
        ),
        teaching=replace(
            recipe.teaching, steps=max(1, arguments.steps), max_seconds=None, compile=False, save_every=60
        ),
    )
    teacher = Encoder.load(arguments.encoder)
    prepared = prepare(arguments.data, arguments.out, recipe, arguments.begin)
    torch.manual_seed(0)
    model = start(prepared, recipe, teacher)
    frame_EE = model.backbone.model.layers[-1].self_attn.k_proj.weight.detach().clone()
    if arguments.go_on:
        load_weights(model, arguments.begin)
        frame_EE = frame_of(model, teacher, [ids[:FRAME_TOKENS] for ids in prepared.texts[: recipe.fitted_texts]])
    grader = None if arguments.grader is None else load_second_look(arguments.grader, torch.device(device))
    print(f"{arguments.window}: {len(prepared.texts)} texts, {len(prepared.questions.questions)} questions", flush=True)
    if not arguments.steps:
        export(model, arguments.out / "model")
        return
    began, processor = time.perf_counter(), time.process_time()
    result = teach(model.to(device), frame_EE, prepared, recipe, teacher.to(device), arguments.out, grader=grader)
    export(model, arguments.out / "model")
    seconds = time.perf_counter() - began
    print(f"{result}\n{seconds:.0f} s, {time.process_time() - processor:.0f} s of processor")


if __name__ == "__main__":
    main()
