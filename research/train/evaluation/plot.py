"""The losses of a run as an SVG file."""

from pathlib import Path

from research.train.engine.run_log import read_log

SERIES = {"loss": "training loss", "evaluation/loss": "held-out loss"}


def plot_run(run: Path, file: Path | None = None) -> Path:
    """Draw training and held-out loss over steps; returns the file (`run/loss.svg` unless given).

    Raises ValueError if the run has no log.
    """
    from matplotlib.figure import Figure  # slow to load

    log = run / "log.jsonl"
    if not log.is_file():
        raise ValueError(f"{log} does not exist: give the folder of a training run.")
    lines = read_log(log)
    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    axes = figure.add_subplot(xlabel="optimizer steps", ylabel="loss (nats)")
    for name, label in SERIES.items():
        if points := [(line["step"], line[name]) for line in lines if name in line]:
            axes.plot(*zip(*points, strict=True), label=label)
    if not axes.lines:
        raise ValueError(f"{log} holds no losses yet.")
    axes.grid(alpha=0.3)
    axes.legend()
    file = file or run / "loss.svg"
    figure.savefig(file, format="svg")
    return file
