"""Training and evaluation of an arm, each kept in the folder of the experiment: what is there is not done again."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from research.landmark_models import with_config
from research.train.data.documents import open_token_file, read_documents, write_token_file
from research.train.data.packing import TokenRows
from research.train.data.tokenizer import load_tokenizer, train_tokenizer
from research.train.engine.settings import TrainingSettings
from research.train.engine.trainer import run_training
from research.train.evaluation.perplexity import segment_losses
from research.train.paper.arms import Arm, recurrent_losses
from research.train.paper.made_sets import MADE_SETS, MadeSet
from research.train.paper.sizes import Size
from research.train.recipes.presets import RowSettings, load_preset
from research.train.recipes.pretrain import new_model, open_tokenizer, plain_tokens

Row = dict[str, Any]
TOKENIZER_DOCUMENTS = 16
"""Training documents that a tokenizer of the experiment is learned from."""


@dataclass(frozen=True)
class Experiment:
    """A folder with token files, runs and scores of one size."""

    folder: Path
    size: Size
    tokenizer: PreTrainedTokenizerBase
    device: str
    encoder: Path | None = None
    """Folder of a sentence encoder that chooses passages."""

    def prepare(self, train: Iterable[str], heldout: Iterable[str]) -> None:
        """Write both token files from texts, unless they are there. Raises ValueError if the folder is of another
        size."""
        self.folder.mkdir(parents=True, exist_ok=True)
        named = self.folder / "size.txt"
        if named.exists() and named.read_text() != self.size.name:
            raise ValueError(f"{self.folder} holds runs of size {named.read_text()}; choose another folder.")
        named.write_text(self.size.name)
        needed = self.size.segments * max(self.size.lengths)
        for name, texts in (("train", train), ("heldout", _enough(heldout, needed * 16))):
            file = self.folder / f"{name}.bin"
            if file.exists():
                continue
            count = write_token_file(
                file,
                texts,
                lambda text: plain_tokens(self.tokenizer, text),
                vocab_size=len(self.tokenizer) + 1,
                eos_token_id=int(self.tokenizer.eos_token_id),
            )
            print(f"{name}: {count:,} tokens", flush=True)

    def heldout(self) -> NDArray[np.integer]:
        """The tokens that every arm is evaluated on: the first of the held-out ones."""
        tokens = open_token_file(self.folder / "heldout.bin")
        count = self.size.segments * max(self.size.lengths)
        if len(tokens) < count:
            raise ValueError(f"{len(tokens)} held-out tokens, but this size reads {count}: give more text.")
        return tokens[:count]

    def trained(self, arm: Arm, seed: int) -> LandmarkModel:
        """The network of an arm: trained now, further, or loaded."""
        return self._run(arm, seed, self.rate(arm), self.size.steps)

    def rate(self, arm: Arm) -> float:
        """The learning rate with the least held-out loss of the first seed; a variant takes that of its plain arm."""
        if arm.rated_as is not None:
            return self.rate(self.size.arm(arm.rated_as))
        if len(self.size.rates) == 1:
            return self.size.rates[0]
        steps = self.size.tuning_steps or self.size.steps
        losses = {rate: self._heldout_loss(arm, self._run(arm, 0, rate, steps)) for rate in self.size.rates}
        best = min(losses, key=lambda rate: losses[rate])
        print(
            f"{arm.name}: " + ", ".join(f"rate {rate:g}: loss {loss:.4f}" for rate, loss in losses.items()), flush=True
        )
        return best

    def _run(self, arm: Arm, seed: int, rate: float, steps: int) -> LandmarkModel:
        kind = "" if steps == self.size.steps else f"-steps-{steps}"
        folder = self.folder / "runs" / arm.name / f"seed-{seed}-rate-{rate:g}{kind}"
        if (folder / "done").exists():
            return load_backbone(folder / "model", device=self.device, dtype=torch.float32)
        size = self.size
        rows = RowSettings(
            raw_tokens=arm.row_tokens, block_size=arm.block_size, rows=self.rows(arm),
        )  # fmt: skip
        if arm.start is None:
            model = new_model(size.architecture, self.tokenizer, rows, seed=seed).to(self.device)
        else:
            model = with_config(self.trained(size.arm(arm.start), seed), block_size=arm.block_size)
        grid = rows.grid(model.config.landmark_token_id, int(self.tokenizer.eos_token_id))
        batches = TokenRows(open_token_file(self.folder / "train.bin"), grid, rows=rows.rows, seed=seed)
        base = load_preset(size.preset).training if size.preset else TrainingSettings(
            steps=steps, learning_rate=rate, schedule="cosine", warmup=0.05, num_cycles=0.45, betas=(0.9, 0.95),
            weight_decay=0.1,
        )  # fmt: skip
        settings = replace(
            base, steps=steps, learning_rate=rate, precision="bf16" if self.device == "cuda" else "fp32", seed=seed,
            log_every=max(1, steps // 50), evaluate_every=0, save_every=max(1, steps // 10), keep_checkpoints=1,
        )  # fmt: skip
        result = run_training(model, batches, arm.loss, settings, folder, progress_bar=False)
        model.eval().save(folder / "model")
        (folder / "done").write_text(f"{result.seconds:.0f} seconds, {result.tokens} tokens\n")
        print(f"{arm.name}, seed {seed}: {result.step} steps in {result.seconds:.0f} s", flush=True)
        return model

    def rows(self, arm: Arm) -> int:
        """Training rows of a step: every arm sees the same number of raw tokens."""
        return max(1, self.size.step_tokens // arm.row_tokens)

    def _heldout_loss(self, arm: Arm, model: LandmarkModel) -> float:
        return float(
            evaluate(arm, model, self.heldout(), self.size.tuned_length, [0, self.size.top_ks[-1]])[-1]["loss"]
        )

    def rows_of(
        self, table: str, names: Iterable[str], seeds: int, score: Callable[[Arm, LandmarkModel], list[Row]]
    ) -> list[Row]:
        """The rows of a table: what `score` says of every arm's network of every seed."""
        arms = [self.size.arm(name) for name in names]
        return [row for arm in arms for seed in range(seeds) for row in self._scores(table, arm, seed, score)]

    def _scores(self, table: str, arm: Arm, seed: int, score: Callable[[Arm, LandmarkModel], list[Row]]) -> list[Row]:
        """The rows that one network gives, from the folder if they are there."""
        file = self.folder / "scores" / table / f"{arm.name}-seed-{seed}.json"
        if not file.exists():
            rows = score(arm, self.trained(arm, seed).eval())
            file.parent.mkdir(parents=True, exist_ok=True)
            unfinished = file.with_suffix(".unfinished")
            unfinished.write_text(json.dumps(rows, indent=1))
            unfinished.replace(file)
        return [row | {"seed": seed} for row in json.loads(file.read_text())]


def experiment_texts(data: Sequence[str], heldout: Sequence[str], size: Size) -> tuple[Iterable[str], Iterable[str]]:
    """Training and held-out documents: of files, or of a made set for its word.

    Raises ValueError without held-out files.
    """
    if made := made_set(data):
        return made.train(size.documents), made.heldout(size.segments, max(size.lengths))  # a text for each segment
    if not heldout:
        raise ValueError("Give at least one file with --heldout, of documents that are not in DATA.")
    train, rest = ((text for file in files for text in read_documents(Path(file))) for files in (data, heldout))
    return islice(train, size.documents), rest


def made_set(data: Sequence[str]) -> MadeSet | None:
    """The made set that stands where text files are named, if one does."""
    return MADE_SETS.get(data[0]) if len(data) == 1 else None


def experiment_tokenizer(name: str, data: Sequence[str], folder: Path) -> PreTrainedTokenizerBase:
    """`open_tokenizer`, or for "bpe-N" one of N tokens that is learned from the first documents and kept in the folder.
    A made set has its own.

    Raises ValueError for a number of tokens that has no room for the bytes.
    """
    if made := made_set(data):
        return made.tokenizer()
    kind, _, number = name.partition("-")
    if kind != "bpe":
        return open_tokenizer(name)
    if not number.isdigit() or int(number) < 300:
        raise ValueError(f"{name!r} is not bpe-N, with N tokens, at least 300 (256 bytes, special tokens, merges).")
    kept = folder / name
    if not (kept / "tokenizer.json").exists():
        texts = (text for file in data for text in read_documents(Path(file)))
        train_tokenizer(islice(texts, TOKENIZER_DOCUMENTS), vocab_size=int(number)).save_pretrained(kept)
    return load_tokenizer(kept)


def evaluate(
    arm: Arm,
    model: LandmarkModel,
    tokens: NDArray[np.integer],
    length: int,
    top_ks: Sequence[int],
    *,
    grid: bool = False,
) -> list[Row]:
    """Loss on segments of one length, which begin with nothing: for landmarks, one row for each k (0: no memory).

    grid: also with the window that the largest k leaves room for, and with a memory of half of the segment's blocks, as
    in the cells of the paper's table 1.
    """
    segments = np.asarray(tokens[: len(tokens) // length * length]).reshape(-1, length)
    if arm.kind != "landmark":
        attended = arm.window + arm.cache
        began = time.perf_counter()
        losses = [recurrent_losses(model, one.tolist(), window=arm.window, cache=arm.cache) for one in segments]
        row = _row(arm, length, arm.window, 0, 0, attended) | {"milliseconds": _each(began, segments)}
        return [row | {"loss": _mean(losses)}]
    per_block, rows = model.config.tokens_per_block, []
    for k, window, kept in _readings(arm.window // per_block, -(-length // per_block), top_ks, grid):
        began = time.perf_counter()
        losses = [segment_losses(model, one.tolist(), window_blocks=window, top_k=k, blocks=kept) for one in segments]
        cost = {"milliseconds": _each(began, segments)}
        local, stored = window * per_block, kept or max(0, -(-length // per_block) - window) if k else 0
        row = _row(arm, length, local, k, stored, local + k * per_block + stored)
        rows.append(row | cost | {"loss": _mean(losses)})
    return rows


def _readings(whole: int, blocks: int, top_ks: Sequence[int], grid: bool) -> Iterator[tuple[int, int, int | None]]:
    """(k, blocks of a window, blocks kept at the most) for segments of so many blocks; None: all are kept.

    The blocks read, a free slot and the window take the positions of one trained row, which holds `whole` blocks.
    """
    for k in top_ks:
        windows = {whole - k - 1, whole - max(top_ks) - 1} if grid and k else {whole - k - 1 if k else whole}
        for window in sorted((window for window in windows if window > 0), reverse=True):
            yield k, window, None
            if grid and k and k < blocks // 2 < blocks - window:
                yield k, window, blocks // 2


def _each(began: float, segments: NDArray[np.integer]) -> float:
    """Milliseconds a token since `began`."""
    return round((time.perf_counter() - began) * 1000 / segments.size, 4)


def _row(arm: Arm, length: int, local: int, k: int, stored: int, attended: int) -> Row:
    """`attended`: tokens a query is compared with at most: local ones, those read, and the landmarks searched."""
    return {"arm": arm.name, "length": length, "local": local, "k": k, "blocks": stored, "attended": attended}


def _mean(losses: Sequence[torch.Tensor]) -> float:
    return float(torch.cat(list(losses)).double().mean())


def _enough(texts: Any, characters: int) -> Any:
    """Texts until they have so many characters."""
    for text in texts:
        yield text
        characters -= len(text)
        if characters <= 0:
            return
