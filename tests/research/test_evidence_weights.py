"""Weights of heads from what leaving blocks out did."""

import pytest
import torch

from research.evidence_weights import fit_evidence_weights


def test_the_head_that_copies_is_found_among_those_that_look_around() -> None:
    drawn = torch.Generator().manual_seed(0)
    mass_NYH = torch.rand(200, 2, 3, generator=drawn)
    effects_N = 5.0 * mass_NYH[:, 1, 2] + 0.1 * torch.randn(200, generator=drawn)
    weights_YH = fit_evidence_weights(mass_NYH, effects_N, ridge=0.01)
    assert weights_YH.shape == (2, 3) and float(weights_YH.mean()) == pytest.approx(1.0)
    assert int(weights_YH.argmax()) == 5 and float(weights_YH[1, 2]) > 4.0 and bool((weights_YH >= 0).all())


def test_effects_that_are_all_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing to fit"):
        fit_evidence_weights(torch.rand(4, 1, 2), torch.zeros(4))
