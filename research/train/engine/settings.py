"""What a training run is asked to do. Frozen values; presets/*.toml files and the command line fill them."""

from dataclasses import dataclass
from typing import Literal

from research.train.engine.schedule import ScheduleName, rate_factor


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    steps: int  # optimizer steps
    learning_rate: float
    schedule: ScheduleName = "cosine"
    warmup: float = 0.0  # fraction of the steps
    num_cycles: float = 0.5  # cosine: 0.5 ends at 0, 0.4 near a tenth of the peak
    start_ratio: float = 0.01  # one-cycle: first rate / peak
    final_ratio: float = 0.0  # one-cycle, trapezoid: last rate / peak
    decay: float = 0.2  # trapezoid: fraction of the steps that the fall takes
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decay_matrices_only: bool = True  # False: norms, biases and the rest decay as well
    clip_norm: float | None = 1.0  # None: gradients are not clipped
    accumulation: int = 1  # micro-batches per optimizer step and process
    sum_gradients: bool = False  # True: accumulated losses are summed, not averaged (lm_benchmark does so)
    precision: Literal["fp32", "bf16"] = "bf16"  # bf16: autocast; weights and optimizer state stay as they are
    activation_checkpointing: bool = False
    compile: bool = False  # torch.compile of the network, in place
    sharded: bool = False  # weights, gradients and optimizer state split over the processes (FSDP2)
    seed: int = 0
    log_every: int = 10
    evaluate_every: int = 0  # 0: only at the end, if there is something to evaluate
    save_every: int = 0  # 0: only at the end
    keep_checkpoints: int = 2
    max_seconds: float | None = None  # over all resumes; the schedule follows steps or time, whichever is further

    def __post_init__(self) -> None:
        if self.steps < 1 or self.accumulation < 1 or self.log_every < 1 or self.keep_checkpoints < 1:
            raise ValueError("steps, accumulation, log_every and keep_checkpoints must be at least 1.")
        if self.max_seconds is not None and self.max_seconds <= 0:
            raise ValueError("max_seconds must be positive; leave it out for no limit.")
        if self.precision not in ("fp32", "bf16"):
            raise ValueError(f"precision must be fp32 or bf16, not {self.precision!r}.")
        self.rate(0, 0.0)  # an unknown schedule fails here, not an hour later

    def rate(self, step: int, seconds: float) -> float:
        """Learning rate of optimizer step `step` (0-based) after `seconds` of training."""
        at = float(step)
        if self.max_seconds is not None:
            at = max(at, min(1.0, seconds / self.max_seconds) * self.steps)
        return self.learning_rate * rate_factor(
            self.schedule,
            at,
            self.steps,
            warmup=self.warmup,
            num_cycles=self.num_cycles,
            start_ratio=self.start_ratio,
            final_ratio=self.final_ratio,
            decay=self.decay,
        )
