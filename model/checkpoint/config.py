"""`LandmarkConfig`: what makes a causal language model a landmark model. Travels inside the checkpoint as
`config.landmark`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from model.attention.variants.placement import PLACES, LandmarkPlace, landmarks_of_block
from model.errors import ModelError

LANDMARK_TOKEN = "<landmark>"
CONTEXT_MISS_TOKEN = "<context-miss>"

WindowAttention = Literal["causal", "both"]
_RETIRED = {"points_at_answers", "pointing"}
"""Settings of the span head that earlier releases had."""

WINDOW_ATTENTION: tuple[WindowAttention, ...] = ("causal", "both")


@dataclass(frozen=True, kw_only=True)
class LandmarkConfig:
    """Settings of a landmark model; immutable, JSON-able.

    Raises `ModelError` when a value cannot work.
    """

    block_size: int
    """Tokens in a block, its landmark (the last one) included; at least 2. The published `mem_freq` is one less."""
    landmark_token_id: int
    landmark_in_loss: bool = False
    """True if training predicted landmarks too; then the output *at* a landmark chooses the next token (published as
    include_landmark_in_loss)."""
    landmark_place: LandmarkPlace = "end"
    """Where landmarks stand in their blocks; other places than the end are for research on one text."""
    context_miss_token_id: int | None = None
    """The context-miss token (`model.attention.variants.context_miss`), for research on one text. None: no token."""
    memory_layers: tuple[int, ...] | None = None
    """Absolute numbers of the layers whose keys and values are stored. None: all but the first, whose landmark keys are
    all equal (same embedding, no context yet), so that it cannot tell blocks apart."""
    window_blocks: int = 8
    """Local window of prefill, in blocks."""
    context_blocks: int = 4
    """Earlier blocks of the same text that each prefill window reads, at their true distance."""
    window_attention: WindowAttention = "causal"
    """What a token sees of its own window when a text is read: what stands before it, or under "both" also what stands
    behind it (docs/decisions/0018). Questions and generation are causal under both."""
    prompt: str = "Question: {question}\nAnswer:"
    """How a question is put to the model; special tokens are recognised here but not inside the question. The question
    may appear twice: a causal model reads its first words without knowing the rest, and the repetition knowing all of
    it (arXiv 2402.15449, section 3). Search takes the queries of the last occurrence."""
    stop: tuple[str, ...] = ("\n",)
    """Strings that end an answer; an end-of-text token always does."""
    quotes: bool = False
    """Whether answers are quoted word for word unless asked otherwise: for models too small to write."""
    quotes_sentences: bool = False
    """Whether a quotation is the whole sentence that matches the question best, not chosen word by word."""
    search_weights: tuple[tuple[float, ...], ...] | None = None
    """[memory layer][query head], >= 0: share of each head in the ranking of `search`. None: all equal."""
    ranks_by_tokens: bool = False
    """Whether search ranks the blocks that landmarks propose by late interaction over the keys of their tokens, in the
    layers of `search_weights`, which must be trained for it."""
    answer_threshold: float | None = None
    """Search confidence below which a memory is taken not to hold the answer, under the ranking that `ranks_by_tokens`
    selects. None: not calibrated."""
    sure_threshold: float | None = None
    """What an answer is a guess below, to be shown as such: the sureness of a quoted sentence
    (how far it stands out from the other candidates), else the search confidence. None: no answer is a guess."""

    def __post_init__(self) -> None:
        if self.block_size < 2:
            raise ModelError(f"block_size is {self.block_size}; a block needs at least one token and its landmark (2).")
        if self.landmark_place not in PLACES:
            raise ModelError(f"landmark_place is {self.landmark_place!r}; choose one of {', '.join(PLACES)}.")
        if self.landmark_place != "end" and (self.landmark_in_loss or self.tokens_per_block < 1):
            raise ModelError(
                f"landmark_place={self.landmark_place!r} needs landmarks that are not predicted, and room."
            )
        if self.landmark_token_id < 0:
            raise ModelError(f"landmark_token_id is {self.landmark_token_id}; it must be a token of the vocabulary.")
        if self.window_blocks < 1 or self.context_blocks < 0:
            raise ModelError("window_blocks must be at least 1 and context_blocks at least 0.")
        if self.window_attention not in WINDOW_ATTENTION:
            raise ModelError(
                f"window_attention is {self.window_attention!r}; choose one of {', '.join(WINDOW_ATTENTION)}."
            )
        if self.sees_both_ways and (self.landmark_place != "end" or self.context_miss_token_id is not None):
            raise ModelError(
                'window_attention="both" needs landmarks at the end of their blocks (landmark_place="end") and no '
                "context-miss token."
            )
        if self.search_weights is not None and not any(any(row) for row in self.search_weights):
            raise ModelError("search_weights are all 0; search needs at least one head.")
        if "{question}" not in self.prompt:
            raise ModelError("prompt must contain {question}, where the question goes.")

    @property
    def sees_both_ways(self) -> bool:
        """Whether tokens of a window see what stands behind them."""
        return self.window_attention == "both"

    @property
    def tokens_per_block(self) -> int:
        """Ordinary tokens in a full block."""
        return self.block_size - self.landmarks_of_block

    @property
    def landmarks_of_block(self) -> int:
        """Landmarks of each block: two under landmark_place "two"."""
        return landmarks_of_block(self.landmark_place)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the checkpoint's config.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "LandmarkConfig":
        """Inverse of `to_dict`; settings that a release before this had are dropped. Raises `ModelError` for keys that
        this version does not know."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known - _RETIRED):
            raise ModelError(
                f"config.landmark has unknown settings {unknown}: the checkpoint was made by a newer version; "
                "update Cairn."
            )
        plain = {name: value for name, value in values.items() if name in known}
        for name in ("memory_layers", "stop"):
            if plain.get(name) is not None:
                plain[name] = tuple(plain[name])
        if plain.get("search_weights") is not None:
            plain["search_weights"] = tuple(tuple(row) for row in plain["search_weights"])
        return cls(**plain)
