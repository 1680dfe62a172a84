"""The curves of a run as an SVG file, without any plotting package."""

import html
from collections.abc import Sequence
from pathlib import Path

from model.training.engine.run_log import read_log

WIDTH, HEIGHT, MARGIN = 860, 420, 56
SERIES = (("loss", "training loss", "#4477aa"), ("evaluation/loss", "held-out loss", "#ee6677"))


def plot_run(run: Path, file: Path | None = None) -> Path:
    """Draw training and held-out loss over steps; returns the file (`run/loss.svg` unless given).

    Raises ValueError if the run has no log.
    """
    log = run / "log.jsonl"
    if not log.is_file():
        raise ValueError(f"{log} does not exist: give the folder of a training run.")
    lines = read_log(log)
    curves = [
        (label, colour, [(line["step"], float(line[name])) for line in lines if name in line])
        for name, label, colour in SERIES
    ]
    points = [point for _, _, curve in curves for point in curve]
    if not points:
        raise ValueError(f"{log} holds no losses yet.")
    file = file or run / "loss.svg"
    file.write_text(_svg(curves, points), encoding="utf-8")
    return file


def _svg(curves: Sequence[tuple[str, str, list[tuple[int, float]]]], points: Sequence[tuple[int, float]]) -> str:
    last = max(1, max(step for step, _ in points))
    low, high = min(value for _, value in points), max(value for _, value in points)
    span = (high - low) or 1.0

    def x(step: float) -> float:
        return MARGIN + step / last * (WIDTH - 2 * MARGIN)

    def y(value: float) -> float:
        return HEIGHT - MARGIN - (value - low) / span * (HEIGHT - 2 * MARGIN)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for part in range(6):
        value, step = low + span * part / 5, last * part / 5
        parts.append(f'<path d="M{MARGIN} {y(value):.1f}H{WIDTH - MARGIN}" stroke="#dddddd"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>')
        parts.append(f'<text x="{x(step):.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{step:,.0f}</text>')
    for number, (label, colour, curve) in enumerate(curves):
        if curve:
            path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in curve)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
            left = MARGIN + 150 * number
            parts.append(f'<text x="{left}" y="{MARGIN - 24}" fill="{colour}">{html.escape(label)}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">optimizer steps</text></svg>')
    return "\n".join(parts) + "\n"
