"""Is what is shown of attention true? Attention by block against what leaving the block out does to the answer.

    python benchmarks/quality/evidence.py --model MODEL [--documents 24] [--sentences 250] [--k 4] [--max-tokens 7]

Documents with a pass key are stored and asked about; a language model with landmarks answers, for each token of each
head by itself. Every block that got attention (at most 12 an answer) is left out of the softmax once, which is the
truth. The weights of heads are fitted on the first half of the answers, and three figures are of the other half, for
the fitted weights, for the plain mean over heads, and at random:

- rank: Spearman correlation of attention and effect over the blocks of an answer, mean over answers;
- drop: by how many nats the answer becomes less likely without its best 1, 3 and 5 blocks together;
- cited: share of answers whose best block holds digits of the key.

`side by side`: time of leaving out several blocks in one pass, in units of that of one pass each, median of five.

`shown`: passages are shown where leaving out the block read most did more than leaving out three others; of right
answers, and of wrong ones.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine

from model.checkpoint.load import load_backbone
from research.evidence_weights import fit_evidence_weights
from retrieval.library import Library
from retrieval.query.answer_generator import READ_AT_ONCE, AnswerGenerator
from retrieval.query.question import Question
from retrieval.types.answers import Answer
from retrieval.types.records import Scope
from tests.mission.passkey_model import QUESTION, text_with_key

MOST_BLOCKS = 12
TOGETHER = (1, 3, 5)


@dataclass(frozen=True)
class Measured:
    """One answer. Of each block that it read: attention by layer and head, effect (nats), whether it holds digits of
    the key; `without_each`: the effect of leaving out each of several groups. `right`: whether the answer is the key.
    `shown`: whether the passages read would be shown, as leaving out the block read most had the largest effect."""

    mass_NYH: Tensor
    effects_N: Tensor
    holds_N: Sequence[bool]
    without_each: Callable[[Sequence[Sequence[int]]], list[float]]
    right: bool
    shown: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a landmark language model that says pass keys")
    parser.add_argument("--documents", type=int, default=24)
    parser.add_argument("--sentences", type=int, default=250, help="of filler in a document at most")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=7, help="of an answer; more for one in whole sentences")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Library.open(Path(folder) / "home", load_backbone(given.model)) as library,
    ):
        measured = answers(library, Path(folder), given)
        fitted_YH, rows = compared(measured)
        side_by_side = statistics.median(time_side_by_side(measured[-1]) for _ in range(5))
    result = {
        "machine": machine.described(),
        "answers": len(measured),
        "right": sum(one.right for one in measured),
        "shown of right": sum(one.shown for one in measured if one.right),
        "shown of wrong": sum(one.shown for one in measured if not one.right),
        "side by side": round(side_by_side, 3),
        "weights": fitted_YH.tolist(),
        **rows,
    }
    print(json.dumps(result, indent=1))
    if given.out:
        given.out.write_text(json.dumps(result, indent=1))


def time_side_by_side(one: Measured) -> float:
    """Relative time of all rows that an answer's evidence takes."""
    seconds = []
    for rows in (READ_AT_ONCE, 1):
        with patch("retrieval.query.answer_generator.READ_AT_ONCE", rows):
            began = time.perf_counter()
            one.without_each([[number] for number in range(min(READ_AT_ONCE - 1, len(one.effects_N)))])
            seconds.append(time.perf_counter() - began)
    return seconds[0] / seconds[1]


def compared(measured: Sequence[Measured]) -> tuple[Tensor, dict[str, dict[str, Any]]]:
    """Weights fitted on the first half of the answers, and the figures of the others by way of scoring blocks."""
    half = len(measured) // 2
    fitted_YH = fit_evidence_weights(
        torch.cat([one.mass_NYH for one in measured[:half]]), torch.cat([one.effects_N for one in measured[:half]])
    )
    rng = torch.Generator().manual_seed(0)
    ways: dict[str, Callable[[Measured], Tensor]] = {
        "fitted": lambda one: (one.mass_NYH * fitted_YH).sum((1, 2)),
        "mean": lambda one: one.mass_NYH.sum((1, 2)),
        "random": lambda one: torch.rand(len(one.effects_N), generator=rng),
    }
    return fitted_YH, {name: figures(measured[half:], way) for name, way in ways.items()}


def answers(library: Library, folder: Path, given: argparse.Namespace) -> list[Measured]:
    rng, measured, k = random.Random(11), [], given.k
    for number in range(given.documents):
        text, key = text_with_key(rng, given.sentences)
        file = folder / f"{number}.txt"
        file.write_text(text)
        job = library.jobs.run(library.documents.submit(file).id)
        assert job.state == "done" and job.document_id is not None, job.error
        within, most = Scope((job.document_id,)), given.max_tokens
        *_, answer = library.ask(QUESTION, within=within, k=k, max_tokens=most, voters="token")
        assert isinstance(answer, Answer)
        measured.append(measured_of(library, answer, text, key, k))
    return measured


def measured_of(library: Library, answer: Answer, text: str, key: int, k: int) -> Measured:
    workspace, index = library.view.workspace, library.view.index
    model, scope = workspace.loaded().model, Scope.from_dict(answer.settings["scope"])
    question = Question(text=answer.question, k=k, voters="token", scope=scope)
    ids = list(answer.heat)[:MOST_BLOCKS]
    rows = workspace.catalogue.blocks_by_id(ids)
    at = text.index(f"The pass key is {key}")
    stated = range(at, at + len(f"The pass key is {key}. Remember it. {key}"))
    prompt = model.prompt(answer.settings["asked"]).ids
    with index.open_snapshot(workspace.catalogue) as snapshot:
        indices = snapshot.indices_of(scope.document_ids).tolist()
        blocks = [indices.index(int(snapshot.indices_of_blocks([one])[0])) for one in ids]

    def effects(groups: Sequence[Sequence[int]]) -> list[float]:
        """Nats by which the answer becomes less likely without each group of blocks."""
        left_out = [tuple(sorted(blocks[number] for number in group)) for group in groups]
        with index.open_snapshot(workspace.catalogue) as snapshot:
            memory = snapshot.reader(torch.tensor(indices))
            generator = AnswerGenerator(workspace, index, question)
            _, found = generator.effects(prompt, answer.settings["token_ids"], memory, left_out)
        return [-found[group] for group in left_out]

    return Measured(
        torch.tensor([answer.heat[one] for one in ids]),
        torch.tensor(effects([[number] for number in range(len(ids))])),
        [rows[one].start < stated.stop and stated.start < rows[one].end for one in ids],
        effects,
        str(key) in answer.text,
        answer.check is not None and answer.check.decided,
    )


def figures(measured: Sequence[Measured], way: Callable[[Measured], Tensor]) -> dict[str, Any]:
    ranks, cited, drops = [], [], {count: list[float]() for count in TOGETHER}
    for one in measured:
        scores_N = way(one)
        order = scores_N.argsort(descending=True).tolist()
        if len(order) > 2:
            ranks.append(spearman(scores_N, one.effects_N))
        cited.append(one.holds_N[order[0]])
        for count in TOGETHER:
            drops[count] += one.without_each([order[:count]])
    return {
        "rank": round(fmean(ranks), 3),
        "drop": {count: round(fmean(values), 2) for count, values in drops.items()},
        "cited": round(fmean(cited), 3),
    }


def spearman(one_N: Tensor, other_N: Tensor) -> float:
    ranks = torch.stack([each.argsort().argsort().double() for each in (one_N, other_N)])
    return float(torch.corrcoef(ranks)[0, 1])


if __name__ == "__main__":
    main()
