"""The ranker: fitted weights of sentence features, and the calibration of the decision, in one file.

`ranker.json` is part of a checkpoint. It is fitted to its finder and its reader, whose scores it weighs:

- `features`: names in order (`retrieval.query.features`); `before`: their weights where nothing was read, `after`:
  where a reader read the sentences. A sentence's score is the weighted sum.
- `decision`: two logistic regressions over answer features and four thresholds, see `Decision`.
- `fitted_on`: what the numbers come from.

`python -m research.fit_ranker` writes it. A checkpoint without one is ranked by the reader's log-probability and 25
times late interaction, and is not calibrated.

Axes: S sentences, F features.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from model.errors import ModelError

FILE = "ranker.json"
FORMAT = 2
Stage = Literal["before", "after"]
_SMALLEST = 1e-5
AnswerFeatures = Mapping[str, float]
"""By name: the features of the answer's sentence; `none`, log-odds of the reader's p_none; `lead`, its score minus that
of the next sentence (at most `MOST_LEAD`); `block`, late-interaction score of the best block; `unmatched`, share of the
question's words that no block found contains."""
Weights = Mapping[str, float]
"""Of a logistic regression, by answer feature."""
CONSTANT = "constant"
ANSWER_FEATURES = (CONSTANT, "none", "lead", "block", "unmatched")
"""Those that are not features of a sentence."""
MOST_LEAD = 10.0


@dataclass(frozen=True)
class Decision:
    """When to answer. `none`, `right`: logistic regressions over `AnswerFeatures`, with a constant. They give the
    probability that there is no answer (p_none) and that the sentence alone is right (p_right). None: a reader's own
    thresholds decide (`SpanReader`)."""

    none: Weights | None = None
    right: Weights | None = None
    none_above: float = 1.0
    """From this p_none on no answer is given."""
    sure_above: float = 0.0
    """Below this p_right an answer is a guess."""
    answer_threshold: float | None = None
    """Without a reader: below this confidence of the search the memory is taken to hold no answer."""
    sure_threshold: float | None = None
    """Without a reader: a sentence that stands out less is a guess."""

    def p_none(self, features: AnswerFeatures) -> float:
        assert self.none is not None, "fitted with a reader"
        return _probability(self.none, features)

    def p_right(self, features: AnswerFeatures) -> float:
        assert self.right is not None, "fitted with a reader"
        return _probability(self.right, features)

    def is_sure(self, features: AnswerFeatures) -> bool:
        return self.p_right(features) >= self.sure_above


def _probability(weights: Weights, features: AnswerFeatures) -> float:
    """Of a logistic regression; a feature that is not known counts 0."""
    known = {**features, CONSTANT: 1.0}
    summed = sum(weight * known.get(name, 0.0) for name, weight in weights.items())
    return 1 / (1 + math.exp(-max(-700.0, summed)))


def log_odds(probability: float) -> float:
    inside = min(max(probability, _SMALLEST), 1 - _SMALLEST)
    return math.log(inside / (1 - inside))


@dataclass(frozen=True)
class Ranker:
    """The file as a value; the default is for checkpoints without one."""

    features: tuple[str, ...] = ("late_interaction", "reader_logprob")
    weights_without_reader: tuple[float, ...] = (1.0, 0.0)
    weights_with_reader: tuple[float, ...] = (25.0, 1.0)
    decision: Decision = Decision()
    fitted_on: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def scores(self, table_SF: Tensor, stage: Stage) -> Tensor:
        """scores_S of the features in the order of `features`."""
        return table_SF @ torch.tensor(self.weights_without_reader if stage == "before" else self.weights_with_reader)

    @property
    def weighs_reading(self) -> bool:
        """Whether it was fitted with a reader: then nothing is refused before the reader has read."""
        return self.decision.none is not None

    @property
    def is_calibrated(self) -> bool:
        return self.decision != Decision()

    def without_reader(self) -> Ranker:
        """The same ranker, which decides without a reader: for libraries whose reader is turned off."""
        return replace(self, decision=replace(self.decision, none=None, right=None))

    @classmethod
    def load(cls, folder: Path, finder: str, reader: str) -> Ranker:
        """`ranker.json` in `folder`; the default without one. `finder`: digest of the finder's weights; `reader`: see
        `reader_digest`. Raises `ModelError` for a damaged file and for another finder's or reader's."""
        file = folder / FILE
        if not file.is_file():
            return cls()
        try:
            given = json.loads(file.read_text(encoding="utf-8"))
            ranker = cls(
                tuple(given["features"]),
                tuple(map(float, given["before"])),
                tuple(map(float, given["after"])),
                _decision(given["decision"]),
                given["fitted_on"],
            )
            digests, version = (given["finder"], given["reader"]), given["format"]
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(f"{file} cannot be used ({error!r}); copy the checkpoint again.") from error
        if version != FORMAT:
            raise ModelError(f"{file} has format {version}, which this version does not know; update Cairn.")
        if not len(ranker.features) == len(ranker.weights_without_reader) == len(ranker.weights_with_reader):
            raise ModelError(f"{file} has unequal numbers of features and weights; copy the checkpoint again.")
        features = {*(ranker.decision.none or ()), *(ranker.decision.right or ())}
        if unknown := features - {*ranker.features, *ANSWER_FEATURES}:
            raise ModelError(
                f"{file} has weights for unknown features: {', '.join(sorted(unknown))}; copy the checkpoint again."
            )
        if digests != (finder, reader):
            raise ModelError(
                f"{file} was fitted to another finder or reader; fit it again (python -m research.fit_ranker), or "
                "remove it: then nothing is calibrated."
            )
        return ranker

    def save(self, folder: Path, finder: str, reader: str) -> None:
        plain = {
            "format": FORMAT,
            "finder": finder,
            "reader": reader,
            "features": self.features,
            "before": self.weights_without_reader,
            "after": self.weights_with_reader,
            "decision": vars(self.decision),
            "fitted_on": dict(self.fitted_on),
        }
        (folder / FILE).write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")


def _decision(given: Mapping[str, Any]) -> Decision:
    """Raises ValueError, TypeError, KeyError or AttributeError for anything else than what `save` wrote."""
    features = {
        name: None if given[name] is None else {str(feature): float(weight) for feature, weight in given[name].items()}
        for name in ("none", "right")
    }
    names = ("none_above", "sure_above", "answer_threshold", "sure_threshold")
    numbers = {name: None if given[name] is None else float(given[name]) for name in names}
    return Decision(**features, **numbers)  # type: ignore[arg-type]


def reader_digest(folder: Path) -> str:
    """sha256 of the weights of the reader in `folder`, then of what lies below it: a second one, a passage encoder; ""
    without any."""
    digest, files = hashlib.sha256(), sorted(folder.rglob("model.safetensors"))
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest() if files else ""
