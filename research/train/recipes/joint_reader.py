"""Trains a joint reader from a BERT-like encoder: `python -m research.train joint-reader --help`.

A run that was stopped continues exactly from where it last saved.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from model.checkpoint.backbones import BertConfig
from model.checkpoint.weights import WEIGHTS_FILE, read_weights
from model.precision import fast_precision
from model.reading.network import JointReader, SpanLogits
from model.reading.span_reader import FOLDER, SpanReader, load_span_reader
from research.train.data.batches.joint_batches import JointBatch, JointBatchMaker
from research.train.data.batches.wrong_passages import with_wrong_passages
from research.train.data.questions.of_text.text_questions import KINDS, make_text_questions
from research.train.data.questions.table_questions import SOURCE as TABLES
from research.train.data.questions.table_questions import make_table_questions
from research.train.data.span_questions import SpanQuestion, read_span_questions
from research.train.engine.run_state import RunSettings, log_record, resume_state, save_state
from research.train.evaluation.joint_reading import judge_joint, summary
from research.train.recipes.rounding import save_reader

SOURCES = (
    "squad11",
    "squad20",
    "disflqa:4000",
    "policyqa",
    "qed_nq",
    "nq_openbook",
    "quac",
    "factbook_templated:3000",
    "openstax_glossary",
    "medquad",
    "tables:5000",
)
DEV = ("squad11", "squad20", "policyqa", "qed_nq", "openstax_glossary", TABLES)
HELD_OUT = tuple(
    f"Psychology 2e — {section}"
    for section in (
        "Memory",
        "How Memory Functions",
        "Parts of the Brain Involved with Memory",
        "Problems with Memory",
        "Ways to Enhance Memory",
    )
)
"""A textbook chapter that stands among the public PDFs of the benchmarks."""
_STATE = "state.safetensors"


@dataclass(frozen=True, kw_only=True)
class JointRun(RunSettings):
    """Everything that decides which reader comes out."""

    sources: tuple[str, ...] = SOURCES
    """Names of question sets, "name:2000" for at most so many training questions; "tables" and the kinds of
    `text_questions` are made."""
    batch: int = 12
    rows: int = 2
    keywords: float = 0.15
    """How often a question is shortened to what people type into a search box."""
    withheld: float = 0.15
    """How often the passage that answers is not among those shown."""
    doubled: tuple[str, ...] = ()
    """Sources whose questions are asked twice as often, and first words ("why") of questions that are."""
    steps: int = 4000
    learning_rate: float = 1.5e-4
    warmup: int = 150
    weight_decay: float = 0.01
    frozen_layers: int = 0
    """The lowest layers, which keep the encoder's weights, as the embeddings do."""
    dropout: float = 0.1
    seed: int = 0
    held_out: tuple[str, ...] = HELD_OUT
    """Titles of documents about which nothing is taught."""
    wrong_passages: str = ""
    """File of `find_wrong_passages`: what search found for questions, to be shown beside the right passage."""


def training_questions(run: JointRun, data: Path) -> list[SpanQuestion]:
    named = [source.partition(":") for source in run.sources]
    made = {name: int(most or 5000) for name, _, most in named if name in (TABLES, *KINDS)}
    read = [source for source in run.sources if source.partition(":")[0] not in made]
    human = read_span_questions(data, "train", read, held_out=run.held_out)
    tables = make_table_questions(made.pop(TABLES, 0), seed=run.seed)
    questions = [*human, *tables, *make_text_questions(data, made, seed=run.seed, held_out=run.held_out)]
    return [*questions, *(each for each in questions if {each.source, _first_word(each)} & {*run.doubled})]


def _first_word(question: SpanQuestion) -> str:
    return next(iter(question.text.lower().split()), "")


def development_questions(data: Path, source: str, most: int) -> list[SpanQuestion]:
    if source == TABLES:
        return make_table_questions(most, seed=-1)
    return read_span_questions(data, "dev", [source], most=most)


def train(
    run: JointRun, data: Path, encoder: Path, out: Path, *, save_every: int = 200, check_every: int = 1000
) -> None:
    """Train to the last step, continuing from what `out` holds; the reader is written there too.

    `encoder`: folder of a BERT-like checkpoint with the vocabulary of BERT, uncased, or of a reader to train on."""
    run.keep(out)
    tokenizer = open_tokenizer(encoder)
    questions = training_questions(run, data)
    if run.wrong_passages:
        questions = with_wrong_passages(questions, Path(run.wrong_passages))
    maker = JointBatchMaker(
        tokenizer,
        questions,
        batch=run.batch,
        rows=run.rows,
        withheld=run.withheld,
        keywords=run.keywords,
        seed=run.seed,
    )
    torch.manual_seed(run.seed)
    reader = begin(encoder, run)
    log_record(out, {"batches_per_epoch": maker.batches_per_epoch})

    def check(step: int) -> None:
        log_record(out, {"step": step, "dev": measure(reader, tokenizer, data, ("squad11",), 100)})

    teach(reader, tokenizer, maker.make, run, out, save_every=save_every, check=check, check_every=check_every)
    log_record(out, {"step": run.steps, "dev": measure(reader, tokenizer, data, DEV, 300)})


def teach(
    reader: JointReader,
    tokenizer: Tokenizer,
    make: Callable[[int], JointBatch],
    run: JointRun,
    out: Path,
    *,
    teacher: JointReader | None = None,
    save_every: int = 100,
    check: Callable[[int], None] | None = None,
    check_every: int = 1000,
    workers: int = 0,
    minutes: float = math.inf,
) -> SpanReader:
    """Train to the last step, on a GPU where there is one, continuing from what `out` holds; the reader is written
    there, and returned before it is rounded. `make`: the batch of a step; `teacher`: half of the loss is then the
    distance to what it says; `check` is called with the step every so many steps; `workers`: processes that make
    batches, beside this one; `minutes`: time after which this call ends, and until which the rate falls."""
    for network in (reader, teacher):
        if network is not None:
            network.to("cuda" if torch.cuda.is_available() else "cpu")
    trained = {name: p for name, p in reader.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(trained.values(), run.learning_rate, weight_decay=run.weight_decay, fused=True)
    out.mkdir(parents=True, exist_ok=True)
    step = resume_state(out / _STATE, trained, optimizer)
    losses: list[float] = []
    began = time.monotonic()
    loader = DataLoader(
        _Batches(make),
        batch_size=None,
        sampler=range(step, run.steps),
        num_workers=workers,
        prefetch_factor=4 if workers else None,
    )
    for batch in loader:
        torch.manual_seed(run.seed * 1_000_003 + step)
        done = max(step / run.steps, (time.monotonic() - began) / (60 * minutes))
        for group in optimizer.param_groups:
            group["lr"] = run.learning_rate * min(1.0, (step + 1) / run.warmup) * max(0.03, 1 - done)
        losses.append(_step(reader, optimizer, batch, teacher))
        step += 1
        if step % save_every == 0 or step == run.steps or done >= 1:
            save_state(out / _STATE, trained, optimizer, step)
            log_record(out, {"step": step, "loss": fmean(losses), "seconds": round(time.monotonic() - began)})
            losses.clear()
        if done >= 1:
            break
        if check is not None and step % check_every == 0 and step < run.steps:
            check(step)
    made = SpanReader(reader.eval(), tokenizer)
    save_reader(made, out)
    return made


class _Batches(Dataset[JointBatch]):
    """The batch of each step."""

    def __init__(self, make: Callable[[int], JointBatch]) -> None:
        self.make = make

    def __getitem__(self, step: int) -> JointBatch:
        return self.make(step)


def begin(encoder: Path, run: JointRun) -> JointReader:
    """A reader with the weights of an encoder, or of another reader; those that do not learn require no gradient."""
    config = BertConfig.from_pretrained(encoder)
    config.hidden_dropout_prob, config.attention_probs_dropout_prob = run.dropout, 0.0
    reader = JointReader(config)
    part, weights = reader.encoder, load_file(encoder / WEIGHTS_FILE)
    if "points.weight" in weights:
        part, weights = reader, read_weights(encoder / WEIGHTS_FILE, torch.float32)
    missing, _ = part.load_state_dict(weights, strict=False)
    if missing:
        raise ValueError(f"{encoder} is not a BERT-like encoder: it has no {missing[0]}.")
    reader.encoder.embeddings.requires_grad_(False)
    for layer in reader.encoder.encoder.layer[: run.frozen_layers]:
        layer.requires_grad_(False)
    return reader


def average(first: Path, second: Path, out: Path, share: float) -> None:
    """Write a reader of the weights of two, `share` of the second: training that went on for long may lose what the
    first knew, and between both often neither is lost (arXiv 2203.05482). Raises ValueError for another share."""
    if not 0 < share < 1:
        raise ValueError(f"The share of the second reader is between 0 and 1, not {share:g}.")
    one, other = (load_span_reader(each / FOLDER) for each in (first, second))
    theirs = other.network.state_dict()
    mixed = {name: weight.lerp(theirs[name], share) for name, weight in one.network.state_dict().items()}
    one.network.load_state_dict(mixed)
    save_reader(one, out)


def measure(
    reader: JointReader, tokenizer: Tokenizer, data: Path, sources: Sequence[str], most: int
) -> dict[str, dict[str, float]]:
    """Figures by source, from the gold passage."""
    questions = [each for source in sources for each in development_questions(data, source, most)]
    return summary(judge_joint(reader, tokenizer, questions))


def open_tokenizer(folder: Path) -> Tokenizer:
    """Without the truncation and padding that a checkpoint's file may ask for."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def joint_loss(logits: SpanLogits, batch: JointBatch) -> Tensor:
    """Negative log-likelihood of any accepted start and of any accepted end, in nats (arXiv 1710.10723)."""
    losses = []
    for each_QN1, right_QN1 in zip(logits, (batch.start_QN1, batch.end_QN1), strict=True):
        right_Q = each_QN1.masked_fill(~right_QN1, -torch.inf).logsumexp(-1)
        losses.append((each_QN1.logsumexp(-1) - right_Q).mean())
    return torch.stack(losses).sum()


def teacher_loss(logits: SpanLogits, by_teacher: SpanLogits) -> Tensor:
    """Cross-entropy to the teacher's probabilities of the first and the last token, in nats, mean over questions."""
    losses = [
        -(theirs_QN1.softmax(-1) * ours_QN1.log_softmax(-1)).sum(-1).mean()
        for ours_QN1, theirs_QN1 in zip(logits, by_teacher, strict=True)
    ]
    return torch.stack(losses).sum()


def _step(
    reader: JointReader, optimizer: torch.optim.Optimizer, batch: JointBatch, teacher: JointReader | None
) -> float:
    reader.train()
    device = reader.points.weight.device
    batch = batch.to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=fast_precision(device.type) == "bf16"):
        logits = reader(batch.rows)
        with torch.no_grad():
            by_teacher = teacher(batch.rows) if teacher is not None else None
    loss = joint_loss(logits, batch)
    if by_teacher is not None:
        loss = loss.lerp(teacher_loss(logits, by_teacher), 0.5)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_([p for p in reader.parameters() if p.requires_grad], 1.0)
    optimizer.step()
    return loss.item()
