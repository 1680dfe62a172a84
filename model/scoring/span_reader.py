"""The span reader: where the answer to a question is in the passages shown, or that none holds it.

It reads stored token states, not text: a passage was encoded before the question was known, the question alone.
Question and passages then attend to each other both ways (context-query attention, arXiv 1611.01603), and a few layers
of depthwise convolution, self-attention and MLP (arXiv 1804.09541) look at all passages at once. One softmax over all
tokens of all passages and "not here" gives the chance that the answer starts at a token, a second one that it ends
there.

- `lay_out` concatenates the stretches (blocks, or runs of neighbouring blocks) with gaps wider than a convolution
  reaches, and self-attention knows no positions. So the result does not depend on the order of the stretches.
- The stored form may be smaller than what the encoder gives: `StoredForm` projects states to fewer dimensions and
  rounds them to few bits. The reader reads the stored form directly.

Axes: Q questions, N tokens of all stretches and the gaps between them, T tokens of the question, E width of the given
states, M width of the stored form, D width of the reader, F features, S sentences.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import conv2d, gelu, normalize, scaled_dot_product_attention

from model.errors import ModelError

FILE = "span_reader.safetensors"
KERNEL = 7
GAP = KERNEL // 2
"""Empty positions between stretches, so that no convolution sees two of them."""
_FEATURES = 3
_OUTSIDE = -1e4
"""Logit of what is masked; finite, so that a row without any token has no NaN."""


@dataclass(frozen=True, kw_only=True)
class SpanReaderConfig:
    """Sizes of a reader and form of the states that it reads."""

    state_widths: tuple[int, ...] = (384,)
    """Widths of a token's states, which are concatenated; cosines with the question use the first."""
    stored_width: int = 0
    """Dimensions that a learned projection keeps of each token (0: all, unprojected)."""
    stored_bits: int = 0
    """Bits of a stored number: 8 or 4, with a scale per token (0: not rounded)."""
    width: int = 128
    layers: int = 4
    heads: int = 4
    mlp_ratio: float = 2.0
    dropout: float = 0.1

    @property
    def bytes_per_token(self) -> float:
        """Disk space of a token: 16-bit numbers, or rounded ones with a 16-bit scale."""
        numbers = self.stored_width or sum(self.state_widths)
        return numbers * self.stored_bits / 8 + 2 if self.stored_bits else 2.0 * numbers


class SpanLogits(NamedTuple):
    """Logits of being the first and the last token of the answer; in the last column, of "not here".

    Softmax over a whole row, columns of all stretches and the last one together.
    """

    start_QN1: Tensor
    end_QN1: Tensor

    def no_answer(self) -> Tensor:
        """chance_Q that none of the stretches holds an answer: the mean of both softmaxes."""
        starts_Q: Tensor = self.start_QN1.softmax(-1)[:, -1]
        ends_Q: Tensor = self.end_QN1.softmax(-1)[:, -1]
        return starts_Q.lerp(ends_Q, 0.5)


class Spans(NamedTuple):
    """The best span of each question: its first and last token, and the log of both chances added."""

    first_Q: Tensor
    last_Q: Tensor
    score_Q: Tensor


def lay_out(stretches: Sequence[Tensor]) -> tuple[Tensor, list[int]]:
    """states_NE of one question's stretches with a gap after each, and the row where each begins.

    Gaps are zero; `valid` is True at rows that belong to a stretch.
    """
    begins, rows = [], 0
    for stretch_LE in stretches:
        begins.append(rows)
        rows += len(stretch_LE) + GAP
    states_NE = stretches[0].new_zeros(rows, stretches[0].shape[-1])
    for begin, stretch_LE in zip(begins, stretches, strict=True):
        states_NE[begin : begin + len(stretch_LE)] = stretch_LE
    return states_NE, begins


def quantise(states: Tensor, bits: int) -> Tensor:
    """The values nearest to `states` that `bits` can hold with one scale per vector; gradients pass as if unrounded.

    The scale follows the vector's root mean square, not its largest value: a few outliers are clipped so that all
    others keep their resolution (4 bits hold +-2.8 standard deviations, 8 bits +-8).
    """
    most = 2 ** (bits - 1) - 1
    reach = {4: 2.8, 8: 8.0}[bits]
    step = states.detach().square().mean(-1, keepdim=True).sqrt().clamp_min(1e-6) * (reach / most)
    step = step.half().to(states.dtype)  # as it is stored
    rounded: Tensor = (states / step).round().clamp(-most, most) * step
    return states + (rounded - states).detach()


class StoredForm(nn.Module):
    """What is kept of a token's states; the identity where neither width nor bits are given."""

    def __init__(self, config: SpanReaderConfig) -> None:
        super().__init__()
        self.bits = config.stored_bits
        given = sum(config.state_widths)
        self.projection = nn.Linear(given, config.stored_width, bias=False) if config.stored_width else None
        if self.projection is not None:
            nn.init.orthogonal_(self.projection.weight)

    def forward(self, states: Tensor, *, rounded: bool = True) -> Tensor:
        """stored (..., M) of states (..., E). Questions are not stored, so theirs need not be rounded."""
        if self.projection is not None:
            states = self.projection(states)
        stored: Tensor = quantise(states, self.bits) if self.bits and rounded else states
        return stored


class SpanReader(nn.Module):
    """Start and end logits of every token shown, and of "not here"."""

    def __init__(self, config: SpanReaderConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.stored = StoredForm(config)
        stored_width = config.stored_width or sum(config.state_widths)
        self._matched = config.stored_width or config.state_widths[0]
        self.passage = nn.Linear(stored_width, width)
        self.question = nn.Linear(stored_width, width)
        self.question_layer = ReaderLayer(config)
        self.match_weight = nn.Parameter(torch.tensor(5.0))
        self.mix = nn.Linear(4 * width + _FEATURES, width)
        self.layers = nn.ModuleList([ReaderLayer(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(width)
        self.points = nn.Linear(width, 2)
        self.no_answer = nn.Sequential(nn.Linear(3 * width, width), nn.GELU(), nn.Linear(width, 2))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, states_QNE: Tensor, valid_QN: Tensor, asked_QTE: Tensor, question_mask_QT: Tensor) -> SpanLogits:
        """Read states as the encoder gives them (training); stretches laid out by `lay_out`."""
        return self.read(self.stored(states_QNE), valid_QN, self.stored(asked_QTE, rounded=False), question_mask_QT)

    def read(self, stored_QNM: Tensor, valid_QN: Tensor, asked_QTM: Tensor, question_mask_QT: Tensor) -> SpanLogits:
        """Read states in their stored form (serving)."""
        cosines_QNT = torch.einsum(
            "qnm,qtm->qnt",
            normalize(stored_QNM[..., : self._matched], dim=-1),
            normalize(asked_QTM[..., : self._matched], dim=-1),
        ).masked_fill(~question_mask_QT[:, None], -1.0)
        passage_QND = self.passage(self._drop_dimensions(stored_QNM))
        asked_QTD = self.question_layer(self.question(self._drop_dimensions(asked_QTM)), question_mask_QT)
        x_QND = self._interact(passage_QND, valid_QN, asked_QTD, question_mask_QT, cosines_QNT)
        for layer in self.layers:
            x_QND = layer(x_QND, valid_QN)
        x_QND = self.norm(x_QND)
        points_2QN = self.points(x_QND).masked_fill(~valid_QN[..., None], _OUTSIDE).movedim(-1, 0)
        none_2Q1 = self._none(x_QND, valid_QN, asked_QTD, question_mask_QT).T[..., None]
        return SpanLogits(*torch.cat((points_2QN, none_2Q1), -1))

    def _drop_dimensions(self, states_QLM: Tensor) -> Tensor:
        """Dropout of the same dimensions for all tokens of a row; masks of single numbers take a tenth of a step."""
        kept_Q1M = self.dropout(states_QLM.new_ones(len(states_QLM), 1, states_QLM.shape[-1]))
        return states_QLM * kept_Q1M if self.training else states_QLM

    def _interact(
        self, passage_QND: Tensor, valid_QN: Tensor, asked_QTD: Tensor, question_mask_QT: Tensor, cosines_QNT: Tensor
    ) -> Tensor:
        """x_QND: each passage token with what it finds in the question, and with what the question finds in all
        passages."""
        logits_QNT = torch.einsum("qnd,qtd->qnt", passage_QND, asked_QTD) * self.config.width**-0.5
        logits_QNT = logits_QNT + self.match_weight * cosines_QNT
        to_question_QNT = logits_QNT.masked_fill(~question_mask_QT[:, None], _OUTSIDE).softmax(-1)
        to_passage_QNT = logits_QNT.masked_fill(~valid_QN[..., None], _OUTSIDE).softmax(1)
        found_QND = to_question_QNT @ asked_QTD
        back_QND = to_question_QNT @ (to_passage_QNT.transpose(1, 2) @ passage_QND)
        best_QN = cosines_QNT.amax(-1)
        # How well all passages together match each word of the question: low where a word is found nowhere.
        met_QT = cosines_QNT.masked_fill(~valid_QN[..., None], -1.0).amax(1)
        features_QNF = torch.stack(
            (best_QN, (to_question_QNT * cosines_QNT).sum(-1), (to_question_QNT @ met_QT[..., None])[..., 0]), -1
        )
        mixed = (passage_QND, found_QND, passage_QND * found_QND, passage_QND * back_QND, features_QNF)
        x_QND: Tensor = self.mix(torch.cat(mixed, -1))
        return x_QND

    def _none(self, x_QND: Tensor, valid_QN: Tensor, asked_QTD: Tensor, question_mask_QT: Tensor) -> Tensor:
        """none_Q2, from the question's mean and the passages' mean and maximum."""
        valid_QN1, mask_QT1 = valid_QN[..., None], question_mask_QT[..., None]
        mean_QD = (x_QND * valid_QN1).sum(1) / valid_QN1.sum(1).clamp_min(1)
        most_QD = x_QND.masked_fill(~valid_QN1, _OUTSIDE).amax(1).clamp_min(-10)
        asked_QD = (asked_QTD * mask_QT1).sum(1) / mask_QT1.sum(1).clamp_min(1)
        none_Q2: Tensor = self.no_answer(torch.cat((mean_QD, most_QD, asked_QD), -1))
        return none_Q2

    def save(self, folder: Path) -> None:
        """Write weights (16 bit) and sizes to one file in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: weight.detach().cpu().to(torch.bfloat16) for name, weight in self.state_dict().items()}
        save_file(weights, folder / FILE, {"config": json.dumps(asdict(self.config))})


def load_span_reader(folder: Path) -> SpanReader:
    """The reader in `folder`, in float32.

    Raises `ModelError` for a file that is missing, damaged or of another size.
    """
    file = folder / FILE
    try:
        with safe_open(file, framework="pt") as tensors:
            sizes = json.loads(tensors.metadata()["config"])
            weights = {name: tensors.get_tensor(name).float() for name in tensors.keys()}  # noqa: SIM118
        reader = SpanReader(SpanReaderConfig(**{**sizes, "state_widths": tuple(sizes["state_widths"])}))
        reader.load_state_dict(weights)
    except (OSError, SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{file} cannot be used ({error}); copy the checkpoint again.") from error
    return reader.eval()


class ReaderLayer(nn.Module):
    """Depthwise separable convolution, self-attention and MLP, each with a norm in front and a residual."""

    def __init__(self, config: SpanReaderConfig) -> None:
        super().__init__()
        width, self.heads = config.width, config.heads
        hidden = int(config.mlp_ratio * width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.around = nn.Parameter(torch.empty(width, 1, 1, KERNEL))
        self.around_bias = nn.Parameter(torch.zeros(width))
        nn.init.kaiming_uniform_(self.around, a=5**0.5)
        self.pointwise = nn.Linear(width, width)
        self.query_key_value, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_QND: Tensor, valid_QN: Tensor) -> Tensor:
        """The same tokens, each knowing its neighbours and all other valid ones."""
        near_QND = self._convolve(self.norms[0](x_QND) * valid_QN[..., None])
        x_QND = x_QND + self.dropout(self.pointwise(gelu(near_QND)))
        x_QND = x_QND + self.dropout(self.joined(self._attend(self.norms[1](x_QND), valid_QN)))
        changed_QND: Tensor = x_QND + self.dropout(self.down(gelu(self.up(self.norms[2](x_QND)))))
        return changed_QND

    def _convolve(self, x_QND: Tensor) -> Tensor:
        # In two dimensions and channels last a depthwise convolution takes a quarter of Conv1d's time on a CPU.
        x_QD1N = x_QND.transpose(1, 2).unsqueeze(2).contiguous(memory_format=torch.channels_last)
        near_QD1N = conv2d(x_QD1N, self.around, self.around_bias, padding=(0, GAP), groups=x_QND.shape[-1])
        return near_QD1N[:, :, 0].transpose(1, 2)

    def _attend(self, x_QND: Tensor, valid_QN: Tensor) -> Tensor:
        query_QHNK, key_QHNK, value_QHNK = (
            self.query_key_value(x_QND).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )
        # A question without any valid token attends to everything rather than to nothing, which would be NaN.
        mask_Q11N = (valid_QN | ~valid_QN.any(-1, keepdim=True))[:, None, None]
        out_QHNK = scaled_dot_product_attention(query_QHNK, key_QHNK, value_QHNK, attn_mask=mask_Q11N)
        return out_QHNK.transpose(1, 2).flatten(2)


def best_spans(logits: SpanLogits, stretch_QN: Tensor, *, longest: int = 24) -> Spans:
    """The best span of each question that lies in one stretch and has at most `longest` tokens.

    stretch_QN: number of the stretch of each position, -1 in gaps. "Not here" does not compete; see
    `SpanLogits.no_answer`.
    """
    starts_QN, ends_QN = (each.log_softmax(-1)[:, :-1] for each in logits)
    best_QN, width_QN = torch.full_like(starts_QN, -torch.inf), torch.zeros_like(stretch_QN)
    length = starts_QN.shape[1]
    for width in range(min(longest, length)):
        inside_QN = (stretch_QN[:, : length - width] == stretch_QN[:, width:]) & (stretch_QN[:, width:] >= 0)
        score_QN = (starts_QN[:, : length - width] + ends_QN[:, width:]).masked_fill(~inside_QN, -torch.inf)
        better_QN = score_QN > best_QN[:, : length - width]
        best_QN[:, : length - width] = torch.where(better_QN, score_QN, best_QN[:, : length - width])
        width_QN[:, : length - width] = torch.where(better_QN, width, width_QN[:, : length - width])
    score_Q, first_Q = best_QN.max(-1)
    return Spans(first_Q, first_Q + width_QN.gather(1, first_Q[:, None])[:, 0], score_Q)


def sentence_mass(logits: SpanLogits, sentence_QN: Tensor, *, longest: int = 24) -> Tensor:
    """mass_QS: how much of all spans' chance lies within each sentence, a span counting P(start) P(end).

    sentence_QN: number of the sentence of each position, -1 where there is none. Spans across sentences do not count.
    """
    starts_QN, ends_QN = (each.softmax(-1)[:, :-1] for each in logits)
    sentences = max(0, int(sentence_QN.max()) + 1)
    mass_QS = starts_QN.new_zeros(len(starts_QN), sentences + 1)
    length = starts_QN.shape[1]
    for width in range(min(longest, length)):
        first_QN = sentence_QN[:, : length - width]
        inside_QN = (first_QN == sentence_QN[:, width:]) & (first_QN >= 0)
        chance_QN = starts_QN[:, : length - width] * ends_QN[:, width:]
        mass_QS = mass_QS.scatter_add(1, torch.where(inside_QN, first_QN, sentences), chance_QN * inside_QN)
    return mass_QS[:, :-1]
