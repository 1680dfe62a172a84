"""What the teacher, a sentence encoder, makes of each token of a text.

Axes: B texts, T pieces of the encoder or tokens of the model, E the encoder's width.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from research.train.convert.init_from_encoder import Encoder

BATCH = 16


class TeacherStates:
    """Encoder states in the model's tokens."""

    def __init__(self, encoder: Encoder, tokenizer: PreTrainedTokenizerBase) -> None:
        self._encoder = encoder
        self._strings = [str(tokenizer.decode([token])) for token in range(len(tokenizer))]

    @property
    def width(self) -> int:
        return self._encoder.width

    def of(self, texts: Sequence[Sequence[int]]) -> list[tuple[Tensor, Tensor]]:
        """(state of every token, mean state) of texts given as tokens; each text is encoded on its own."""
        found: list[tuple[Tensor, Tensor]] = [(torch.empty(0), torch.empty(0))] * len(texts)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for begin in range(0, len(order), BATCH):
            chosen = order[begin : begin + BATCH]
            strings = [[self._strings[token] for token in texts[number]] for number in chosen]
            states_BTE, real_BT, characters_BT2 = self._encoder.states(["".join(each) for each in strings])
            for row, (number, parts) in enumerate(zip(chosen, strings, strict=True)):
                real_T = real_BT[row]
                found[number] = _by_token(parts, states_BTE[row][real_T], characters_BT2[row][real_T].numpy())
        return found


def _by_token(parts: list[str], states_TE: Tensor, characters_T2: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """A token's state is the mean of those of the pieces with its first and its last letter; 0 for white space."""
    out = torch.zeros(len(parts), states_TE.shape[1])
    if not len(states_TE):
        return out, torch.zeros(states_TE.shape[1])
    ends = np.cumsum([len(part) for part in parts])
    first = ends - np.array([len(part.lstrip()) for part in parts])
    low = np.searchsorted(characters_T2[:, 0], first, "right") - 1
    high = np.searchsorted(characters_T2[:, 0], ends - 1, "right") - 1
    covered = (first < ends) & (low >= 0) & (characters_T2[np.maximum(low, 0), 1] > first)
    low, high = low.clip(0), np.maximum(high, low).clip(0)
    rows = torch.from_numpy(np.flatnonzero(covered))
    out[rows] = 0.5 * (states_TE[torch.from_numpy(low[covered])] + states_TE[torch.from_numpy(high[covered])])
    return out, states_TE.mean(0)
