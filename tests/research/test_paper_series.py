"""The made set that is not language: what can be known of it, and by whom."""

import math
import re

import numpy as np
import pytest

from research.train.paper.made_series import HOURS, LEVELS, NOISE, READINGS, least_loss, made_series, series_tokenizer
from research.train.paper.runs import experiment_texts, experiment_tokenizer
from research.train.paper.sizes import SIZES


def test_the_hour_goes_on_and_its_level_comes_back() -> None:
    (text,) = made_series(1, seed=5, readings=4096)
    readings = np.array([[int(n) for n in re.fullmatch(r"h(\d\d)v(\d)", word).groups()] for word in text.split()])  # type: ignore[union-attr]
    assert len(readings) == 4096 and bool((np.diff(readings[:, 0]) % HOURS == 1).all())
    usual = {hour: np.bincount(readings[readings[:, 0] == hour, 1]).argmax() for hour in range(HOURS)}
    right = np.mean([usual[hour] == level for hour, level in readings.tolist()])
    assert right == pytest.approx(1 - NOISE + NOISE / LEVELS, abs=0.02)
    assert list(made_series(2, seed=5, readings=4096))[0] == text, "the same seed gives the same meters"
    assert list(made_series(2, seed=5, readings=4096))[1] != text


def test_the_least_loss_is_that_of_who_knows_the_course() -> None:
    random = np.random.default_rng(0)
    noise = random.random(200_000) < NOISE
    level = np.where(noise, random.integers(0, LEVELS, 200_000), 3)
    probability = np.full(LEVELS, NOISE / LEVELS)
    probability[3] += 1 - NOISE
    assert least_loss() == pytest.approx(-np.log(probability[level]).mean(), abs=0.01)
    assert least_loss() < math.log(LEVELS)


def test_every_reading_is_a_token() -> None:
    (text,) = made_series(1, seed=1)
    tokenizer = series_tokenizer()
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == READINGS and max(ids) < HOURS * LEVELS
    assert tokenizer.decode(ids[:3]) == " ".join(text.split()[:3])


def test_the_word_series_stands_for_the_made_set(tmp_path) -> None:  # type: ignore[no-untyped-def]
    train, heldout = experiment_texts(["series"], [], SIZES["minutes"])
    assert next(iter(train)) != next(iter(heldout)), "held-out meters are others"
    assert len(experiment_tokenizer("bytes", ["series"], tmp_path)) == HOURS * LEVELS + 1
    with pytest.raises(ValueError, match="--heldout"):
        experiment_texts(["text.txt"], [], SIZES["minutes"])


def test_a_tokenizer_is_learned_once_and_kept(tmp_path) -> None:  # type: ignore[no-untyped-def]
    text = tmp_path / "text.txt"
    text.write_text("It has stood on the summit since then, and nobody knows for how long. " * 20)
    learned = experiment_tokenizer("bpe-310", [str(text)], tmp_path)
    assert len(learned) <= 310 and len(learned("nobody knows")["input_ids"]) < len("nobody knows")
    text.write_text("")
    assert experiment_tokenizer("bpe-310", [str(text)], tmp_path).get_vocab() == learned.get_vocab()
    with pytest.raises(ValueError, match="bpe-N"):
        experiment_tokenizer("bpe-12", [str(text)], tmp_path)
