"""That the paper's tables measure networks which have learned: far better than chance, and by what they remember."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from research.train.paper.made_series import LEVELS
from research.train.paper.made_sets import MADE_SETS
from research.train.paper.runs import Experiment, evaluate
from research.train.paper.sizes import SIZES
from research.train.paper.tables import passkey

pytestmark = pytest.mark.slow
SIZE = replace(SIZES["minutes"], rates=(2e-3,), segments=4)


def experiment(folder: Path, name: str) -> Experiment:
    made = MADE_SETS[name]
    found = Experiment(folder, SIZE, made.tokenizer(), "cpu")
    found.prepare(made.train(SIZE.documents), made.heldout(SIZE.segments, max(SIZE.lengths)))
    return found


def test_what_lies_sixteen_rows_back_is_read_through_landmarks(tmp_path: Path) -> None:
    """Readings of a meter whose course only earlier days tell: without memory a network is hardly better than who knows
    no day."""
    made, arm = experiment(tmp_path, "series"), SIZE.arm("landmark")
    window, memory = evaluate(arm, made.trained(arm, 0), made.heldout(), 1024, (0, 2))
    assert memory["loss"] < window["loss"] - 0.1 < math.log(LEVELS)


def test_a_pass_key_is_found_far_beyond_the_rows_of_training(tmp_path: Path) -> None:
    rows = [row for row in passkey(experiment(tmp_path, "passkey"), seeds=1) if row["length"] > 4 * SIZE.window]
    causal, tuned = (
        {row["length"]: row["accuracy"] for row in rows if row["arm"] == arm and row["k"] in (0, 4)}
        for arm in ("causal", "landmark-tuned")
    )
    assert len(tuned) == 2 and causal.keys() == tuned.keys()
    assert all(tuned[length] >= max(0.3, causal[length] + 0.2) for length in tuned), (causal, tuned)
