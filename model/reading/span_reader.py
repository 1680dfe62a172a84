"""The span reader: it reads the few passages that search found, together with the question.

Stored keys were made before the question was known. `SpanReader` gives the text of the passages to a joint reader
(`model.reading.network`). For every sentence it returns how likely the answer is in it, and where.

Axes: Q questions (1 here), K rows, R rows of all questions, T tokens of a row, N = K x T, S sentences of all passages.
"""

from __future__ import annotations

import json
import math
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from torch.nn.functional import pad

from model.checkpoint.backbones import BertConfig
from model.checkpoint.weights import WEIGHTS_FILE, read_weights
from model.errors import readable
from model.precision import fast_precision
from model.reading.network import JointReader, SpanLogits
from model.reading.rows import JointRows, RowTokens, join_rows

FOLDER = "reader"
"""The subfolder of a checkpoint with the files of its reader."""
WINDOW = 160
"""Tokens of a passage that are read together; a longer passage is read in several windows, cut between sentences."""
LONGEST_SENTENCE = 320
"""Tokens; the rest of a longer sentence is not read."""
LONGEST_SPAN = 30
SentencePlace = tuple[int, int]
"""Number of a passage, and of a sentence in it."""
_UNSPACED = (
    *("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "HANGUL", "HALFWIDTH HANGUL"),
    *("THAI", "LAO", "TIBETAN", "MYANMAR", "KHMER", "TAI ", "NEW TAI", "JAVANESE"),
)
"""How Unicode calls letters of scripts whose words no spaces part, or end with particles (Korean): a word may begin and
end at any of them."""
_JOINS = "_\N{SOFT HYPHEN}\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
_GIVEN = ("ids_QKT", "segment_QKT", "valid_QKT")
MOST_TOKENS = 8192
"""Of one pass, which takes about 200 MB."""


@dataclass(frozen=True)
class ReadPassage:
    """`sentences`: (start, stop) characters of the text, ascending; an answer lies within one of them."""

    title: str
    text: str
    sentences: Sequence[tuple[int, int]]


class FoundSpan(NamedTuple):
    """Probability that the answer is in a sentence, and its most likely characters in the text of the passage."""

    probability: float
    start: int
    stop: int


@dataclass(frozen=True)
class SpanReading:
    """`spans`: for every sentence of every passage. `p_none`: probability that no passage holds the answer."""

    spans: list[list[FoundSpan]]
    p_none: float


class _Window(NamedTuple):
    """Tokens first..stop-1 of a passage."""

    passage: int
    first: int
    stop: int


PointsOf = Callable[["SpanReader", JointRows], Tensor]
"""points_QKT2 of the rows of a question, see `JointReader.read`."""


class SpanReader:
    """A joint reader (`network`) with its tokenizer."""

    def __init__(self, network: JointReader, tokenizer: Tokenizer) -> None:
        self.network, self.tokenizer = network, tokenizer
        self._tokens = RowTokens.of(tokenizer)

    @property
    def sure_above(self) -> float:
        """Below this probability of its sentence an answer is a guess (`sure_above` in the reader's config.json)."""
        return float(getattr(self.network.config, "sure_above", 0.0))

    @property
    def absent_above(self) -> float:
        """From this p_none on there is no answer (`absent_above` in the reader's config.json)."""
        return float(getattr(self.network.config, "absent_above", math.inf))

    def read(
        self,
        question: str,
        passages: Sequence[ReadPassage],
        points_of: PointsOf | None = None,
        only: Set[SentencePlace] | None = None,
    ) -> SpanReading:
        """Where the answer is. `points_of`: computes points_QKT2 of the rows, for reading several questions in one
        batch; default: `points` of this question alone. `only`: windows without any of these sentences are not read;
        what stands in them has probability 0."""
        texts = self.tokenizer.encode_batch([each.text for each in passages], add_special_tokens=False)
        sentences = [_token_ranges(each, text) for each, text in zip(passages, texts, strict=True)]
        windows = [window for number, each in enumerate(sentences) for window in _windows(number, each)]
        if only is not None:
            begins = {(passage, sentences[passage][place][0]) for passage, place in only}
            windows = [
                each for each in windows if any((each.passage, at) in begins for at in range(each.first, each.stop))
            ]
        if not windows:
            return SpanReading([[FoundSpan(0.0, 0, 0)] * len(each) for each in sentences], 1.0)
        asked = self.tokenizer.encode(question, add_special_tokens=False).ids
        titles = [self.tokenizer.encode(each.title, add_special_tokens=False).ids for each in passages]
        rows = join_rows(
            [(asked, titles[each.passage], texts[each.passage].ids[each.first : each.stop]) for each in windows],
            len(windows),
            self._tokens,
        )
        points_QKT2 = self.points([rows])[0] if points_of is None else points_of(self, rows)
        logits = self.network.share(points_QKT2, rows.valid_QKT, rows.passage_QKT)
        return SpanReading(_spans(logits, rows, windows, sentences, texts, passages), float(logits.no_answer()))

    @torch.inference_mode()
    def points(self, questions: Sequence[JointRows]) -> list[Tensor]:
        """points_QKT2 (CPU) of each of several questions, see `JointReader.read`; each is the same as it would be
        alone. In bfloat16 where the machine computes in it natively."""
        device = self.network.points.weight.device
        given_RT = [_stacked([getattr(rows, name) for rows in questions]) for name in _GIVEN]
        lengths_R = given_RT[-1].sum(1)
        passes = (lengths_R.cumsum(0) - lengths_R) // MOST_TOKENS
        points = []
        with torch.autocast(device.type, torch.bfloat16, enabled=fast_precision(device.type) == "bf16"):
            for number in passes.unique().tolist():
                taken_R = passes == number
                points.append(self.network.read(*(each[taken_R].to(device) for each in given_RT)).cpu())
        of_each = torch.cat(points).split([rows.ids_QKT.shape[1] for rows in questions])
        return [
            points_KT2[None, :, : rows.ids_QKT.shape[-1]] for points_KT2, rows in zip(of_each, questions, strict=True)
        ]


def _stacked(rows_QKT: Sequence[Tensor]) -> Tensor:
    """each_RT of several questions' rows, padded to the longest."""
    longest = max(each.shape[-1] for each in rows_QKT)
    return torch.cat([pad(each[0], (0, longest - each.shape[-1])) for each in rows_QKT])


def load_span_reader(folder: Path, device: torch.device | None = None) -> SpanReader:
    """The reader in `folder`, in float32. Raises `ModelError` for files that are missing, damaged or do not fit."""
    with readable(f"the reader in {folder}"):
        config = BertConfig.from_dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        with torch.device("meta"):  # no weights are drawn at random, only to be replaced
            network = JointReader(config)
        network.to_empty(device=device or "cpu")  # of its buffers, numbers of places and kinds, `read` uses none
        network.load_state_dict(read_weights(folder / WEIGHTS_FILE, torch.float32))
        return SpanReader(network.eval(), Tokenizer.from_file(str(folder / "tokenizer.json")))


def shipped_reader_for(tokenizer: Any) -> Path | None:
    """The folder of the shipped checkpoint's reader, for another finder with exactly the same vocabulary, hence
    language; else None."""
    folder = Path(__file__).resolve().parents[1] / "default" / FOLDER
    file = folder / "tokenizer.json"
    same = file.is_file() and Tokenizer.from_file(str(file)).get_vocab() == tokenizer.get_vocab()
    return folder if same else None


def _token_ranges(passage: ReadPassage, text: Encoding) -> list[tuple[int, int]]:
    """(first, behind the last) token of each sentence; empty where a sentence has no token of its own."""
    starts = [start for start, _ in text.offsets]
    return [(bisect_left(starts, start), bisect_left(starts, stop)) for start, stop in passage.sentences]


def _windows(passage: int, sentences: Sequence[tuple[int, int]]) -> list[_Window]:
    """Neighbouring sentences together, as many as fit."""
    windows: list[_Window] = []
    for first, stop in sentences:
        if stop <= first:
            continue
        stop = min(stop, first + LONGEST_SENTENCE)
        if windows and stop - windows[-1].first <= WINDOW:
            windows[-1] = _Window(passage, windows[-1].first, stop)
        else:
            windows.append(_Window(passage, first, stop))
    return windows


def _spans(
    logits: SpanLogits,
    rows: JointRows,
    windows: Sequence[_Window],
    sentences: Sequence[Sequence[tuple[int, int]]],
    texts: Sequence[Encoding],
    passages: Sequence[ReadPassage],
) -> list[list[FoundSpan]]:
    length = rows.ids_QKT.shape[-1]
    sentence_QN = torch.full((1, len(windows) * length), -1)
    numbered: list[tuple[int, int, int, int]] = []  # passage, sentence, first token, column of the first token
    for number, window in enumerate(windows):
        for place, (first, stop) in enumerate(sentences[window.passage]):
            if window.first <= first < min(stop, window.stop):
                column = number * length + rows.begins[number] + first - window.first
                sentence_QN[0, column : column + min(stop, window.stop) - first] = len(numbered)
                numbered.append((window.passage, place, first, column))
    probability_S = sentence_mass(logits, sentence_QN, longest=LONGEST_SPAN)[0].tolist()
    starts_N, ends_N = (each.log_softmax(-1)[0, :-1] for each in logits)
    found = [[FoundSpan(0.0, 0, 0)] * len(each) for each in sentences]
    for number, (passage, place, first, column) in enumerate(numbered):
        tokens = int((sentence_QN[0] == number).sum())
        begin, end = _best(starts_N[column : column + tokens], ends_N[column : column + tokens])
        offsets = texts[passage].offsets
        span = _of_whole_words(passages[passage].text, offsets[first + begin][0], offsets[first + end][1])
        found[passage][place] = FoundSpan(probability_S[number], *span)
    return found


def _of_whole_words(text: str, start: int, stop: int) -> tuple[int, int]:
    """With the rest of a word of which it holds some tokens; without white space around it, which some vocabularies
    count to a word, and without a comma behind it."""
    words = text[start:stop]
    end = start + len(words.rstrip(" \t\n,;:") or words.rstrip())
    start = min(end, start + len(words) - len(words.lstrip()))
    while start > 0 and _in_word(text[start - 1]) and _in_word(text[start]):
        start -= 1
    while 0 < end < len(text) and _in_word(text[end - 1]) and _in_word(text[end]):
        end += 1
    return start, end


def _in_word(letter: str) -> bool:
    """Whether a letter, digit, accent or joiner belongs to the same word as one beside it."""
    is_letter = unicodedata.category(letter)[0] in "LMN" and not unicodedata.name(letter, "").startswith(_UNSPACED)
    return is_letter or letter in _JOINS


def _best(starts_T: Tensor, ends_T: Tensor) -> tuple[int, int]:
    """First and last token of the best span of at most LONGEST_SPAN tokens."""
    allowed_TT = torch.ones(len(starts_T), len(starts_T), dtype=torch.bool).triu().tril(LONGEST_SPAN - 1)
    sums_TT = (starts_T[:, None] + ends_T[None]).masked_fill(~allowed_TT, -torch.inf)
    first, last = divmod(int(sums_TT.argmax()), len(starts_T))
    return first, last


def sentence_mass(logits: SpanLogits, sentence_QN: Tensor, *, longest: int) -> Tensor:
    """mass_QS: how much of all spans' probability lies within each sentence, a span counting P(start) P(end).

    sentence_QN: number of the sentence of each position, -1 where there is none. Spans across sentences do not count.
    """
    starts_QN, ends_QN = (each.softmax(-1)[:, :-1] for each in logits)
    sentences = max(0, int(sentence_QN.max()) + 1)
    mass_QS = starts_QN.new_zeros(len(starts_QN), sentences + 1)
    length = starts_QN.shape[1]
    for width in range(min(longest, length)):
        first_QN = sentence_QN[:, : length - width]
        inside_QN = (first_QN == sentence_QN[:, width:]) & (first_QN >= 0)
        probability_QN = starts_QN[:, : length - width] * ends_QN[:, width:]
        mass_QS = mass_QS.scatter_add(1, torch.where(inside_QN, first_QN, sentences), probability_QN * inside_QN)
    return mass_QS[:, :-1]
