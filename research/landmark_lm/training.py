"""The training loop: rows in, weights out; a kill loses only what came after the last checkpoint.

Every step draws its rows with a generator of its own number, so that a resumed run continues as if never stopped (only
the landmarks kept from rows before start anew). `folder` receives:

    run.json            what was asked for
    log.jsonl           one line a step
    weights.safetensors the trained weights, float32
    moments.safetensors the optimizer's state
    progress.json       steps, tokens, questions and seconds so far
"""

import json
import math
import os
import random
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from model.checkpoint.landmark_model import LandmarkModel
from research.landmark_lm.loss import LandmarkCache, row_loss
from research.landmark_lm.rows import Row, join, lay_out
from research.landmark_lm.sources import Mixture, Shape, Source


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run depends on."""

    rate: float = 1e-3
    """Highest learning rate: 1e-3 for adapters, 1e-4 for all weights."""
    warmup: int = 20
    steps: int = 2000
    minutes: float = math.inf
    """A run ends after so many steps or minutes, whichever come first; until then the rate falls to a tenth (cosine).
    It can be continued with more."""
    rows: int = 1
    """Rows of a step, whose questions see the blocks of all."""
    workers: int = 0
    """Processes that make rows; 0: the one that trains."""
    gate_share: float = 0.3
    """Weight of the loss of landmarks beside that of words."""
    sum_share: float = 0.3
    """Weight of the log-sum-exp teacher at the beginning; it falls to a quarter by half of the steps. Without it
    landmarks drift, and words are read worse (README.md)."""
    most_read: int = 12
    kept_rows: int = 16
    """Rows before, whose landmarks are further wrong blocks."""
    clip: float = 1.0
    decay: float = 0.01
    mixture: Mixture = Mixture()
    checkpoint_minutes: float = 10.0
    seed: int = 0


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0
    tokens: int = 0
    questions: int = 0
    seconds: float = 0.0


class MasterWeights:
    """AdamW on float32 copies of the trained weights, which are rounded to the model's dtype after every step."""

    def __init__(self, trained: Mapping[str, nn.Parameter], settings: Settings) -> None:
        self.trained = dict(trained)
        self.master = {name: nn.Parameter(w.detach().float().clone()) for name, w in self.trained.items()}
        self.optimizer = torch.optim.AdamW(
            self.master.values(), lr=settings.rate, betas=(0.9, 0.98), weight_decay=settings.decay
        )

    def step(self, rate: float, clip: float) -> float:
        """One update from the gradients of the trained weights; returns their norm."""
        for name, weight in self.trained.items():
            self.master[name].grad = None if weight.grad is None else weight.grad.float()
            weight.grad = None
        norm = float(nn.utils.clip_grad_norm_(self.master.values(), clip))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self._publish()
        return norm

    @torch.no_grad()
    def _publish(self) -> None:
        torch._foreach_copy_([*self.trained.values()], [*self.master.values()])

    def save(self, folder: Path) -> None:
        """Write weights and moments, each whole or not at all."""
        _write(folder / "weights.safetensors", {name: w.detach() for name, w in self.master.items()})
        _write(
            folder / "moments.safetensors",
            {
                f"{name}.{key}": torch.as_tensor(self.optimizer.state[w][key])
                for name, w in self.master.items()
                for key in ("exp_avg", "exp_avg_sq", "step")
                if w in self.optimizer.state
            },
        )

    @torch.no_grad()
    def load(self, weights: Path, moments: Path | None) -> None:
        """Continue from saved weights; without moments the optimizer starts anew. Raises ValueError for others."""
        found = load_file(weights)
        if {name: w.shape for name, w in found.items()} != {name: w.shape for name, w in self.master.items()}:
            raise ValueError(f"{weights} does not fit: it was trained with another rank, or in other layers.")
        for name, weight in self.master.items():
            weight.copy_(found[name])
        self._publish()
        if moments is not None:
            state = load_file(moments)
            for name, weight in self.master.items():
                self.optimizer.state[weight] = {
                    key: state[f"{name}.{key}"].to(weight.device if key != "step" else "cpu")
                    for key in ("exp_avg", "exp_avg_sq", "step")
                }


def train(
    model: LandmarkModel,
    trained: Mapping[str, nn.Parameter],
    sources: Mapping[str, Source],
    shape: Shape,
    settings: Settings,
    folder: Path,
    *,
    start_from: Path | None = None,
) -> Progress:
    """Train to the end of `settings`, resuming what `folder` holds.

    sources: "questions", "passkeys", "copying" and "text". start_from: trained weights to begin with, if
    the folder holds no run yet. Raises ValueError for weights that do not fit, FloatingPointError when the loss is no
    longer finite.
    """
    folder.mkdir(parents=True, exist_ok=True)
    master, progress = MasterWeights(trained, settings), Progress()
    if (folder / "progress.json").is_file():
        progress = Progress(**json.loads((folder / "progress.json").read_text()))
        master.load(folder / "weights.safetensors", folder / "moments.safetensors")
        _forget_later(folder / "log.jsonl", progress.step)
    elif start_from is not None:
        master.load(start_from, None)
    (folder / "run.json").write_text(json.dumps({"settings": asdict(settings), "shape": asdict(shape)}, indent=1))
    kept, began, saved = LandmarkCache(settings.kept_rows), time.monotonic(), time.monotonic()
    before = progress.seconds
    drawn = _Rows(model, sources, shape, settings)
    loader = DataLoader(
        drawn,
        batch_size=None,
        sampler=range(progress.step, settings.steps),
        num_workers=settings.workers,
        prefetch_factor=4 if settings.workers else None,
    )
    model.train()
    with (folder / "log.jsonl").open("a") as log:
        for row in loader:
            line = _step(model, master, row, settings, progress, kept)
            progress.seconds = before + time.monotonic() - began
            log.write(json.dumps({**asdict(progress), **line}) + "\n")
            log.flush()
            if time.monotonic() - saved > 60 * settings.checkpoint_minutes:
                _save(folder, master, progress)
                saved = time.monotonic()
            if progress.seconds > 60 * settings.minutes:
                break
    _save(folder, master, progress)
    model.eval()
    return progress


class _Rows(Dataset[Row]):
    """The rows of each step as one, on the CPU."""

    def __init__(self, model: LandmarkModel, sources: Mapping[str, Source], shape: Shape, settings: Settings) -> None:
        self.sources, self.settings = sources, settings
        self.grid = {
            "block_size": model.config.block_size,
            "blocks": shape.blocks,
            "landmark": model.config.landmark_token_id,
            "padding": int(model.tokenizer.eos_token_id),
        }

    def __getitem__(self, step: int) -> Row:
        rng, settings = random.Random(f"{self.settings.seed} {step}"), self.settings
        kinds = settings.mixture.draw(step / settings.steps, settings.rows, rng)
        texts = [self.sources[kind].draw(rng) for kind in kinds]
        return lay_out(join(texts) if len(texts) > 1 else texts[0], **self.grid)


def _step(
    model: LandmarkModel, master: MasterWeights, row: Row, settings: Settings, progress: Progress, kept: LandmarkCache
) -> dict[str, Any]:
    done = done_of(progress, settings)
    loss, lines = row_loss(
        model,
        row,
        kept,
        gate_share=settings.gate_share,
        sum_share=settings.sum_share * max(0.25, 1 - 2 * done),
        most_read=settings.most_read,
        rng=random.Random(f"{settings.seed} {progress.step} reads"),
    )
    loss.backward()
    if not math.isfinite(loss.item()):
        raise FloatingPointError(f"the loss of step {progress.step} is {loss.item()}: choose a lower rate.")
    rate = rate_at(progress, settings)
    norm = master.step(rate, settings.clip)
    progress.tokens += row.tokens
    progress.questions += len(row.kind_Q)
    progress.step += 1
    return {"rate": rate, "norm": norm, "rows": lines}


def done_of(progress: Progress, settings: Settings) -> float:
    """How much of the run is done, by steps or by time."""
    return min(1.0, max(progress.step / settings.steps, progress.seconds / (60 * settings.minutes)))


def rate_at(progress: Progress, settings: Settings) -> float:
    """Learning rate: linear warm-up, then a cosine to a tenth."""
    if progress.step < settings.warmup:
        return settings.rate * (progress.step + 1) / settings.warmup
    return settings.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done_of(progress, settings))))


def _forget_later(log: Path, step: int) -> None:
    """Keep the lines of the steps that are done: those behind the last checkpoint are done again."""
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    log.write_text("".join(line for line in lines if json.loads(line)["step"] <= step), encoding="utf-8")


def _save(folder: Path, master: MasterWeights, progress: Progress) -> None:
    master.save(folder)
    new = folder / "progress.json.new"
    new.write_text(json.dumps({field.name: getattr(progress, field.name) for field in fields(progress)}))
    os.replace(new, folder / "progress.json")


def _write(file: Path, tensors: dict[str, Tensor]) -> None:
    new = file.with_name(file.name + ".new")
    save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, new)
    os.replace(new, file)
