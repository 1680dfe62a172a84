"""Two processes on the CPU (gloo): the same run as one process with twice the accumulation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from research.train.engine.run_log import read_log
from tests.research.engine.test_golden import synthetic_text

ROOT = Path(__file__).parents[3]


def train(folder: Path, name: str, processes: int, *changes: str) -> list[float]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    run = ["-m", "research.train", "pretrain", "--preset", "tiny", "--tokenizer", "bytes", "--device", "cpu"]
    values = ["training.steps=4", "rows.rows=2", f"training.accumulation={2 // processes}", *changes]
    sets = [part for value in values for part in ("--set", value)]
    data = [str(folder / "text.txt"), "--out", str(folder / name)]
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    subprocess.run([*launch, *run, *sets, *data], cwd=ROOT, check=True, timeout=600, env=environment)
    return [line["loss"] for line in read_log(folder / name / "log.jsonl")]


@pytest.mark.slow
def test_two_processes_train_as_one_with_twice_the_accumulation(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(synthetic_text())
    alone = train(tmp_path, "alone", 1)
    assert train(tmp_path, "two", 2) == pytest.approx(alone, abs=1e-4)
    assert train(tmp_path, "sharded", 2, "training.sharded=true") == pytest.approx(alone, abs=1e-4)
    weights = [load_file(tmp_path / name / "model" / "model.safetensors") for name in ("alone", "two", "sharded")]
    for other in weights[1:]:
        assert set(other) == set(weights[0])
        assert all((other[name] - weights[0][name]).abs().max() < 1e-3 for name in other)


@pytest.mark.slow
def test_a_sharded_run_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(synthetic_text())
    sharded = ("training.sharded=true", "training.schedule=constant")
    whole = train(tmp_path, "whole", 2, *sharded)
    train(tmp_path, "part", 2, *sharded, "training.steps=2")
    assert train(tmp_path, "part", 2, *sharded) == pytest.approx(whole, abs=1e-6)
