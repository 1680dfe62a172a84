"""What a run learned, and how many tokens more it would take, as one page of Markdown."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from research.landmark_lm.evaluation import Figures
from research.train.engine.run_log import read_log

GOAL_F1_SHARE, GOAL_F1, GOAL_PASSKEY, GOAL_ERRORS, GOAL_SPEED = 0.9, 0.75, 0.95, -2.0, 100.0


@dataclass(frozen=True)
class Point:
    """Means over rows of one kind, up to a number of tokens."""

    tokens: int
    questions: int
    words: float
    first: float | None


def read_curve(log: Path, kind: str, *, points: int = 8) -> list[Point]:
    """The log's rows of one kind in `points` equal parts. Empty where there are fewer rows than points."""
    rows = [
        (line["tokens"], line["questions"], row)
        for line in read_log(log)
        for row in line["rows"]
        if row["kind"] == kind
    ]
    size, curve = len(rows) // points, []
    for part in range(points if size else 0):
        some = rows[part * size : (part + 1) * size]
        firsts = [row["first"] for *_, row in some if "first" in row]
        words = fmean(row["words"] for *_, row in some)
        curve.append(Point(some[-1][0], some[-1][1], words, fmean(firsts) if firsts else None))
    return curve


def tokens_until(curve: Sequence[Point], words: float) -> float | None:
    """Tokens at which the loss of words would fall to `words`, along a straight line in the logarithm of tokens fitted
    to the second half of the curve; None where the loss does not fall."""
    half = curve[len(curve) // 2 :]
    if len(half) < 2:
        return None
    x, y = [math.log(point.tokens) for point in half], [point.words for point in half]
    mean_x, mean_y = fmean(x), fmean(y)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)
    return math.exp(mean_x + (words - mean_y) / slope) if slope < 0 else None


@dataclass(frozen=True)
class Goal:
    """One row of the report."""

    what: str
    goal: str
    measured: str
    reached: bool

    def row(self) -> str:
        """As a row of a table."""
        return f"| {self.what} | {self.goal} | {self.measured} | {'yes' if self.reached else 'no'} |"


def goals(figures: Mapping[str, Figures]) -> list[Goal]:
    """What was asked for, beside what was measured."""
    rows = []
    for name, line in figures.items():
        if name.startswith("passkey"):
            said = f"{line['right']:.2f} of {line['prompts']:.0f} (without memory {line['right_without_memory']:.2f})"
            what = f"passkey over {line['tokens']:.0f} stored tokens"
            rows.append(Goal(what, f"{GOAL_PASSKEY}", said, line["right"] >= GOAL_PASSKEY))
    asked, text, times = figures["questions"], figures["text"], figures["time"]
    over, gold = asked["f1_memory"], asked["f1_gold_passage"]
    harmed = asked["f1_zeroed"], asked["f1_worst"]
    landmarks, bm25 = (f"{asked[f'{k}_first']:.3f} ({asked[f'{k}_among_8']:.3f})" for k in ("landmarks", "bm25"))
    perplexities = f"{text['perplexity_memory']:.2f}, {text['perplexity_window']:.2f}"
    errors, speed = text["difference_in_errors"], times["times_faster"]
    share = f"{GOAL_F1_SHARE} of gold passage alone"
    return [
        *rows,
        Goal(f"F1 over {asked['blocks']:.0f} blocks", share, f"{over:.3f} of {gold:.3f}", over >= GOAL_F1_SHARE * gold),
        Goal("F1 with the gold passage alone", f"{GOAL_F1}", f"{gold:.3f}", gold >= GOAL_F1),
        Goal("F1 zeroed, with the worst blocks", "halved", "{:.3f}, {:.3f}".format(*harmed), max(harmed) < over / 2),
        Goal("gold block first (among 8)", f"BM25: {bm25}", landmarks, asked["landmarks_first"] >= asked["bm25_first"]),
        Goal(
            "perplexity with memory, window only",
            "2 errors below",
            f"{perplexities} ({errors:+.1f} errors)",
            errors < GOAL_ERRORS,
        ),
        Goal(
            f"first token over {times['tokens']:.0f} stored tokens against reading them",
            f"{GOAL_SPEED:.0f} times",
            f"{speed:.0f} times ({times['first_token_s']:.2f} s)",
            speed >= GOAL_SPEED,
        ),
    ]


def write_report(folder: Path, figures: Mapping[str, Figures], *, words_goal: float = 0.5) -> str:
    """The page, also written to `folder`/report.md; `words_goal`: loss of words at which answers are mostly right."""
    lines = ["| what | goal | measured | reached |", "|---|---|---|---|", *(goal.row() for goal in goals(figures))]
    log = folder / "log.jsonl"
    for kind in ("questions", "passkeys", "copying", "text") if log.is_file() else ():
        if curve := read_curve(log, kind, points=6):
            lines += ["", f"Rows of {kind}:", "", *_curve_table(curve)]
            until = tokens_until(curve, words_goal)
            said = "not to be told, the loss does not fall" if until is None else f"{until:.2g}"
            lines += ["", f"Tokens until a loss of {words_goal}, along the second half of the curve: {said}."]
    page = "\n".join(lines) + "\n"
    (folder / "report.md").write_text(page, encoding="utf-8")
    return page


def _curve_table(curve: Sequence[Point]) -> list[str]:
    rows = ["| tokens | questions | loss of words | right block first |", "|---:|---:|---:|---:|"]
    for point in curve:
        first = "" if point.first is None else f"{point.first:.2f}"
        rows.append(f"| {point.tokens:,} | {point.questions:,} | {point.words:.2f} | {first} |")
    return rows
