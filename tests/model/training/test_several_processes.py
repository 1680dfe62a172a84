"""Two processes on the CPU (gloo): the same run as one process with twice the accumulation."""

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from model.training.log import read_log
from tests.model.training.test_golden import synthetic_text

ROOT = Path(__file__).parents[3]


def train(folder: Path, name: str, processes: int, *changes: str) -> list[float]:
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", str(processes)]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    run = ["-m", "model.training", "pretrain", "--preset", "tiny", "--tokenizer", "bytes", "--device", "cpu"]
    values = ["training.steps=4", "rows.rows=2", f"training.accumulation={2 // processes}", *changes]
    sets = [part for value in values for part in ("--set", value)]
    data = ["--data", str(folder / "text.txt"), "--out", str(folder / name)]
    subprocess.run([*launch, *run, *sets, *data], cwd=ROOT, check=True, timeout=600)
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
    whole = train(tmp_path, "whole", 2, "training.sharded=true")
    train(tmp_path, "part", 2, "training.sharded=true", "training.steps=2", "training.schedule=constant")
    resumed = train(tmp_path, "part", 2, "training.sharded=true", "training.schedule=constant")
    constant = train(tmp_path, "constant", 2, "training.sharded=true", "training.schedule=constant")
    assert resumed == pytest.approx(constant, abs=1e-5)
    assert len(whole) == 4
