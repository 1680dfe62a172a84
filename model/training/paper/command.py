"""`python -m model.training paper`: one of the paper's tables, or of its open questions, by one command."""

from pathlib import Path
from typing import Annotated, Literal

import torch
import typer

from model.training.paper.made_sets import MADE_SETS
from model.training.paper.runs import Experiment, experiment_texts, experiment_tokenizer, made_set
from model.training.paper.sizes import SIZES
from model.training.paper.tables import TABLES, write_table

TableName = Literal[
    "language", "choice", "blocks", "positions", "cache", "passages", "placement", "miss", "passkey"
]  # fmt: skip
SizeName = Literal["tiny", "minutes", "hour", "small", "paper"]


def reproduce(
    name: Annotated[TableName, typer.Argument(metavar="TABLE", help="Which table.")],
    data: Annotated[
        list[str],
        typer.Argument(metavar="DATA...", help=f"Text files to train on, or a made set: {', '.join(MADE_SETS)}."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the experiment; what is found there is not done again.")],
    heldout: Annotated[list[str], typer.Option(help="Text file to evaluate on; repeatable.")] = [],  # noqa: B006
    size: Annotated[SizeName, typer.Option(help="Of the network and the runs.")] = "small",
    seeds: Annotated[int, typer.Option(help="Networks of each arm.")] = 3,
    tokenizer: Annotated[
        str, typer.Option(help='Folder of a tokenizer, "bytes", or "bpe-N": one of N tokens, learned from DATA.')
    ] = "bytes",
    encoder: Annotated[
        Path | None, typer.Option(help="Folder of a sentence encoder, which chooses passages for the table passages.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 2,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda if there is one).")] = None,
) -> None:
    """Reproduce one of the paper's tables, or answer one of its open questions (docs/paper.md)."""
    torch.set_num_threads(threads)
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    made = made_set(data)
    experiment = Experiment(
        out, SIZES[size], experiment_tokenizer(tokenizer, data, out), chosen, made.answers if made else None, encoder
    )
    experiment.prepare(*experiment_texts(data, heldout, SIZES[size]))
    print(write_table(experiment, name, TABLES[name](experiment, seeds)))
