"""Evaluation runs: scores as JSON, and as a table for people."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.checkpoint.landmark_model import LandmarkModel
from research.train.data.documents import open_token_file, read_documents, single_token_file
from research.train.evaluation.passkey import PasskeyScore
from research.train.evaluation.perplexity import PerplexityScore

Score = PasskeyScore | PerplexityScore


def score_row(score: Score) -> dict[str, Any]:
    """A score as plain values, with the number it is about."""
    measure = "accuracy" if isinstance(score, PasskeyScore) else "perplexity"
    return asdict(score) | {measure: getattr(score, measure)}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Aligned columns, one line a row."""
    if not rows:
        return ""
    names = list(rows[0])
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def write_report(file: Path, kind: str, settings: Mapping[str, Any], scores: Iterable[Score]) -> None:
    """Settings and scores as one JSON file, which appears complete or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    report = {"kind": kind, "settings": dict(settings), "scores": [score_row(score) for score in scores]}
    unfinished = file.with_name(file.name + ".unfinished")
    unfinished.write_text(json.dumps(report, indent=1, default=str) + "\n", encoding="utf-8")
    unfinished.replace(file)


def _cell(value: Any) -> str:
    if value is None:
        return "all"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def report(kind: str, settings: Mapping[str, Any], scores: Iterable[Score], file: Path | None) -> None:
    """Print each score as it comes, then the table; write the file if one is given."""
    done: list[Score] = []
    for score in scores:
        done.append(score)
        print(json.dumps(score_row(score)), file=sys.stderr, flush=True)
    print(table([score_row(score) for score in done]))
    if file is not None:
        write_report(file, kind, settings, done)


def heldout_tokens(model: LandmarkModel, files: Sequence[Path]) -> NDArray[np.integer]:
    """Raw tokens of text files, joined by end-of-text, or of one token file."""
    if token_file := single_token_file(files):
        return open_token_file(token_file)
    eos = model.tokenizer.eos_token_id
    if eos is None:
        raise ValueError("The tokenizer has no end-of-text token, which separates documents; set its eos_token.")
    ids = [token for file in files for text in read_documents(file) for token in (*model.tokenize(text).ids, eos)]
    return np.asarray(ids, dtype=np.int64)
