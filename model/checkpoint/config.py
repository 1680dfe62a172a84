"""`LandmarkConfig`: what makes a causal language model a landmark model. It is stored in the checkpoint as
`config.landmark`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from model.errors import ModelError

LANDMARK_TOKEN = "<landmark>"

AnswerForm = Literal["generated", "quoted"]
ANSWER_FORMS: tuple[AnswerForm, ...] = ("generated", "quoted")

_RETIRED = {"points_at_answers", "pointing", "answer_threshold", "sure_threshold", "quotes"}
"""Settings of earlier releases that are ignored: of the span head, what is `answers` now, and thresholds
(`model.reading.ranker` has them)."""
UNUSED: dict[str, Any] = {"landmark_place": "end", "context_miss_token_id": None, "window_attention": "causal"}
"""Settings of earlier releases, with the value under which a checkpoint is read as before."""


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
    memory_layers: tuple[int, ...] | None = None
    """Absolute numbers of the layers whose keys and values are stored. None: all but the first, whose landmark keys are
    all equal (same embedding, no context yet), so that it cannot tell blocks apart."""
    window_blocks: int = 8
    """Local window of prefill, in blocks."""
    context_blocks: int = 4
    """Earlier blocks of the same text that each prefill window reads, at their true distance."""
    prompt: str = "Question: {question}\nAnswer:"
    """The prompt of a question; special tokens are recognised here but not inside the question. The question may appear
    twice: a causal model reads its first words without knowing the rest, and the repetition knowing all of it (arXiv
    2402.15449, section 3). Search takes the queries of the last occurrence."""
    stop: tuple[str, ...] = ("\n",)
    """Strings that end an answer; an end-of-text token always does."""
    answers: AnswerForm = "generated"
    """What the checkpoint does unless asked otherwise: write answers in its own words, its attention choosing what to
    read, or, where it is too small to write, quote them word for word."""
    quotes_sentences: bool = False
    """Whether a quotation is the whole sentence that matches the question best, not chosen word by word."""
    search_weights: tuple[tuple[float, ...], ...] | None = None
    """[memory layer][query head], >= 0: share of each head in the ranking of `search`. None: all equal."""
    evidence_weights: tuple[tuple[float, ...], ...] | None = None
    """[memory layer][query head], >= 0: share of each head in what is shown as evidence, fitted to what leaving blocks
    out does. None: as in search."""
    ranks_by_tokens: bool = False
    """Whether search ranks the blocks that landmarks propose by late interaction over the keys of their tokens, in the
    layers of `search_weights`, which must be trained for it."""

    def __post_init__(self) -> None:
        if self.block_size < 2:
            raise ModelError(f"block_size is {self.block_size}; a block needs at least one token and its landmark (2).")
        if self.landmark_token_id < 0:
            raise ModelError(f"landmark_token_id is {self.landmark_token_id}; it must be a token of the vocabulary.")
        if self.window_blocks < 1 or self.context_blocks < 0:
            raise ModelError("window_blocks must be at least 1 and context_blocks at least 0.")
        if self.answers not in ANSWER_FORMS:
            raise ModelError(f"answers is {self.answers!r}; choose one of {', '.join(ANSWER_FORMS)}.")
        for name in ("search_weights", "evidence_weights"):
            if (weights := getattr(self, name)) is not None and not any(any(row) for row in weights):
                raise ModelError(f"{name} are all 0; at least one head must count.")
        if "{question}" not in self.prompt:
            raise ModelError("prompt must contain {question}, where the question goes.")

    @property
    def quotes(self) -> bool:
        """Whether answers are quoted unless asked otherwise."""
        return self.answers == "quoted"

    @property
    def tokens_per_block(self) -> int:
        """Ordinary tokens in a full block."""
        return self.block_size - 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the checkpoint's config.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "LandmarkConfig":
        """Inverse of `to_dict`; settings of earlier releases are dropped. Raises `ModelError` for keys that this
        version does not know, and for values of another type."""
        if not isinstance(values, Mapping):
            raise ModelError("config.landmark is not an object with settings. Download or copy the checkpoint again.")
        values = {name: value for name, value in values.items() if name not in UNUSED or value != UNUSED[name]}
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known - _RETIRED):
            raise ModelError(
                f"config.landmark has unknown settings {unknown}: the checkpoint was made by a newer version; "
                "update Cairn."
            )
        plain = {name: value for name, value in values.items() if name in known}
        if values.get("quotes"):
            plain.setdefault("answers", "quoted")
        try:
            for name in ("memory_layers", "stop"):
                if plain.get(name) is not None:
                    plain[name] = tuple(plain[name])
            for name in ("search_weights", "evidence_weights"):
                if plain.get(name) is not None:
                    plain[name] = tuple(tuple(row) for row in plain[name])
            return cls(**plain)
        except TypeError as error:
            raise ModelError(f"config.landmark cannot be read ({error}): copy the checkpoint again.") from error
