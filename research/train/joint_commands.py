"""`python -m research.train joint-reader`: train, average and measure a span reader."""

import json
from pathlib import Path
from typing import Annotated

import torch
import typer

from model.checkpoint.load import load_backbone
from model.reading.span_reader import FOLDER, load_span_reader
from research.train.data.batches.wrong_passages import find_wrong_passages
from research.train.recipes import joint_reader

joint = typer.Typer(no_args_is_help=True)
Run = Annotated[Path, typer.Option("--out", help="Folder of the run; a run found there is resumed.")]
QuestionData = Annotated[Path, typer.Option(help="Folder with qa/ (*.jsonl.xz).")]
Settings = Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Change one setting; repeatable.")]
Threads = Annotated[int, typer.Option(help="Threads of torch.")]


@joint.command("train")
def _joint_train(
    data: QuestionData,
    encoder: Annotated[Path, typer.Option(help="Folder of a BERT-like encoder with the tokens of BERT.")],
    out: Run,
    changes: Settings = [],  # noqa: B006 - typer reads the default  # noqa: B006
    threads: Threads = 2,
) -> None:
    """Train a reader; OUT/reader is what a checkpoint folder needs to read passages."""
    torch.set_num_threads(threads)
    joint_reader.train(joint_reader.JointRun().changed(changes), data, encoder, out)


@joint.command("wrong-passages")
def _joint_wrong_passages(
    data: QuestionData,
    model: Annotated[Path, typer.Option(help="Folder of the landmark checkpoint that searches.")],
    out: Annotated[Path, typer.Option(help="Folder for wrong.jsonl and for what is stored to make it.")],
    changes: Settings = [],  # noqa: B006
    threads: Threads = 2,
) -> None:
    """Let search find wrong passages for the training questions; give OUT/wrong.jsonl to train as wrong_passages."""
    torch.set_num_threads(threads)
    questions = joint_reader.training_questions(joint_reader.JointRun().changed(changes), data)
    find_wrong_passages(load_backbone(str(model), device="cpu", dtype=torch.float32), questions, out)


@joint.command("average")
def _joint_average(first: Path, second: Path, out: Run, share: float = 0.5) -> None:
    """Average the weights of two readers of one shape; OUT/reader is written."""
    joint_reader.average(first, second, out, share)


@joint.command("measure")
def _joint_measure(
    data: QuestionData,
    model: Annotated[Path, typer.Option(help="Folder of a checkpoint with a reader, or of a run.")],
    most: Annotated[int, typer.Option(help="Development questions of a source.")] = 300,
    threads: Threads = 2,
) -> None:
    """Measure a reader on development questions, from their gold passages."""
    torch.set_num_threads(threads)
    reader = load_span_reader(model / FOLDER)
    print(json.dumps(joint_reader.measure(reader.network, reader.tokenizer, data, joint_reader.DEV, most), indent=1))
