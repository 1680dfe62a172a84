"""The training loop: rows in, weights out; a kill loses only what came after the last checkpoint.

Every step draws its rows with a generator of its own number, so that a resumed run continues as if never stopped (only
the landmarks kept from steps before start anew). `folder` receives:

    run.json            what was asked for
    log.jsonl           one line a step
    weights.safetensors the trained weights, float32, the optimizer's moments, and in its metadata the steps, tokens,
                        questions and seconds so far
"""

import json
import math
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from model.checkpoint.landmark_model import LandmarkModel
from research.landmark_lm.loss import LandmarkCache, Prepared, prepare, step_loss, told_lines
from research.landmark_lm.rows import Size, fit, join, lay_out
from research.landmark_lm.sources import Mixture, Shape, Source, draw_row
from research.train.engine.run_log import RunLog


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
    most_passages: int = 0
    most_questions: int = 0
    """Of a step, which is padded to so many; 0: as many as its rows may have."""
    workers: int = 0
    """Processes that make rows; 0: the one that trains."""
    gate_share: float = 0.3
    """Weight of the loss of landmarks beside that of words."""
    choice_share: float = 0.3
    """Weight of the loss of what each KV head chooses."""
    sum_share: float = 0.3
    """Weight of the log-sum-exp teacher at the beginning; it falls to a quarter by half of the steps. Without it
    landmarks drift, and words are read worse (README.md)."""
    most_read: int = 12
    kept_steps: int = 2
    """Steps before, whose landmarks are further wrong blocks."""
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


MOMENTS = "moments/"
"""Before the names of the optimizer's state, in the file with the weights."""


class MasterWeights:
    """AdamW on float32 copies of the trained weights, which are rounded to the model's dtype after every step."""

    def __init__(self, trained: Mapping[str, nn.Parameter], settings: Settings) -> None:
        self.trained = dict(trained)
        self.master = {name: nn.Parameter(w.detach().float().clone()) for name, w in self.trained.items()}
        self._device = next(iter(self.master.values())).device
        on_gpu = self._device.type == "cuda"
        self._rate = torch.tensor(settings.rate, device=self._device) if on_gpu else None
        self.optimizer = torch.optim.AdamW(
            self.master.values(),
            lr=settings.rate if self._rate is None else self._rate,
            betas=(0.9, 0.98),
            weight_decay=settings.decay,
            fused=on_gpu,
            capturable=on_gpu,
        )

    def set_rate(self, rate: float) -> None:
        """The rate of the next step, which a graph reads from where it lies."""
        if self._rate is not None:
            self._rate.fill_(rate)
        else:
            for group in self.optimizer.param_groups:
                group["lr"] = rate

    def step(self, clip: float) -> Tensor:
        """One update from the gradients of the trained weights; returns their norm."""
        grads, masters = list[Tensor](), list[Tensor]()
        for name, weight in self.trained.items():
            master = self.master[name]
            master.grad = None if weight.grad is None else torch.empty_like(master)
            if weight.grad is not None and master.grad is not None:
                masters.append(master.grad)
                grads.append(weight.grad)
                weight.grad = None
        torch._foreach_copy_(masters, grads)
        norm = nn.utils.clip_grad_norm_(self.master.values(), clip)
        self.optimizer.step()
        self._publish()
        return norm

    @torch.no_grad()
    def _publish(self) -> None:
        torch._foreach_copy_([*self.trained.values()], [*self.master.values()])

    def save(self, file: Path, progress: Progress) -> None:
        """Write weights, moments and how far the run has come, all of it or nothing."""
        tensors = {name: w.detach() for name, w in self.master.items()}
        tensors |= {
            f"{MOMENTS}{name}.{key}": torch.as_tensor(self.optimizer.state[w][key])
            for name, w in self.master.items()
            for key in ("exp_avg", "exp_avg_sq", "step")
            if w in self.optimizer.state
        }
        new = file.with_name(file.name + ".new")
        metadata = {"progress": json.dumps(asdict(progress))}
        save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, new, metadata)
        os.replace(new, file)

    @torch.no_grad()
    def load(self, weights: Path, *, moments: bool) -> None:
        """Continue from saved weights; without moments the optimizer starts anew. Adapters of a lower rank become the
        first part of these, and change nothing else. Raises ValueError for others."""
        state = load_file(weights)
        found = {name: tensor for name, tensor in state.items() if not name.startswith(MOMENTS)}
        if found.keys() != self.master.keys() or any(
            len(w.shape) != found[name].dim()
            or any(has > wanted for has, wanted in zip(found[name].shape, w.shape, strict=True))
            for name, w in self.master.items()
        ):
            raise ValueError(f"{weights} does not fit: it was trained with a higher rank, or in other layers.")
        for name, weight in self.master.items():
            part = found[name].shape
            if name.endswith(".b"):
                weight.zero_()
            weight[tuple(slice(length) for length in part)] = found[name].to(weight)
        self._publish()
        for name, weight in self.master.items() if moments else ():
            self.optimizer.state[weight] = {
                key: state[f"{MOMENTS}{name}.{key}"].to(weight.device) for key in ("exp_avg", "exp_avg_sq", "step")
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

    sources: by the names of `Mixture`. start_from: trained weights to begin with, if
    the folder holds no run yet. Raises ValueError for weights that do not fit, FloatingPointError when the loss is no
    longer finite.
    """
    folder.mkdir(parents=True, exist_ok=True)
    master, progress = MasterWeights(trained, settings), Progress()
    if (weights := folder / "weights.safetensors").is_file():
        with safe_open(weights, framework="pt") as saved:
            told = saved.metadata() or {}
        if "progress" not in told:
            raise ValueError(f"{weights} is of an earlier version: start from it (start_from), in a new folder.")
        progress = Progress(**json.loads(told["progress"]))
        master.load(weights, moments=True)
    elif start_from is not None:
        master.load(start_from, moments=False)
    (folder / "run.json").write_text(json.dumps({"settings": asdict(settings), "shape": asdict(shape)}, indent=1))
    began = saved = time.monotonic()
    before, step = progress.seconds, _Step(model, master, settings)
    drawn = _Steps(model, sources, shape, settings)
    loader = DataLoader(
        drawn,
        batch_size=None,
        sampler=range(progress.step, settings.steps),
        num_workers=settings.workers,
        prefetch_factor=4 if settings.workers else None,
    )
    model.train()
    log = RunLog(folder / "log.jsonl", resumed_step=progress.step)
    for prepared in loader:
        line = step.take(prepared, progress)
        progress.seconds = before + time.monotonic() - began
        log.write(**asdict(progress), **line)
        if time.monotonic() - saved > 60 * settings.checkpoint_minutes:
            master.save(weights, progress)
            saved = time.monotonic()
        if progress.seconds > 60 * settings.minutes:
            break
    master.save(weights, progress)
    model.eval()
    return progress


class _Steps(Dataset[Prepared]):
    """Each step's rows as one, and what is read and trained in it, on the CPU."""

    def __init__(self, model: LandmarkModel, sources: Mapping[str, Source], shape: Shape, settings: Settings) -> None:
        self.sources, self.settings = sources, settings
        self.size = Size(
            settings.most_passages or settings.rows * shape.passages,
            shape.blocks,
            settings.most_questions or settings.rows * shape.questions,
            shape.asked_tokens,
        )
        self.grid = {
            "block_size": model.config.block_size,
            "landmark": model.config.landmark_token_id,
            "padding": int(model.tokenizer.eos_token_id),
        }

    def __getitem__(self, step: int) -> Prepared:
        rng, settings = random.Random(f"{self.settings.seed} {step}"), self.settings
        kinds = settings.mixture.draw(step / settings.steps, settings.rows, rng)
        texts = [draw_row(self.sources[kind], rng) for kind in kinds]
        row = lay_out(fit(join(texts) if len(texts) > 1 else texts[0], self.size), self.size, **self.grid)
        return prepare(row, most_read=settings.most_read, rng=random.Random(f"{settings.seed} {step} reads"))


class _Step:
    """Takes a step: gradients and update. On a GPU it is replayed as a CUDA graph, one for each number of blocks that
    questions read; launched operation by operation, the GPU waits for the host most of the time."""

    def __init__(self, model: LandmarkModel, master: MasterWeights, settings: Settings) -> None:
        self.model, self.master, self.settings = model, master, settings
        self.kept = LandmarkCache(settings.kept_steps)
        self.compute: Callable[[Prepared], Tensor] = self._compute
        if model.device.type == "cuda":
            torch.cuda.set_device(model.device)
            _norms_of_one_kernel(model)
            self.compute = _Replayed(self._compute)

    def take(self, step: Prepared, progress: Progress) -> dict[str, Any]:
        """One step, and its line for the log. Raises FloatingPointError where the loss is no longer finite."""
        settings, rate = self.settings, rate_at(progress, self.settings)
        step.sum_share.fill_(settings.sum_share * max(0.25, 1 - 2 * done_of(progress, settings)))
        self.master.set_rate(rate)
        norm, *told = self.compute(step).tolist()
        loss, lines = told_lines(step, told)
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss of step {progress.step} is {loss}: choose a lower rate.")
        progress.tokens += step.row.tokens
        progress.questions += step.row.questions
        progress.step += 1
        return {"rate": rate, "norm": norm, "rows": lines}

    def _compute(self, step: Prepared) -> Tensor:
        settings = self.settings
        loss, told = step_loss(
            self.model, step, self.kept, gate_share=settings.gate_share, choice_share=settings.choice_share
        )
        loss.backward()
        return torch.cat((self.master.step(settings.clip)[None], told))


def _norms_of_one_kernel(model: LandmarkModel) -> None:
    """Let the backbone's RMS norms take torch's kernel, instead of eight operations on whole activations each."""
    for norm in model.backbone.modules():
        if isinstance(epsilon := getattr(norm, "variance_epsilon", None), float):
            norm.forward = partial(
                nn.functional.rms_norm, normalized_shape=norm.weight.shape, weight=norm.weight, eps=epsilon
            )


class _Replayed:
    """A function of a `Prepared` step as CUDA graphs: run as it is the first time for each C, recorded the second."""

    def __init__(self, run: Callable[[Prepared], Tensor]) -> None:
        self.run = run
        self.stream = torch.cuda.Stream()
        self.pool = torch.cuda.graph_pool_handle()
        self.seen: dict[int, tuple[torch.cuda.CUDAGraph, Prepared, Tensor] | None] = {}

    def __call__(self, step: Prepared) -> Tensor:
        count = step.given_QC.shape[1]
        if count not in self.seen:
            self.seen[count] = None
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                told = self.run(step.to(self.stream.device))
            torch.cuda.current_stream().wait_stream(self.stream)
            return told
        held = self.seen[count]
        if held is None:
            inputs, graph = step.to(self.stream.device), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                told = self.run(inputs)
            held = self.seen[count] = graph, inputs, told
        graph, inputs, told = held
        for kept, new in zip(inputs.tensors(), step.tensors(), strict=True):
            assert kept.shape == new.shape, "all steps have the same shapes"
            kept.copy_(new)
        graph.replay()
        return told


def done_of(progress: Progress, settings: Settings) -> float:
    """How much of the run is done, by steps or by time."""
    return min(1.0, max(progress.step / settings.steps, progress.seconds / (60 * settings.minutes)))


def rate_at(progress: Progress, settings: Settings) -> float:
    """Learning rate: linear warm-up, then a cosine to a tenth."""
    if progress.step < settings.warmup:
        return settings.rate * (progress.step + 1) / settings.warmup
    return settings.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done_of(progress, settings))))
