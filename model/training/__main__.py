"""`python -m model.training`: pre-train, fine-tune, evaluate, plot, recover released weights."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from model.errors import ModelError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. What a user did wrong is one line on stderr and status 2."""
    parsed = parser().parse_args(arguments)
    torch.set_flush_denormal(True)  # weights of a sharp softmax end below 1e-38: a step on a CPU takes a fifth less
    try:
        parsed.run(parsed)
    except (ValueError, FileNotFoundError) as error:
        print(f"{type(error).__name__ if not isinstance(error, ModelError) else 'error'}: {error}", file=sys.stderr)
        return 2
    return 0


def parser() -> argparse.ArgumentParser:
    """The whole command line, so that its documentation can be generated."""
    top = argparse.ArgumentParser(prog="python -m model.training", description=__doc__.split(":", 1)[1].strip())
    commands = top.add_subparsers(required=True, metavar="command")
    _add_tokenize(commands.add_parser("tokenize", help="write text files as one token file"))
    _add_training(commands.add_parser("pretrain", help="train a new model from scratch"), from_scratch=True)
    _add_training(commands.add_parser("finetune", help="train a checkpoint further"), from_scratch=False)
    _add_evaluate(commands.add_parser("evaluate", help="passkey accuracy, or perplexity with a memory"))
    plot = commands.add_parser("plot", help="draw the losses of a run")
    plot.add_argument("run_folder", metavar="RUN", type=Path)
    plot.add_argument("--out", type=Path, help="SVG file (default: RUN/loss.svg)")
    plot.set_defaults(run=_plot)
    _add_recover(commands.add_parser("recover-llama", help="LLaMA-7B landmark weights from the published difference"))
    _add_default_model(commands.add_parser("default-model", help="the model that Cairn ships, from a data folder"))
    return top


def _add_default_model(command: argparse.ArgumentParser) -> None:
    from model.training.recipes.default_model import SIZES

    command.add_argument("--data", required=True, type=Path, help="folder with text/ and qa/ (*.jsonl.xz)")
    command.add_argument("--out", required=True, type=Path, help="folder of the run; a run found there is resumed")
    command.add_argument("--size", choices=sorted(SIZES), default="cpu", help="how large, how long (default: cpu)")
    command.add_argument(
        "--encoder", required=True, type=Path, help="folder of all-MiniLM-L6-v2: the start, and the teacher"
    )
    command.add_argument("--begin", type=Path, help="go on from the weights of a model that this command has made")
    command.add_argument("--phases", nargs="+", default=["teach", "read", "point"], help="some of teach, read, point")
    command.add_argument("--seed", type=int, default=0, help="another order of what is taught (default: 0)")
    command.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    command.set_defaults(run=_default_model)


def _default_model(parsed: argparse.Namespace) -> None:
    from model.training.recipes.default_model import make_default_model

    result = make_default_model(
        parsed.data,
        parsed.out,
        encoder=parsed.encoder,
        size=parsed.size,
        device=parsed.device,
        begin=parsed.begin,
        phases=parsed.phases,
        seed=parsed.seed,
    )
    print(f"{result.step} steps in {result.seconds:.0f} s; checkpoint in {parsed.out / 'model'}")


def _add_tokenize(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", metavar="FILE", type=Path, nargs="+", help="text: .txt or .jsonl, also with .xz")
    command.add_argument("--tokenizer", required=True, help='folder of a tokenizer, or "bytes"')
    command.add_argument("--out", required=True, type=Path, help="token file to write (.bin)")
    command.set_defaults(run=_tokenize)


def _add_training(command: argparse.ArgumentParser, *, from_scratch: bool) -> None:
    from model.training.recipes.presets import preset_names

    command.add_argument("--preset", required=True, help=f"{', '.join(preset_names())}, or a TOML file")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="TABLE.KEY=VALUE",
        help="change one value of the preset; repeat it",
    )
    if from_scratch:
        command.add_argument("--tokenizer", required=True, help='folder of a tokenizer, or "bytes"')
    else:
        command.add_argument("--model", required=True, help="folder or hub id of the checkpoint to start from")
        command.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the weights")
    command.add_argument("--data", required=True, nargs="+", type=Path, help="text files, or one token file")
    command.add_argument("--heldout", nargs="*", default=[], type=Path, help="text files, or one token file")
    command.add_argument("--heldout-rows", type=int, default=64, help="rows of the held-out loss (default: 64)")
    command.add_argument("--out", required=True, type=Path, help="folder of the run; a run found there is resumed")
    command.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    command.set_defaults(run=_pretrain if from_scratch else _finetune)


def _add_evaluate(command: argparse.ArgumentParser) -> None:
    kinds = command.add_subparsers(required=True, metavar="kind")
    passkey = kinds.add_parser("passkey", help="accuracy by context length")
    passkey.add_argument("--lengths", nargs="+", type=int, default=[0, 2000, 5000, 10000, 20000, 38000])
    passkey.add_argument("--prompts", type=int, default=50, help="prompts per length")
    passkey.add_argument("--max-tokens", type=int, default=10, help="tokens of an answer")
    passkey.add_argument("--k", type=int, default=5, help="blocks read per choice")
    passkey.add_argument("--positions", choices=("paper", "library"), default="paper")
    passkey.add_argument("--window", type=int, help="blocks of a window (default: the model's)")
    passkey.add_argument("--seed", type=int, default=0)
    passkey.set_defaults(run=_passkey)
    perplexity = kinds.add_parser("perplexity", help="by evaluation length, window, k and stored blocks")
    perplexity.add_argument(
        "--data", required=True, nargs="+", type=Path, help="held-out text files, or one token file"
    )
    perplexity.add_argument("--lengths", nargs="+", type=int, default=[512, 2048], help="raw tokens of a segment")
    perplexity.add_argument("--window", nargs="+", type=int, default=[5], help="blocks of a window")
    perplexity.add_argument("--k", nargs="+", type=int, default=[0, 2, 4], help="blocks read; 0: no memory")
    perplexity.add_argument(
        "--blocks", nargs="+", type=int, default=[0], help="blocks kept in memory, the oldest dropped; 0: all"
    )
    perplexity.add_argument("--segments", type=int, help="segments of each length (default: all)")
    perplexity.set_defaults(run=_perplexity)
    for kind in (passkey, perplexity):
        kind.add_argument("--model", required=True, help="folder or hub id of a landmark checkpoint")
        kind.add_argument("--voters", choices=("token", "head", "group"), default="token", help="who chooses blocks")
        kind.add_argument("--device")
        kind.add_argument("--dtype", choices=("float32", "bfloat16"))
        kind.add_argument("--out", type=Path, help="JSON file for the scores")


def _add_recover(command: argparse.ArgumentParser) -> None:
    from model.training.convert.llama_delta import PUBLISHED_CHECKSUM

    command.add_argument("--original", required=True, type=Path, help="folder of LLaMA-7B in Hugging Face layout")
    command.add_argument("--difference", required=True, type=Path, help="folder of the published difference")
    command.add_argument("--out", required=True, type=Path, help="folder to write")
    command.add_argument("--checksum", type=float, default=PUBLISHED_CHECKSUM, help="expected sum of all weights")
    command.add_argument("--no-checksum", action="store_true", help="do not compare the sum")
    command.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="to store")
    command.set_defaults(run=_recover)


def _tokenize(given: argparse.Namespace) -> None:
    from model.training.data.documents import read_documents, write_token_file
    from model.training.recipes.pretrain import open_tokenizer, plain_tokens

    tokenizer = open_tokenizer(given.tokenizer)
    documents = (text for file in given.files for text in read_documents(file))
    count = write_token_file(
        given.out,
        documents,
        lambda text: plain_tokens(tokenizer, text),
        vocab_size=len(tokenizer) + 1,
        eos_token_id=tokenizer.eos_token_id,
    )
    print(f"{count:,} tokens in {given.out}")


def _pretrain(given: argparse.Namespace) -> None:
    from model.training.recipes.presets import load_preset
    from model.training.recipes.pretrain import open_tokenizer, pretrain

    preset = load_preset(given.preset, given.set)
    result = pretrain(
        preset,
        open_tokenizer(given.tokenizer),
        given.data,
        given.out,
        heldout=given.heldout,
        heldout_rows=given.heldout_rows,
        device=given.device,
    )
    print(f"step {result.step}, {result.tokens:,} tokens, {result.seconds:.0f} s; model in {given.out / 'model'}")


def _finetune(given: argparse.Namespace) -> None:
    from model.training.recipes.finetune import finetune
    from model.training.recipes.presets import load_preset

    preset = load_preset(given.preset, given.set)
    result = finetune(
        preset,
        given.model,
        given.data,
        given.out,
        heldout=given.heldout,
        heldout_rows=given.heldout_rows,
        device=given.device,
        dtype=getattr(torch, given.dtype),
    )
    print(f"step {result.step}, {result.tokens:,} tokens, {result.seconds:.0f} s; model in {given.out / 'model'}")


def _passkey(given: argparse.Namespace) -> None:
    from model.attention.selection import SelectionPolicy
    from model.checkpoint.load import load_backbone
    from model.training.evaluation.passkey import passkey_scores
    from model.training.evaluation.report import report

    model = load_backbone(given.model, device=given.device, dtype=getattr(torch, given.dtype) if given.dtype else None)
    policy = SelectionPolicy(top_k=given.k, voters=given.voters, positions=given.positions)
    scores = passkey_scores(
        model,
        given.lengths,
        prompts=given.prompts,
        policy=policy,
        window_blocks=given.window,
        max_tokens=given.max_tokens,
        seed=given.seed,
    )
    report("passkey", _settings(given), scores, given.out)


def _perplexity(given: argparse.Namespace) -> None:
    from model.checkpoint.load import load_backbone
    from model.training.evaluation.perplexity import perplexity_scores
    from model.training.evaluation.report import heldout_tokens, report

    model = load_backbone(given.model, device=given.device, dtype=getattr(torch, given.dtype) if given.dtype else None)
    scores = perplexity_scores(
        model,
        heldout_tokens(model, given.data),
        lengths=given.lengths,
        windows=given.window,
        top_ks=given.k,
        blocks=[count or None for count in given.blocks],
        voters=given.voters,
        segments=given.segments,
    )
    report("perplexity", _settings(given), scores, given.out)


def _plot(given: argparse.Namespace) -> None:
    from model.training.evaluation.plot import plot_run

    print(plot_run(given.run_folder, given.out))


def _recover(given: argparse.Namespace) -> None:
    from model.training.convert.llama_delta import convert_llama_delta

    checksum = None if given.no_checksum else given.checksum
    total = convert_llama_delta(
        given.original, given.difference, given.out, checksum=checksum, dtype=getattr(torch, given.dtype)
    )
    print(f"sum of all weights {total:.4f}; model in {given.out}")


def _settings(given: argparse.Namespace) -> dict[str, object]:
    plain = {name: value for name, value in vars(given).items() if name not in ("run", "out")}
    return {
        name: [str(v) if isinstance(v, Path) else v for v in value] if isinstance(value, list) else value
        for name, value in plain.items()
    }


if __name__ == "__main__":
    if "ACCELERATE_USE_FSDP" in os.environ:
        os.environ.setdefault("FSDP_VERSION", "2")
    sys.exit(main())
