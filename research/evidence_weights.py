"""Which heads' attention predicts what a block does to an answer: weights fitted to leaving blocks out.

A linear estimator over layers and heads, as AT2 fits one (arXiv 2504.13752): effect of a block = sum over layers and
heads of weight x mass. Plain means over heads count heads that only look around as much as those that copy.

Axes: N pairs of an answer and a block that it read, Y memory layers, H query heads.
"""

import torch
from torch import Tensor

ITERATIONS = 2000


def fit_evidence_weights(mass_NYH: Tensor, effects_N: Tensor, *, ridge: float = 0.1) -> Tensor:
    """weights_YH >= 0 with mean 1, for `LandmarkConfig.evidence_weights`.

    `effects_N`: nats by which an answer becomes less likely without the block. Least squares under a ridge towards
    equal weights, by projected gradients; the scale of the effects does not matter. Raises ValueError where there is
    nothing to fit.
    """
    if not len(effects_N) or not bool(effects_N.any()):
        raise ValueError("No block that was left out changed an answer, so there is nothing to fit weights to.")
    features_NF = mass_NYH.flatten(1).double()
    features_NF = features_NF / features_NF.sum(1).std(correction=0).clamp_min(1e-9)
    target_N = effects_N.double() / effects_N.double().std(correction=0).clamp_min(1e-9)
    equal_F = torch.full(
        (features_NF.shape[1],), float(features_NF.sum(1) @ target_N / features_NF.sum(1).square().sum())
    )
    gram_FF = features_NF.T @ features_NF / len(target_N) + ridge * torch.eye(features_NF.shape[1]).double()
    wanted_F = features_NF.T @ target_N / len(target_N) + ridge * equal_F.double()
    step = 1.0 / float(torch.linalg.eigvalsh(gram_FF)[-1])
    weights_F = equal_F.double().clamp_min(0.0)
    for _ in range(ITERATIONS):
        weights_F = (weights_F - step * (gram_FF @ weights_F - wanted_F)).clamp_min(0.0)
    if not bool(weights_F.any()):
        raise ValueError("No head's attention predicts what leaving blocks out does.")
    return (weights_F / weights_F.mean()).float().view(mass_NYH.shape[1:])
