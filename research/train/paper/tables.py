"""Tables of the paper, and of what it leaves open: which arms, evaluated how, written as text, JSON and a plot."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from model.attention.selection import Voters
from model.checkpoint.landmark_model import LandmarkModel
from research.train.evaluation.perplexity import perplexity_of, perplexity_scores
from research.train.evaluation.report import table
from research.train.paper.arms import Arm
from research.train.paper.open_questions import passages, passkey
from research.train.paper.runs import Experiment, Row, evaluate
from research.train.paper.sizes import ARMS

CHOICES: dict[str, Voters] = {"head and token": "token", "head": "head", "token": "all_heads"}
"""Who has a choice of blocks of its own, in the words of the paper's table 2."""
KEYS = (
    "arm", "choice", "passages", "stride", "read", "filler", "length", "local", "k", "blocks",
    "attended",
)  # fmt: skip
"""Columns that tell rows apart; the others are averaged over seeds."""


def language(experiment: Experiment, seeds: int) -> list[Row]:
    """The paper's table 1: perplexity by length, window, blocks kept and blocks read, with the tokens that a query
    attends to."""
    return _perplexities(experiment, "language", ARMS, seeds, grid=True)


def blocks(experiment: Experiment, seeds: int) -> list[Row]:
    """Open question 1: the size of a block."""
    return _perplexities(experiment, "blocks", [f"landmark-{size}" for size in experiment.size.block_sizes], seeds)


def choice(experiment: Experiment, seeds: int) -> list[Row]:
    """The paper's table 2: who chooses blocks."""
    size = experiment.size
    window = size.window // size.per_block - max(size.top_ks) - 1

    def score(arm: Arm, model: LandmarkModel) -> list[Row]:
        found: list[Row] = []
        for name, voters in CHOICES.items():
            scores = perplexity_scores(
                model, experiment.heldout(), lengths=size.lengths[1:], windows=[window], top_ks=size.top_ks,
                voters=voters,
            )  # fmt: skip
            for one in scores:
                found.append({"arm": arm.name, "choice": name, "length": one.length, "k": one.top_k, "loss": one.loss})
        return found

    return experiment.rows_of("choice", ["landmark"], seeds, score)


TABLES = {"language": language, "choice": choice, "blocks": blocks, "passages": passages, "passkey": passkey}


def _perplexities(
    experiment: Experiment, table: str, names: Sequence[str], seeds: int, *, grid: bool = False
) -> list[Row]:
    """Perplexity of these arms by length."""
    size = experiment.size

    def score(arm: Arm, model: LandmarkModel) -> list[Row]:
        tokens, top_ks = experiment.heldout(), (0, *size.top_ks)
        found = (evaluate(arm, model, tokens, n, top_ks, grid=grid) for n in size.lengths)
        return [row for rows in found for row in rows]

    return experiment.rows_of(table, names, seeds, score)


def summarise(rows: Sequence[Row]) -> list[Row]:
    """One row for all seeds: mean perplexity (or accuracy) and, from two seeds on, its standard deviation; of
    other figures the mean.

    `paired`, where a row has a loss: by how many nats it is above that of the first arm, for the same seed and length;
    with the standard error of this difference, which is smaller than that of either, since both read the same text."""
    rows = _paired(rows)
    merged: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        merged.setdefault(tuple(row.get(key) for key in KEYS), []).append(row)
    return [_merged(same) for same in merged.values()]


def _paired(rows: Sequence[Row]) -> list[Row]:
    """With `above`: the loss less that of the first arm's first row of the same seed and length."""
    first: dict[tuple[object, ...], float] = {}
    for row in rows:
        if "loss" in row and row["arm"] == rows[0]["arm"]:
            first.setdefault((row.get("seed"), row.get("length")), row["loss"])
    known = [(row, first.get((row.get("seed"), row.get("length")))) for row in rows]
    return [row if base is None or "loss" not in row else row | {"above": row["loss"] - base} for row, base in known]


def _merged(same: Sequence[Row]) -> Row:
    shown = {key: same[0][key] for key in KEYS if key in same[0]} | {"seeds": len(same)}
    if "milliseconds" in same[0]:
        shown["milliseconds"] = statistics.mean(row["milliseconds"] for row in same)
    if "loss" in same[0]:
        above = [row["above"] for row in same if "above" in row]
        shown["paired"] = statistics.mean(above) if above else None
        shown["paired_error"] = statistics.stdev(above) / len(above) ** 0.5 if len(above) > 1 else None
    name = measure(same[0])
    values = [row[name] if name in row else perplexity_of(row["loss"]) for row in same]
    spread = statistics.stdev(values) if len(values) > 1 else None
    return shown | {name: statistics.mean(values), "deviation": spread}


def measure(row: Row) -> str:
    """What a table is about."""
    return "accuracy" if "accuracy" in row else "perplexity"


def write_table(experiment: Experiment, name: str, rows: Sequence[Row]) -> Path:
    """NAME.json and NAME.svg in the folder of the experiment; prints the table."""
    summary = summarise(rows)
    print(table([row | {"deviation": "" if row["deviation"] is None else row["deviation"]} for row in summary]))
    file = experiment.folder / f"{name}.json"
    file.write_text(json.dumps({"table": name, "size": experiment.size.name, "rows": summary}, indent=1) + "\n")
    _plot(summary, file.with_suffix(".svg"), name)
    return file


def _plot(rows: Sequence[Row], file: Path, title: str) -> None:
    """Perplexity or accuracy by segment length, a line for each arm and k, with the deviation over seeds."""
    from matplotlib.figure import Figure  # behind an extra, and slow to load

    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    axes = figure.add_subplot(xlabel="raw tokens of a segment", ylabel=measure(rows[0]), title=title)
    lines: dict[str, list[Row]] = {}
    for row in rows:
        label = ", ".join(str(row[key]) for key in ("arm", "choice", "passages") if key in row)
        label += f", stride {row['stride']}" if "stride" in row else ""
        lines.setdefault(f"{label}, k={row['k']}" if row["arm"].startswith("landmark") else label, []).append(row)
    for label, points in lines.items():
        axes.errorbar(
            [row["length"] for row in points], [row[measure(row)] for row in points],
            yerr=[row["deviation"] or 0.0 for row in points], label=label, marker="o", capsize=3,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(file, format="svg")
