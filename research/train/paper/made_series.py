"""A made set that is not language: hourly readings of meters, each with a daily course of its own.

- A token is an hour of the day and one of eight levels, so that the time is always known.
- Every meter has a level for each hour, drawn once; one reading in five is noise. Nothing but earlier days tells what
  the next hour brings, and several days tell it better than one: what a window does not hold, a memory may.
- Made, so it may be had anywhere: the same seed gives the same meters.

Axes: N readings of a meter, P hours of a day.
"""

from collections.abc import Iterator

import numpy as np
from transformers import PreTrainedTokenizerFast

from research.train.paper.made_words import word_tokenizer

HOURS, LEVELS, NOISE = 24, 8, 0.2
READINGS = 256
"""Of a meter to train on: few, so that there are many meters. A network that meets the same few again and again learns
their courses by heart (160 meters of 4,096 readings are enough for that), and not to look back."""


def made_series(meters: int, seed: int, *, readings: int = READINGS) -> Iterator[str]:
    """Texts of one meter each: words such as h07v3, separated by blanks."""
    random = np.random.default_rng(seed)
    for _ in range(meters):
        course_P = random.integers(0, LEVELS, HOURS)
        hour_N = (np.arange(readings) + random.integers(0, HOURS)) % HOURS
        level_N = course_P[hour_N]
        noisy_N = random.random(readings) < NOISE
        level_N[noisy_N] = random.integers(0, LEVELS, int(noisy_N.sum()))
        yield " ".join(_word(hour, level) for hour, level in zip(hour_N.tolist(), level_N.tolist(), strict=True))


def series_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each hour and level, and an end of text."""
    return word_tokenizer([_word(hour, level) for hour in range(HOURS) for level in range(LEVELS)])


def least_loss() -> float:
    """Nats of a reading for who knows the meter's course: nothing does better. Who knows no day needs log(LEVELS).
    The oracle of the set: what losses in the tables are held against."""
    other = NOISE / LEVELS
    right = 1 - NOISE + other
    return float(-right * np.log(right) - (LEVELS - 1) * other * np.log(other))


def _word(hour: int, level: int) -> str:
    return f"h{hour:02d}v{level}"
