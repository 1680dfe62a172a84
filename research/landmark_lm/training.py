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

from model.checkpoint.landmark_model import LandmarkModel
from research.landmark_lm.loss import LandmarkCache, row_loss
from research.landmark_lm.rows import lay_out
from research.landmark_lm.sources import Mixture, Shape, Source


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run depends on."""

    rate: float = 1e-3
    """Highest learning rate: 1e-3 for adapters, 1e-4 for all weights."""
    warmup: int = 20
    steps: int = 2000
    """Steps over which the rate falls to a tenth (cosine)."""
    minutes: float = math.inf
    """Time after which this call ends; the run can be continued."""
    rows: int = 1
    """Rows of a step."""
    gate_share: float = 0.3
    """Weight of the loss of landmarks beside that of words."""
    sum_share: float = 0.3
    """Weight of the log-sum-exp teacher at the beginning; it falls to a quarter by half of the steps. Without it
    landmarks drift, and words are read worse (README.md)."""
    most_read: int = 12
    kept_rows: int = 16
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
        for name, weight in self.trained.items():
            weight.copy_(self.master[name])

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
    """Train until `settings.steps` or `settings.minutes`, resuming what `folder` holds.

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
    model.train()
    with (folder / "log.jsonl").open("a") as log:
        while progress.step < settings.steps and time.monotonic() - began < 60 * settings.minutes:
            line = _step(model, master, sources, shape, settings, progress, kept)
            progress.seconds = before + time.monotonic() - began
            log.write(json.dumps({**asdict(progress), **line}) + "\n")
            log.flush()
            if time.monotonic() - saved > 60 * settings.checkpoint_minutes:
                _save(folder, master, progress)
                saved = time.monotonic()
    _save(folder, master, progress)
    model.eval()
    return progress


def _step(
    model: LandmarkModel,
    master: MasterWeights,
    sources: Mapping[str, Source],
    shape: Shape,
    settings: Settings,
    progress: Progress,
    kept: LandmarkCache,
) -> dict[str, Any]:
    rng, config = random.Random(f"{settings.seed} {progress.step}"), model.config
    said: list[dict[str, Any]] = []
    for _ in range(settings.rows):
        kind = settings.mixture.draw(progress.step / settings.steps, rng)
        text = sources[kind].draw(rng)
        row = lay_out(
            text,
            block_size=config.block_size,
            blocks=shape.blocks,
            landmark=config.landmark_token_id,
            padding=int(model.tokenizer.eos_token_id),
        ).to(model.device)
        loss, numbers = row_loss(
            model,
            row,
            kept,
            gate_share=settings.gate_share,
            sum_share=settings.sum_share * max(0.25, 1 - 2 * progress.step / settings.steps),
            most_read=settings.most_read,
            rng=rng,
        )
        (loss / settings.rows).backward()
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"the loss of step {progress.step} is {loss.item()}: choose a lower rate.")
        said.append({"kind": kind, **numbers})
        progress.tokens += row.tokens
        progress.questions += len(text.asked)
    rate = rate_at(progress.step, settings)
    norm = master.step(rate, settings.clip)
    progress.step += 1
    return {"rate": rate, "norm": norm, "rows": said}


def rate_at(step: int, settings: Settings) -> float:
    """Learning rate: linear warm-up, then a cosine to a tenth."""
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    done = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    return settings.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done))))


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
