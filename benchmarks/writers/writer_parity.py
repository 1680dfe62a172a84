"""A writer over stored passages against itself reading them again: made facts, questions of one and of two hops.

    python benchmarks/writers/writer_parity.py --writer Qwen/Qwen2.5-0.5B-Instruct

Every way of reading answers the same questions over the same passages. Printed for each, by hops: the share of answers
that hold the right word, the share that are those of reading again word for word, how many of the words are (F1), and
how far the distributions of the next token are from those of reading again, along its answer (KL, in nats, the mean
over tokens). Prints a table and one JSON object.

Axes: Q tokens of an answer and its end, V vocabulary.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import made_facts
import torch

from model.checkpoint.load import load_chat_model
from model.inference.generate import Sampling
from model.inference.stored_prefix import AssembledPrompt, StoredSegment, read_question, read_segment, write_answer
from retrieval.writers.local import LoadedWriter, divergence, loaded_writer, word_f1

MOST_TOKENS = 24


@dataclass(frozen=True)
class Way:
    """How passages are read: the share repaired."""

    name: str
    share: float = 0.0


AGAIN = Way("read again (r = 1)", 1.0)
WAYS = (
    AGAIN,
    Way("stored, in sequence (r = 0)"),
    Way("repair r = 0.05", 0.05),
    Way("repair r = 0.1", 0.1),
    Way("repair r = 0.2", 0.2),
    Way("repair r = 0.3", 0.3),
    Way("repair r = 0.5", 0.5),
)


@dataclass(frozen=True, eq=False)
class Case:
    segments: Sequence[StoredSegment]
    question: made_facts.MadeQuestion


@dataclass(frozen=True, eq=False)
class Reply:
    text: str
    ids: Sequence[int]
    logprobs_QV: torch.Tensor
    """Along the answer of reading again."""


def cases(loaded: LoadedWriter, arguments: argparse.Namespace) -> Iterator[Case]:
    """One question of each number of hops for each set of passages."""
    rng = random.Random(arguments.seed)
    words = {kind: known[: arguments.words] for kind, known in made_facts.WORDS.items()}
    for _ in range(arguments.questions):
        made = made_facts.made_library(rng, arguments.pairs, arguments.facts, words)
        labels = rng.sample(range(100, 1000), len(made.passages))
        texts = [f"[{n}] {one.title}\n{one.text}\n\n" for n, one in zip(labels, made.passages, strict=True)]
        segments = [read_segment(loaded.model, loaded.prefix, loaded.model.tokenize(text)) for text in texts]
        kept = [loaded.memory.as_stored(segment) for segment in segments]
        for hops in (1, 2):
            yield Case(kept, next(question for question in made.questions if question.hops == hops))


def reply(loaded: LoadedWriter, case: Case, way: Way, instruction: str, along: Sequence[int] | None = None) -> Reply:
    """`along`: the tokens of reading again; None where these are made."""
    model = loaded.model
    suffix = model.suffix_ids(f"{instruction}\n\nQuestion: {case.question.text}")
    text = AssembledPrompt(model, loaded.prefix, case.segments, room=len(suffix) + MOST_TOKENS)
    output = read_question(text, suffix, way.share)
    pieces = list(write_answer(text, output, Sampling(max_tokens=MOST_TOKENS)))
    ids = [piece.id for piece in pieces if piece.id is not None]
    text.rewind()
    hidden_QE = text.feed([*suffix, *(ids if along is None else along)]).hidden_QE[len(suffix) - 1 :]
    return Reply("".join(piece.text for piece in pieces), ids, model.logits(hidden_QE).log_softmax(-1))


def measured(loaded: LoadedWriter, asked: Sequence[Case], instruction: str) -> dict[str, dict[str, float]]:
    """By way: right, same, f1 and kl of one and of two hops."""
    again = [reply(loaded, case, AGAIN, instruction) for case in asked]
    rows = {}
    for way in WAYS:
        replies = again
        if way is not AGAIN:
            replies = [reply(loaded, case, way, instruction, one.ids) for case, one in zip(asked, again, strict=True)]
        row: dict[str, float] = {}
        for hops in (1, 2):
            of = [n for n, case in enumerate(asked) if case.question.hops == hops]
            f1s = [word_f1(replies[n].text, again[n].text) for n in of]
            row[f"right_{hops}"] = mean([asked[n].question.answer.lower() in replies[n].text.lower() for n in of])
            row[f"same_{hops}"] = mean([f1 == 1 for f1 in f1s])
            row[f"f1_{hops}"] = mean(f1s)
            row[f"kl_{hops}"] = mean([_divergence(again[n], replies[n]) for n in of])
        rows[way.name] = {name: round(value, 4) for name, value in row.items()}
    return rows


def _divergence(again: Reply, other: Reply) -> float:
    """The mean over tokens."""
    return mean([divergence(p_V, q_V) for p_V, q_V in zip(again.logprobs_QV, other.logprobs_QV, strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--writer", required=True, help="a checkpoint's folder, or its name on the hub")
    parser.add_argument("--questions", type=int, default=100, help="of each number of hops")
    parser.add_argument("--pairs", type=int, default=4, help="half the number of passages")
    parser.add_argument("--facts", type=int, default=3, help="in each passage")
    parser.add_argument("--words", type=int, default=40, help="of each kind")
    parser.add_argument("--instruction", default="Answer briefly.")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        loaded = loaded_writer(load_chat_model(arguments.writer), Path(home))
        asked = list(cases(loaded, arguments))
        rows = measured(loaded, asked, arguments.instruction)
    print("| Way of reading | 1 hop: right | same | F1 | KL | 2 hops: right | same | F1 | KL |\n" + "|---" * 9 + "|")
    for name, row in rows.items():
        print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in row.values()) + " |")
    tokens = sum(len(segment.ids) for segment in asked[0].segments)
    print(json.dumps({**machine.described(), **vars(arguments), "passage_tokens": tokens, "ways": rows}))


if __name__ == "__main__":
    main()
