"""Twenty steps of the tiny preset on a fixed text give the recorded losses. To record anew (with a reason):

python -c "from tests.research.engine.test_golden import record; record()"
"""

import json
import tempfile
from pathlib import Path

import pytest

from research.train.engine.run_log import read_log
from research.train.recipes.presets import load_preset
from research.train.recipes.pretrain import byte_tokenizer, pretrain

RECORDED = Path(__file__).parents[2] / "golden" / "tiny_losses.json"


def synthetic_text() -> str:
    """Sentences with some order in them, made without any random generator."""
    names, places = ("Ada", "Bea", "Cem", "Dov", "Eve"), ("garden", "harbour", "library", "market")
    return " ".join(
        f"{names[n * n % 5]} went to the {places[(n * 7 + n // 3) % 4]} with {n * 37 % 101} coins." for n in range(400)
    )


def twenty_losses(folder: Path, precision: str = "fp32") -> list[float]:
    (folder / "text.txt").write_text(synthetic_text())
    preset = load_preset("tiny", [f"training.precision={precision}"])
    pretrain(preset, byte_tokenizer(), [folder / "text.txt"], folder / "run", device="cpu", progress_bar=False)
    return [line["loss"] for line in read_log(folder / "run" / "log.jsonl")]


def record() -> None:
    with tempfile.TemporaryDirectory() as folder:
        RECORDED.write_text(json.dumps([round(loss, 6) for loss in twenty_losses(Path(folder))], indent=1) + "\n")


def test_twenty_steps_of_the_tiny_preset_give_the_recorded_losses(tmp_path: Path) -> None:
    losses = twenty_losses(tmp_path)
    assert losses == pytest.approx(json.loads(RECORDED.read_text()), abs=1e-4)
    assert losses[-1] < losses[0] - 1.0


@pytest.mark.slow
def test_bf16_autocast_follows_the_same_losses(tmp_path: Path) -> None:
    assert twenty_losses(tmp_path, "bf16") == pytest.approx(json.loads(RECORDED.read_text()), abs=0.05)
