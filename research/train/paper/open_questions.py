"""Tables of what the paper leaves open: passages in the window; and passkeys after fine-tuning.

Each reads the same held-out segments through networks of the experiment; see docs/paper.md.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from model.attention.selection import SelectionPolicy
from model.checkpoint.landmark_model import LandmarkModel
from research.train.convert.init_from_encoder import Encoder
from research.train.evaluation.passkey import FILLER, passkey_scores
from research.train.evaluation.perplexity import segment_losses
from research.train.paper.arms import Arm
from research.train.paper.passages import Chooser, bm25, nearest, newest, passage_losses
from research.train.paper.runs import Experiment, Row


def passages(experiment: Experiment, seeds: int) -> list[Row]:
    """Open question 2: blocks read by landmarks against passages that BM25 and, if there is one, a sentence encoder
    choose, at equal retrieved tokens.

    `read`: tokens that pass through the network for each one predicted; an encoder reads every token once more.
    """
    choosers: dict[str, Chooser] = {"BM25": bm25, "newest": newest}
    if experiment.encoder is not None:
        choosers["encoder"] = nearest(
            Encoder.load(experiment.encoder), lambda ids: str(experiment.tokenizer.decode(list(ids)))
        )
    size = experiment.size

    def score(arm: Arm, model: LandmarkModel) -> list[Row]:
        found = []
        for length in size.lengths[1:]:
            segments = _segments(experiment, length)
            for k in size.top_ks:
                window = _window(experiment, k)
                shown: Row = {"arm": arm.name, "length": length, "local": window * size.per_block, "k": k}
                losses = [segment_losses(model, one, window_blocks=window, top_k=k) for one in segments]
                found.append(shown | {"passages": "landmarks", "stride": window, "read": 1.0, "loss": _mean(losses)})
                for name, choose in choosers.items():
                    for stride in sorted({window, 1}, reverse=True):
                        losses = [
                            passage_losses(model, one, window_blocks=window, k=k, choose=choose, stride=stride)
                            for one in segments
                        ]
                        read = round((window + k) / stride, 2)
                        found.append(shown | {"passages": name, "stride": stride, "read": read, "loss": _mean(losses)})
        return found

    return experiment.rows_of("passages", ["landmark"], seeds, score)


def passkey(experiment: Experiment, seeds: int) -> list[Row]:
    """The fine-tuning experiment (section 4.2): passkeys found by length, before and after a causal network is
    fine-tuned with landmarks on rows of the same length. Before, the whole prompt is read at once."""
    size = experiment.size
    per_filler = len(experiment.tokenizer(FILLER)["input_ids"])

    def score(arm: Arm, model: LandmarkModel) -> list[Row]:
        found = []
        for k in size.top_ks if arm.kind == "landmark" else (0,):
            # The causal network has one block, which nothing ends.
            policy = SelectionPolicy(top_k=k or 1, voters="token", positions="paper")
            window = _window(experiment, k) if k else 1
            fillers = [round(length / per_filler) * len(FILLER) for length in (0, *size.lengths)]
            scores = passkey_scores(model, fillers, prompts=size.prompts, policy=policy, window_blocks=window)
            for one in scores:
                row = {"arm": arm.name, "filler": one.filler_characters, "length": round(one.mean_tokens), "k": k}
                found.append(row | {"accuracy": one.accuracy})
        return found

    return experiment.rows_of("passkey", ("causal", "landmark-tuned"), seeds, score)


def _window(experiment: Experiment, k: int) -> int:
    """Blocks of a window that leaves room for k blocks and a free slot in a trained row."""
    window = experiment.size.window // experiment.size.per_block - k - 1
    if window < 1:
        raise ValueError(f"k={k} leaves no block for the window in rows of {experiment.size.window} tokens.")
    return window


def _segments(experiment: Experiment, length: int) -> list[list[int]]:
    tokens: NDArray[np.integer] = experiment.heldout()
    count = len(tokens) // length
    return [[int(token) for token in one] for one in np.asarray(tokens[: count * length]).reshape(count, length)]


def _mean(losses: list[torch.Tensor]) -> float:
    return float(torch.cat(losses).double().mean())
