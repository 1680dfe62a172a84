import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from research.train.engine.batches import IndexedBatches
from research.train.engine.checkpoint import latest_checkpoint
from research.train.engine.network import make_optimizer
from research.train.engine.run_log import read_log
from research.train.engine.settings import TrainingSettings
from research.train.engine.trainer import TrainingDiverged, run_training
from research.train.evaluation.plot import plot_run


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.2), nn.Linear(32, 1))


def batch(index: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(index))
    return x, x.sum(-1, keepdim=True)


def squared_error(model: nn.Module, drawn: tuple[Tensor, Tensor]) -> tuple[Tensor, dict[str, float | Tensor], int]:
    x, y = drawn
    loss = (model(x) - y).pow(2).mean() * (1 + random.random() / 100)  # Python's generator is part of the state, too
    return loss, {"twice": 2 * loss}, len(x)


def settings(**changes: object) -> TrainingSettings:
    given = {"steps": 9, "learning_rate": 1e-2, "log_every": 1, "save_every": 3, "accumulation": 2, "precision": "fp32"}
    return TrainingSettings(**(given | changes))  # type: ignore[arg-type]


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in read_log(folder / "log.jsonl")]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", random.Random(5).sample(range(1, 18), 3))
def test_a_run_killed_at_any_step_resumes_with_the_same_losses(tmp_path: Path, at: int) -> None:
    run_training(network(), IndexedBatches(batch), squared_error, settings(), tmp_path / "whole", progress_bar=False)
    calls = 0

    def killed(model, drawn):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        if calls == at:
            raise Killed
        return squared_error(model, drawn)

    with pytest.raises(Killed):
        run_training(network(), IndexedBatches(batch), killed, settings(), tmp_path / "part", progress_bar=False)
    resumed = network()
    run_training(resumed, IndexedBatches(batch), squared_error, settings(), tmp_path / "part", progress_bar=False)
    assert losses(tmp_path / "part") == losses(tmp_path / "whole")
    final = load_file(latest_checkpoint(tmp_path / "whole" / "checkpoints") / "trained.safetensors")  # type: ignore[operator]
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in final.items())


def test_a_kill_while_writing_a_checkpoint_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_training(network(), IndexedBatches(batch), squared_error, settings(steps=3), tmp_path, progress_bar=False)
    before = latest_checkpoint(tmp_path / "checkpoints")

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("research.train.engine.checkpoint.os.replace", kill)
        with pytest.raises(Killed):
            run_training(network(), IndexedBatches(batch), squared_error, settings(), tmp_path, progress_bar=False)
    assert latest_checkpoint(tmp_path / "checkpoints") == before
    result = run_training(network(), IndexedBatches(batch), squared_error, settings(), tmp_path, progress_bar=False)
    assert result.step == 9
    assert not list((tmp_path / "checkpoints").glob(".unfinished*"))


@pytest.mark.slow
def test_a_process_killed_by_the_system_resumes(tmp_path: Path) -> None:
    script = f"""
import os, signal
from pathlib import Path
from research.train.engine.batches import IndexedBatches
from research.train.engine.trainer import run_training
from tests.research.engine.test_trainer import batch, network, settings, squared_error
calls = 0
def loss(model, drawn):
    global calls
    calls += 1
    if calls == 11: os.kill(os.getpid(), signal.SIGKILL)
    return squared_error(model, drawn)
run_training(network(), IndexedBatches(batch), loss, settings(), Path({str(tmp_path / "part")!r}), progress_bar=False)
"""
    killed = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[3])
    assert killed.returncode == -signal.SIGKILL
    run_training(network(), IndexedBatches(batch), squared_error, settings(), tmp_path / "part", progress_bar=False)
    run_training(network(), IndexedBatches(batch), squared_error, settings(), tmp_path / "whole", progress_bar=False)
    assert losses(tmp_path / "part") == losses(tmp_path / "whole")


def test_accumulated_micro_batches_are_one_large_batch(tmp_path: Path) -> None:
    def pairs(index: int) -> tuple[Tensor, Tensor]:
        a, b = batch(2 * index), batch(2 * index + 1)
        return torch.cat((a[0], b[0])), torch.cat((a[1], b[1]))

    def plain(model, drawn):  # type: ignore[no-untyped-def]
        return (model(drawn[0]) - drawn[1]).pow(2).mean(), {}, len(drawn[0])

    without_dropout = [nn.Sequential(network()[0], network()[2]) for _ in range(2)]
    small, large = without_dropout
    run_training(small, IndexedBatches(batch), plain, settings(steps=4), tmp_path / "a", progress_bar=False)
    run_training(
        large, IndexedBatches(pairs), plain, settings(steps=4, accumulation=1), tmp_path / "b", progress_bar=False
    )
    for a, b in zip(small.parameters(), large.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_weight_decay_leaves_vectors_alone_unless_asked() -> None:
    def decays(only_matrices: bool) -> dict[int, float]:
        optimizer = make_optimizer(network(), settings(weight_decay=0.1, decay_matrices_only=only_matrices))
        return {p.dim(): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}

    assert decays(True) == {2: 0.1, 1: 0.0}
    assert decays(False) == {2: 0.1, 1: 0.1}


def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    calls = 0

    def diverging(model, drawn):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        loss, metrics, tokens = squared_error(model, drawn)
        return (loss * float("nan") if calls > 10 else loss), metrics, tokens

    model = network()
    with pytest.raises(TrainingDiverged, match="lower learning rate"):
        run_training(model, IndexedBatches(batch), diverging, settings(), tmp_path, progress_bar=False)
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    assert latest_checkpoint(tmp_path / "checkpoints").name == "step-00000003"  # type: ignore[union-attr]


def test_evaluation_is_logged_and_leaves_training_as_it_was(tmp_path: Path) -> None:
    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        assert not model.training
        return {"loss": float(torch.rand(())), "at": float(step)}

    arguments = (IndexedBatches(batch), squared_error, settings(evaluate_every=4))
    run_training(network(), IndexedBatches(batch), squared_error, settings(), tmp_path / "plain", progress_bar=False)
    result = run_training(network(), *arguments, tmp_path / "seen", evaluate=evaluate, progress_bar=False)
    lines = read_log(tmp_path / "seen" / "log.jsonl")
    assert [line["evaluation/at"] for line in lines if "evaluation/at" in line] == [0, 4, 8, 9]
    assert [line["loss"] for line in lines if "loss" in line] == losses(tmp_path / "plain")
    assert result.evaluation["at"] == 9
    picture = plot_run(tmp_path / "seen").read_text()
    assert picture.count("<path") > 1 and "<svg" in picture


def test_a_run_ends_when_its_time_is_over(tmp_path: Path) -> None:
    result = run_training(
        network(),
        IndexedBatches(batch),
        squared_error,
        settings(steps=10**6, max_seconds=0.05, save_every=0),
        tmp_path,
        progress_bar=False,
    )
    assert 0 < result.step < 10**6
    assert latest_checkpoint(tmp_path / "checkpoints") is not None


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    run_training(network(), IndexedBatches(batch), squared_error, settings(steps=1), tmp_path, progress_bar=False)
    with pytest.raises(ValueError, match="another network"):
        run_training(nn.Linear(8, 1), IndexedBatches(batch), squared_error, settings(), tmp_path, progress_bar=False)
