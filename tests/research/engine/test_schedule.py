import math

import pytest
import torch

from research.train.engine.schedule import rate_factor
from research.train.engine.settings import TrainingSettings


def torch_rates(make, steps: int) -> list[float]:  # type: ignore[no-untyped-def]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("num_cycles", [0.5, 0.4])
def test_cosine_is_that_of_transformers(num_cycles: float) -> None:
    from transformers import get_cosine_schedule_with_warmup  # here: it takes a second, in every process of the tests

    wanted = torch_rates(lambda o: get_cosine_schedule_with_warmup(o, 6, 60, num_cycles), 60)
    found = [rate_factor("cosine", step, 60, warmup=0.1, num_cycles=num_cycles) for step in range(60)]
    assert found == pytest.approx(wanted, abs=1e-9)


def test_one_cycle_is_that_of_torch() -> None:
    wanted = torch_rates(
        lambda o: torch.optim.lr_scheduler.OneCycleLR(
            o, 1.0, total_steps=100, pct_start=0.05, div_factor=100, final_div_factor=0.05
        ),
        100,
    )
    found = [rate_factor("one-cycle", step, 100, warmup=0.05, start_ratio=0.01, final_ratio=0.2) for step in range(100)]
    assert found == pytest.approx(wanted, abs=1e-9)


def test_the_published_fine_tuning_ends_near_a_tenth_of_its_rate() -> None:
    assert rate_factor("cosine", 15000, 15000, warmup=0.03, num_cycles=0.4) == pytest.approx(0.0955, abs=1e-3)


def test_a_trapezoid_warms_up_stays_and_falls() -> None:
    factors = [
        rate_factor("trapezoid", step, 100, warmup=0.1, decay=0.2, final_ratio=0.1) for step in (0, 5, 50, 90, 100)
    ]
    assert factors == pytest.approx([0.0, 0.5, 1.0, 0.55, 0.1])


def test_a_run_bounded_by_time_follows_the_clock_when_that_is_further() -> None:
    settings = TrainingSettings(steps=1000, learning_rate=2.0, schedule="trapezoid", decay=0.5, max_seconds=60)
    assert settings.rate(step=0, seconds=45.0) == pytest.approx(1.0)
    assert settings.rate(step=750, seconds=0.0) == pytest.approx(1.0)
    assert settings.rate(step=0, seconds=600.0) == pytest.approx(0.0)


@pytest.mark.parametrize("name", ["linear", "", "Cosine"])
def test_an_unknown_schedule_is_refused_when_the_settings_are_made(name: str) -> None:
    with pytest.raises(ValueError, match="constant, cosine, one-cycle or trapezoid"):
        TrainingSettings(steps=1, learning_rate=1.0, schedule=name)  # type: ignore[arg-type]


def test_constant_stays_at_its_peak() -> None:
    assert all(math.isclose(rate_factor("constant", step, 10, warmup=0.2), min(1.0, step / 2)) for step in range(10))
