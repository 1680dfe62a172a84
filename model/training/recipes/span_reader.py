"""Trains a span reader over frozen token states: `python -m model.training span-reader --help`.

states:  encode passages and questions once, with a bidirectional encoder or as a landmark checkpoint stores them.
train:   train a reader on cached states; a run that was stopped continues exactly from where it last saved.
measure: F1 and exact match of a trained reader on development questions.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from model.scoring.span_reader import SpanLogits, SpanReader, SpanReaderConfig
from model.training.data.batches.reader_batches import Distractors, ReaderBatch, ReaderBatchMaker, shown
from model.training.data.span_questions import SOURCES, SpanQuestion, read_span_questions
from model.training.data.token_states import StateCache, StateEncoder
from model.training.engine.run_state import RunSettings, log_record, resume_state, save_state
from model.training.evaluation.span_reading import judge, summary

DEV_QUESTIONS = 600
"""Development questions of a source that are measured, the first ones."""
CROWDED = 3
"""One in so many of them is also measured with wrong passages beside the gold one."""
BESIDE = 7
"""Wrong passages beside the gold one."""
_STATE = "state.safetensors"
Split = Literal["dev", "train"]


@dataclass(frozen=True, kw_only=True)
class ReaderRun(RunSettings):
    """Everything that decides which reader comes out."""

    sources: tuple[str, ...] = SOURCES
    """Names of question sets, "name:2000" for at most so many training questions."""
    most: int = 0
    """Training questions of a source that does not name its own number (0: all)."""
    states: tuple[int, ...] = (0, 1)
    """Which of the cached states of a token are read; cosines with the question are taken of the first."""
    stored_width: int = 0
    stored_bits: int = 0
    width: int = 128
    layers: int = 4
    mlp_ratio: float = 2.0
    dropout: float = 0.1
    batch: int = 16
    steps: int = 500
    learning_rate: float = 1e-3
    warmup: int = 100
    weight_decay: float = 0.02
    crowded: float = 0.0
    """Share of the batches in which wrong passages stand beside the gold one."""
    most_distractors: int = 2
    withheld: float = 0.2
    """Share of those questions to which the gold one is not shown."""
    seed: int = 0

    def reader(self, widths: Sequence[int]) -> SpanReaderConfig:
        names = ("stored_width", "stored_bits", "width", "layers", "mlp_ratio", "dropout")
        return SpanReaderConfig(state_widths=tuple(widths), **{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class Caches:
    """States of passages and of questions."""

    passages: StateCache
    asked: StateCache

    @classmethod
    def of(cls, folder: Path) -> "Caches":
        return cls(StateCache(folder / "passages"), StateCache(folder / "questions"))

    def check(self, questions: Sequence[SpanQuestion]) -> list[SpanQuestion]:
        """The questions. Raises ValueError if states of one of them are missing."""
        for each in questions:
            if each.text not in self.asked or any(piece not in self.passages for piece in each.pieces):
                raise ValueError(f"States of question {each.id} ({each.source}) are missing; run `span-reader states`.")
        return list(questions)


def encode(
    encoder: StateEncoder, data: Path, caches: Caches, *, sources: Sequence[str], splits: Sequence[Split], most: int
) -> None:
    """Put the states of all questions and their passages into the caches; `most` training questions of a source (0:
    all)."""
    for source in sources:
        for split in splits:
            questions = read_span_questions(data, split, [source], most=DEV_QUESTIONS if split == "dev" else most)
            for left in caches.passages.add(encoder, passages_of(questions)):
                print(f"{source}.{split}: {left} passages left", flush=True)
            for left in caches.asked.add(encoder, [each.text for each in questions], questions=True):
                print(f"{source}.{split}: {left} questions left", flush=True)


def train(
    run: ReaderRun, data: Path, caches: Caches, out: Path, *, save_every: int = 50, check_every: int = 250
) -> None:
    """Train to the last step, continuing from what `out` holds; the reader and its figures are written there too."""
    run.keep(out)
    maker = _training_batches(run, data, caches)
    torch.manual_seed(run.seed)
    reader = SpanReader(run.reader(_state_widths(caches, run)))
    optimizer = torch.optim.AdamW(reader.parameters(), run.learning_rate, weight_decay=run.weight_decay)
    named = dict(reader.named_parameters())
    step = resume_state(out / _STATE, named, optimizer)
    weights = sum(p.numel() for p in reader.parameters())
    log_record(out, {"step": step, "weights": weights, "batches_per_epoch": maker.batches_per_epoch})
    losses: list[float] = []
    began, used = time.monotonic(), time.process_time()
    while step < run.steps:
        torch.manual_seed(run.seed * 1_000_003 + step)  # dropout, too, is a function of the step
        for group in optimizer.param_groups:
            group["lr"] = run.learning_rate * _rate(step, run)
        losses.append(_step(reader, optimizer, maker.make(step)))
        step += 1
        if step % save_every == 0 or step == run.steps:
            save_state(out / _STATE, named, optimizer, step)
            seconds = {"seconds": round(time.monotonic() - began), "cpu": round(time.process_time() - used)}
            log_record(out, {"step": step, "loss": round(sum(losses) / len(losses), 4), **seconds})
            losses.clear()
        if step % check_every == 0 and step < run.steps:
            log_record(
                out, {"step": step, "dev": measure(reader, run, data, caches, ("squad11",), 200)["gold"]["squad11"]}
            )
    reader.eval().save(out)
    figures = measure(reader, run, data, caches, run.sources, DEV_QUESTIONS)
    (out / "figures.json").write_text(json.dumps(figures, indent=1))
    log_record(out, {"step": step, "figures": figures})


def measure(
    reader: SpanReader, run: ReaderRun, data: Path, caches: Caches, sources: Sequence[str], most: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Figures by source: from the gold passage, and with the nearest wrong passages of all sources beside it."""
    every = caches.check(read_span_questions(data, "dev", run.sources, most=DEV_QUESTIONS))
    questions = [
        each for source in sources for each in [q for q in every if q.source == source.partition(":")[0]][:most]
    ]
    maker = ReaderBatchMaker(caches.passages, caches.asked, questions, states=run.states, batch=1)
    figures = {"gold": summary(judge(reader, maker, [shown(each, each.pieces) for each in questions]))}
    if most == DEV_QUESTIONS:
        wrong = Distractors(caches.passages, caches.asked, passages_of(every))
        crowd = [shown(each, [*each.pieces, *wrong.of(each, most=BESIDE)]) for each in questions[::CROWDED]]
        figures["crowd"] = summary(judge(reader, maker, crowd))
    return figures


def passages_of(questions: Sequence[SpanQuestion]) -> list[str]:
    """Every piece once, in order."""
    return list(dict.fromkeys(piece for each in questions for piece in each.pieces))


def reader_loss(logits: SpanLogits, batch: ReaderBatch) -> Tensor:
    """Cross-entropy of start and end with the annotators' answers, in nats."""
    targets = (batch.start_QN1, batch.end_QN1)
    return torch.stack(
        [-(t * each.log_softmax(-1)).sum(-1).mean() for each, t in zip(logits, targets, strict=True)]
    ).sum()


def _step(reader: SpanReader, optimizer: torch.optim.Optimizer, batch: ReaderBatch) -> float:
    reader.train()
    loss = reader_loss(reader(batch.states_QNE, batch.valid_QN, batch.asked_QTE, batch.question_mask_QT), batch)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def _rate(step: int, run: ReaderRun) -> float:
    """Fraction of the learning rate: rises for `warmup` steps and falls linearly to 3 %."""
    return min(1.0, (step + 1) / run.warmup) * max(0.03, 1 - step / run.steps)


def _training_batches(run: ReaderRun, data: Path, caches: Caches) -> ReaderBatchMaker:
    questions = caches.check(read_span_questions(data, "train", run.sources, most=run.most))
    wrong = None
    if run.crowded:
        distractors = Distractors(caches.passages, caches.asked, passages_of(questions))
        wrong = [distractors.of(each, most=8) for each in questions]
    return ReaderBatchMaker(
        caches.passages,
        caches.asked,
        questions,
        states=run.states,
        batch=run.batch,
        distractors=wrong,
        crowded=run.crowded,
        withheld=run.withheld,
        most_distractors=run.most_distractors,
        seed=run.seed,
    )


def _state_widths(caches: Caches, run: ReaderRun) -> list[int]:
    return [caches.passages.width] * len(run.states)
