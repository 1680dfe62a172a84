"""The size that names of published models tell."""

from __future__ import annotations

import pytest

from retrieval.writers.server import weights_in_name


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("qwen3:0.6b", 600_000_000),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", 135_000_000),
        ("meta-llama/Llama-3.2-1B-Instruct", 1_000_000_000),
        ("Qwen/Qwen3-4B-Instruct-2507", 4_000_000_000),
        ("llama3.1:8b-instruct-q4_K_M", 8_000_000_000),
        ("gpt-5-mini", None),
        ("qwen3-30b-a3b", 30_000_000_000),
        ("the model at 10.0.0.7", None),
        ("mixtral-8x7b", None),
        ("draft-0.5b-for-8b", None),
    ],
)
def test_the_size_in_a_name(name: str, weights: int | None) -> None:
    assert weights_in_name(name) == weights
