"""What `python -m research.train paper` does: one of the paper's tables, or of its open questions."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from research.train.paper.runs import Experiment, experiment_texts, experiment_tokenizer
from research.train.paper.sizes import SIZES
from research.train.paper.tables import TABLES, write_table

TableName = Literal["language", "choice", "blocks", "passages", "passkey"]
SizeName = Literal["tiny", "minutes", "small", "paper"]


def reproduce(
    name: TableName,
    data: Sequence[str],
    out: Path,
    heldout: Sequence[str],
    *,
    size: SizeName,
    rate: float | None,
    seeds: int,
    tokenizer: str,
    encoder: Path | None,
    device: str | None,
) -> None:
    """Make a table, or what is left to do of it, in a folder. Raises ValueError for data that do not suffice.

    `rate`: the learning rate of all arms, which are then not compared at several."""
    if rate is not None and not rate > 0:
        raise ValueError(f"A learning rate is above 0, not {rate:g}.")
    of_size = SIZES[size] if rate is None else replace(SIZES[size], name=f"{size} at rate {rate:g}", rates=(rate,))
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    experiment = Experiment(out, of_size, experiment_tokenizer(tokenizer, data, out), chosen, encoder)
    experiment.prepare(*experiment_texts(data, heldout, of_size))
    print(write_table(experiment, name, TABLES[name](experiment, seeds)))
