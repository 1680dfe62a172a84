"""The training loop: any network, any stream of micro-batches, any loss.

- One process, or several started with `accelerate launch`: gradients are averaged, or the network is sharded (FSDP2).
- A kill at any moment loses only the steps since the last checkpoint; the resumed run continues as if never stopped.
- Knows nothing about text, tokens or landmarks: those are in the batches and in the loss.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy
import torch
from accelerate import Accelerator, DistributedType
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from tqdm import tqdm

from research.train.engine.batches import Batches
from research.train.engine.checkpoint import Progress, latest_checkpoint, load_checkpoint, save_checkpoint
from research.train.engine.network import compile_layers, enable_activation_checkpointing, make_optimizer, shard
from research.train.engine.run_log import RunLog
from research.train.engine.settings import TrainingSettings


class TrainingDiverged(RuntimeError):
    """The loss or a gradient is no longer a finite number."""


@runtime_checkable
class SavesItself(Protocol):
    """A model that can write itself as a whole, as `LandmarkModel` does."""

    def save(self, folder: Path) -> None: ...


LossFunction = Callable[[Any, Any], tuple[Tensor, Mapping[str, float | Tensor], int]]
"""(model, batch) -> (mean loss, further numbers for the log, trained tokens). Moves the batch to the device itself."""

Evaluation = Callable[[Any, int], Mapping[str, float]]
"""(model, step) -> numbers for the log. Called without gradients, the network in eval mode, under the same autocast."""


@dataclass(frozen=True)
class TrainingResult:
    step: int
    seconds: float
    tokens: int
    last: Mapping[str, float]  # the last logged line
    evaluation: Mapping[str, float]  # the last evaluation, empty if there was none


def run_training(
    model: nn.Module,
    batches: Batches,
    loss_fn: LossFunction,
    settings: TrainingSettings,
    folder: Path,
    *,
    evaluate: Evaluation | None = None,
    progress_bar: bool = True,
) -> TrainingResult:
    """Train `model` in place until `settings.steps` or `settings.max_seconds`, whichever comes first.

    `folder` receives `log.jsonl` and `checkpoints/` (each with `model/`, if the model has `save(folder)`); if it holds
    a checkpoint the run resumes there.
    Raises TrainingDiverged when the loss or the gradient stops being finite.
    """
    run = _Run(model, batches, loss_fn, settings, folder, evaluate, progress_bar)
    run.start()
    return run.work()


@dataclass
class _Run:
    model: nn.Module
    batches: Batches
    loss_fn: LossFunction
    settings: TrainingSettings
    folder: Path
    evaluate: Evaluation | None
    progress_bar: bool
    accelerator: Accelerator = field(default_factory=Accelerator)
    progress: Progress = Progress()

    def __post_init__(self) -> None:
        if self.settings.activation_checkpointing:
            enable_activation_checkpointing(self.model)
        if self.settings.compile:
            compile_layers(self.model)
        # FSDP shards in place, and the optimizer must be made afterwards.
        self.sharded = self.settings.sharded or self.accelerator.distributed_type == DistributedType.FSDP
        if self.sharded:
            shard(self.model)
        self.optimizer = make_optimizer(self.model, self.settings)
        self.device = next(self.model.parameters()).device
        self.is_main = self.accelerator.is_main_process
        self.began = self.seconds_before = 0.0

    def start(self) -> None:
        """Seed the generators, or continue from the last checkpoint."""
        random.seed(self.settings.seed)
        numpy.random.seed(self.settings.seed % 2**32)
        torch.manual_seed(self.settings.seed)
        checkpoint = latest_checkpoint(self.folder / "checkpoints")
        if checkpoint is not None:
            self.progress = load_checkpoint(checkpoint, self.model, self.optimizer)
            assert self.progress.data is not None
            self.batches.load_state(self.progress.data)
        self.log = RunLog(self.folder / "log.jsonl", resumed_step=self.progress.step) if self.is_main else None

    def work(self) -> TrainingResult:
        settings = self.settings
        self.began, self.seconds_before = time.monotonic(), self.progress.seconds
        stream, window = iter(self.batches), _Window()
        last: dict[str, float] = {}
        evaluation: dict[str, float] = {}
        self.model.train()
        with tqdm(
            total=None if settings.max_seconds else settings.steps,
            initial=self.progress.step,
            unit="step",
            disable=not (self.progress_bar and self.is_main),
        ) as bar:
            if self.evaluate is not None and settings.evaluate_every and self.progress.step == 0:
                self.write_evaluation()  # the start of the curve
            finished = self.finished
            while not finished:
                rate = settings.rate(self.progress.step, self.seconds)
                norm = self.optimizer_step(stream, window, rate)
                finished = self.finished
                if self.due(settings.log_every) or finished:
                    last = window.summary() | {"learning_rate": rate}
                    last |= {} if norm is None else {"gradient_norm": norm}
                    self.write_log(last)
                    bar.set_postfix_str(self.postfix(last), refresh=False)
                    window = _Window()
                bar.update()
                if self.evaluate is not None and (finished or self.due(settings.evaluate_every)):
                    evaluation = self.write_evaluation()
                if finished or self.due(settings.save_every):
                    self.save()
        return TrainingResult(self.progress.step, self.progress.seconds, self.progress.tokens, last, evaluation)

    def optimizer_step(self, stream: Iterator[Any], window: "_Window", rate: float) -> float | None:
        """One update from `accumulation` micro-batches per process. Returns the gradient norm if clipping."""
        settings, losses = self.settings, []
        started, tokens = time.monotonic(), 0
        share = 1.0 if settings.sum_gradients else 1.0 / settings.accumulation
        for _ in range(settings.accumulation):
            with self.autocast():
                loss, metrics, num_tokens = self.loss_fn(self.model, self.next_batch(stream))
            torch.autograd.backward(loss * share)
            losses.append(loss.detach())
            tokens += num_tokens
            window.add(metrics)
        mean_loss, tokens = self.over_processes(torch.stack(losses).mean(), tokens)
        self.average_gradients()
        norm = None
        if settings.clip_norm is not None:
            norm = _item(nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm))
        if not math.isfinite(mean_loss) or (norm is not None and not math.isfinite(norm)):
            raise TrainingDiverged(
                f"Step {self.progress.step + 1}: loss {mean_loss}, gradient norm {norm}. The last checkpoint in "
                f"{self.folder / 'checkpoints'} is sound; "
                "resume from it with a lower learning rate, a longer warm-up or clipping."
            )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        window.add_step(mean_loss, tokens, time.monotonic() - started)
        self.progress = replace(
            self.progress,
            step=self.progress.step + 1,
            seconds=self.seconds,
            tokens=self.progress.tokens + tokens,
            data=self.batches.state(),
        )
        return norm

    def next_batch(self, stream: Iterator[Any]) -> Any:
        """Every process draws all batches and keeps its own, so that the position is the same number everywhere."""
        drawn = [next(stream) for _ in range(self.accelerator.num_processes)]
        return drawn[self.accelerator.process_index]

    def over_processes(self, loss: Tensor, tokens: int) -> tuple[float, int]:
        if self.accelerator.num_processes == 1:
            return float(loss), tokens
        both = self.accelerator.reduce(
            torch.stack((loss.double(), torch.tensor(float(tokens), device=loss.device, dtype=torch.float64)))
        )
        return float(both[0]) / self.accelerator.num_processes, int(both[1])

    def average_gradients(self) -> None:
        """Plain data parallelism. Sharded networks average in their own backward."""
        if self.accelerator.num_processes == 1 or self.sharded:
            return
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:  # unused here, perhaps used by another process: all must take part
                    parameter.grad = torch.zeros_like(parameter)
                parameter.grad = self.accelerator.reduce(parameter.grad, reduction="mean")

    def write_evaluation(self) -> dict[str, float]:
        """Leaves training as it was: random state and mode are restored, and its time does not count."""
        assert self.evaluate is not None
        started, cpu = time.monotonic(), torch.get_rng_state()
        self.model.eval()
        with torch.no_grad(), self.autocast():
            values = {name: float(value) for name, value in self.evaluate(self.model, self.progress.step).items()}
        self.model.train()
        torch.set_rng_state(cpu)
        self.began += time.monotonic() - started
        self.write_log({f"evaluation/{name}": value for name, value in values.items()})
        return values

    def save(self) -> None:
        started = time.monotonic()
        whole = not self.sharded and all(parameter.requires_grad for parameter in self.model.parameters())
        save_checkpoint(
            self.folder / "checkpoints",
            self.model,
            self.optimizer,
            self.progress,
            asdict(self.settings),
            keep=self.settings.keep_checkpoints,
            write=self.is_main,
            save_model=self.model.save if whole and isinstance(self.model, SavesItself) else None,
        )
        self.accelerator.wait_for_everyone()
        self.began += time.monotonic() - started

    def due(self, every: int) -> bool:
        return every > 0 and self.progress.step % every == 0

    def postfix(self, line: Mapping[str, float]) -> str:
        """What the progress bar shows of a logged line."""
        limit = self.settings.max_seconds
        left = "" if limit is None else f", {limit - self.seconds:,.0f} s left"
        return f"loss {line['loss']:.4f}, {line['tokens_per_second']:,.0f} tokens/s{left}"

    def write_log(self, values: Mapping[str, float]) -> None:
        if self.log is not None:
            self.log.write(self.progress.step, seconds=round(self.seconds, 3), tokens=self.progress.tokens, **values)

    def autocast(self) -> AbstractContextManager[Any]:
        if self.settings.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    @property
    def seconds(self) -> float:
        """Training time so far over all resumes, without evaluations and checkpoints."""
        return self.seconds_before + time.monotonic() - self.began

    @property
    def finished(self) -> bool:
        if self.progress.step >= self.settings.steps:
            return True
        limit = self.settings.max_seconds
        if limit is None:
            return False
        over = torch.tensor(float(self.progress.seconds >= limit), device=self.device)
        return bool(self.accelerator.reduce(over) if self.accelerator.num_processes > 1 else over)


class _Window:
    """Sums between two lines of the log. Tensors are only read when the line is written."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.steps = self.tokens = 0
        self.seconds = 0.0
        self.sums: dict[str, float | Tensor] = {}
        self.counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, float | Tensor]) -> None:
        for name, value in metrics.items():
            value = value.detach() if isinstance(value, Tensor) else value
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def add_step(self, loss: float, tokens: int, seconds: float) -> None:
        self.loss += loss
        self.steps += 1
        self.tokens += tokens
        self.seconds += seconds

    def summary(self) -> dict[str, float]:
        values = {name: float(total) / self.counts[name] for name, total in self.sums.items()}
        return {"loss": self.loss / self.steps, "tokens_per_second": self.tokens / max(1e-9, self.seconds)} | values


def _item(value: Tensor) -> float:
    return float(value.full_tensor() if isinstance(value, DTensor) else value)
