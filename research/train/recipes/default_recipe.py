"""Sizes and settings of the default model's recipe."""

from dataclasses import dataclass, field, replace
from typing import Literal

from research.train.data.batches.distillation_batches import DistillationShape
from research.train.data.batches.hard_negatives import MinedShape
from research.train.data.batches.question_batches import QuestionShape
from research.train.engine.settings import TrainingSettings
from research.train.losses.question_answering_loss import AnswerLossWeights
from research.train.losses.retriever_loss import RetrieverLossWeights


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides what comes out; the network's shape is the encoder's."""

    vocab_size: int = 24_576
    block_size: int = 64
    rope_theta: float = 1e9
    tokenizer_characters: int = 40_000_000
    text_characters: int = 40_000_000
    fitted_texts: int = 120
    """Texts that norms are fitted on at the start."""
    teaching: TrainingSettings = field(
        default_factory=lambda: _settings(steps=4000, max_seconds=60 * 60, compile_layers=True)
    )
    shape: DistillationShape = DistillationShape()
    loss_weights: RetrieverLossWeights = RetrieverLossWeights()
    reading: TrainingSettings = field(default_factory=lambda: _settings(steps=2000, max_seconds=9 * 60, rate=1e-3))
    answer_shape: QuestionShape = QuestionShape(rows=16, blocks=4, questions=24, asked_tokens=61)
    answer_weights: AnswerLossWeights = AnswerLossWeights()
    mined: MinedShape = MinedShape()
    held_out: int = 12
    """Every so-many-th training document is kept back, for choices made on the way."""

    def in_precision(self, precision: Literal["fp32", "bf16"]) -> "Recipe":
        """The recipe with this precision."""
        return replace(
            self,
            teaching=replace(self.teaching, precision=precision),
            reading=replace(self.reading, precision=precision),
        )


def _settings(
    *, steps: int, max_seconds: float | None, rate: float = 4e-4, compile_layers: bool = False
) -> TrainingSettings:
    return TrainingSettings(
        steps=steps,
        learning_rate=rate,
        schedule="trapezoid",
        warmup=0.02,
        decay=0.5,
        final_ratio=0.02,
        betas=(0.9, 0.98),
        weight_decay=0.01,
        max_seconds=max_seconds,
        compile=compile_layers,
        save_every=100,
        log_every=10,
        keep_checkpoints=1,
    )


Size = Literal["tiny", "cpu", "gpu"]

SIZES: dict[Size, Recipe] = {
    "tiny": Recipe(
        vocab_size=600,
        tokenizer_characters=300_000,
        text_characters=300_000,
        fitted_texts=20,
        teaching=_settings(steps=4, max_seconds=None),
        shape=DistillationShape(rows=3, blocks=2, text_rows=1, questions_a_row=2, questions=6),
        reading=_settings(steps=3, max_seconds=None),
        answer_shape=QuestionShape(rows=4, questions=6),
        mined=MinedShape(stored_blocks=60, found=4),
    ),
    "cpu": Recipe(),
    "gpu": Recipe(
        text_characters=400_000_000,
        teaching=_settings(steps=12_000, max_seconds=22 * 60, rate=6e-4),
        shape=DistillationShape(rows=128, text_rows=54, questions=240),
        reading=_settings(steps=4000, max_seconds=5 * 60, rate=1e-3),
        answer_shape=QuestionShape(rows=96, blocks=4, questions=160, asked_tokens=61),
        mined=MinedShape(stored_blocks=80_000),
    ),
}
