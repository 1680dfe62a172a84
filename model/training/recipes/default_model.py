"""The recipe of the default model, from a data folder to a checkpoint. Run: `python -m model.training default-model
--help`.

prepare: tokenizer, documents and questions as tokens (kept in `OUT/prepared`).
start:   a sentence encoder rewritten as a causal decoder (see `encoder_start.py`).
teach:   its memory layer learns to mean, to find and to point (see `teaching.py`), with exact resume.
read:    what is behind the memory layer's attention learns to say what it read (see `routing.py`); what search is made
         of stays as it is.
point:   a head over the stored keys learns where answers stand (see `pointing.py`); the network stays as it is.
"""

import json
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.checkpoint.config import LandmarkConfig
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from model.checkpoint.save import save_int8
from model.scoring.span_head import SpanHead
from model.training.convert.init_from_encoder import Encoder, decoder_config, decoder_from_encoder
from model.training.data.corpus import QuestionSet, overlap, read_questions, sample_texts
from model.training.data.distillation_batches import TaughtRowMaker, TaughtShape
from model.training.data.examples import (
    TokenDocuments,
    document_frequency,
    encode_questions,
    encode_texts,
)
from model.training.data.hard_negatives import find_lookalikes
from model.training.data.key_cache import cache_keys, retrieve_candidates
from model.training.data.question_batches import QuestionRowMaker, RowShape
from model.training.data.span_batches import PointingRowMaker, PointingShape
from model.training.data.span_dataset import pointed_documents, same_titles
from model.training.data.tokenizer import load_tokenizer, train_tokenizer
from model.training.engine.batches import IndexedBatches
from model.training.engine.settings import TrainingSettings, fast_precision
from model.training.engine.trainer import Evaluation, TrainingResult, run_training
from model.training.losses.question_answering_loss import AnswerLossWeights, AnswerTrainer, question_loss
from model.training.losses.retriever_loss import RetrieverLossWeights, RetrieverTrainer, retriever_loss
from model.training.losses.span_loss import span_loss


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
    settings: TrainingSettings = field(
        default_factory=lambda: _settings(steps=4000, max_seconds=60 * 60, compile_layers=True)
    )
    shape: TaughtShape = TaughtShape()
    shares: RetrieverLossWeights = RetrieverLossWeights()
    reading: TrainingSettings = field(default_factory=lambda: _settings(steps=2000, max_seconds=9 * 60, rate=1e-3))
    reading_shape: RowShape = RowShape(rows=16, blocks=4, questions=24, asked_tokens=61)
    reading_shares: AnswerLossWeights = AnswerLossWeights(text=0.5, text_positions=512, quoted=False)
    pointing: TrainingSettings = field(default_factory=lambda: _settings(steps=300, max_seconds=5 * 60))
    """Short: over stored documents alone the head soon learns their questions by heart (docs/experiments.md)."""
    pointing_shape: PointingShape = PointingShape(stored_blocks=13_000, planted=500)
    held_out: int = 12
    """Every so-many-th training document is kept back, for choices made on the way."""

    def in_precision(self, precision: Literal["fp32", "bf16"]) -> "Recipe":
        return replace(
            self,
            settings=replace(self.settings, precision=precision),
            reading=replace(self.reading, precision=precision),
            pointing=replace(self.pointing, precision="fp32"),  # a small head, whose sums are over thousands of tokens
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


PHASES = ("teach", "read", "point")
Size = Literal["tiny", "cpu", "gpu"]

SIZES: dict[Size, Recipe] = {
    "tiny": Recipe(
        vocab_size=600,
        tokenizer_characters=300_000,
        text_characters=300_000,
        fitted_texts=20,
        settings=_settings(steps=4, max_seconds=None),
        shape=TaughtShape(rows=3, blocks=2, text_rows=1, questions_a_row=2, questions=6),
        reading=_settings(steps=3, max_seconds=None),
        reading_shape=RowShape(rows=4, questions=6),
        pointing=_settings(steps=3, max_seconds=None, rate=1e-3),
        pointing_shape=PointingShape(width=8, layers=1, stored_blocks=60, planted=4, questions=6, blocks=3, found=4),
    ),
    "cpu": Recipe(),
    "gpu": Recipe(
        text_characters=400_000_000,
        settings=_settings(steps=12_000, max_seconds=22 * 60, rate=6e-4),
        shape=TaughtShape(rows=128, text_rows=54, questions=240),
        reading=_settings(steps=4000, max_seconds=5 * 60, rate=1e-3),
        reading_shape=RowShape(rows=96, blocks=4, questions=160, asked_tokens=61),
        pointing=_settings(steps=600, max_seconds=5 * 60),
        pointing_shape=PointingShape(stored_blocks=80_000, planted=4000, questions=128),
    ),
}


@dataclass
class Prepared:
    """What training reads."""

    tokenizer: Any
    sample: list[str]
    questions: TokenDocuments
    held_out: TokenDocuments
    texts: list[NDArray[np.uint16]]
    text_titles: list[str]
    idf_V: NDArray[np.float32]


def prepare(data: Path, out: Path, recipe: Recipe, begin: Path | None = None) -> Prepared:
    """Tokenizer and token files; the tokenizer is taken from `out/prepared` if it is there, or from `begin`."""
    folder = out / "prepared"
    folder.mkdir(parents=True, exist_ok=True)
    questions = read_questions(data, "train")
    if begin is not None:
        load_tokenizer(begin).save_pretrained(folder)
    if not (folder / "tokenizer.json").exists():
        texts = sample_texts(data, characters=recipe.tokenizer_characters)
        sample = [
            *(each.text for each in texts),
            *(text[:5000] for text in questions.texts[::3]),
            *(question.text for question in questions.questions[::2]),
        ]
        train_tokenizer(sample, vocab_size=recipe.vocab_size).save_pretrained(folder)
    tokenizer = load_tokenizer(folder)
    check_overlap(questions, read_questions(data, "dev"), folder)
    texts = sample_texts(data, characters=recipe.text_characters, seed=1)
    by_text = zip(texts, encode_texts(tokenizer, [each.text for each in texts]), strict=True)
    long_enough = [(ids, each.title) for each, (ids, _) in by_text if len(ids) > 80]
    texts_ids, text_titles = [ids for ids, _ in long_enough], [title for _, title in long_enough]
    idf = document_frequency(texts_ids[:4000], len(tokenizer), recipe.block_size - 1)
    encoded = encode_questions(tokenizer, questions, idf, longest_question=recipe.shape.longest_question)
    train = [q for q in encoded.questions if q.document % recipe.held_out]
    held = [q for q in encoded.questions if not q.document % recipe.held_out]
    return Prepared(
        tokenizer,
        [each.text[:400] for each in texts[: recipe.fitted_texts]],
        TokenDocuments(encoded.ids, encoded.titles, train),
        TokenDocuments(encoded.ids, encoded.titles, held),
        texts_ids,
        text_titles,
        idf,
    )


def check_overlap(train: QuestionSet, dev: QuestionSet, folder: Path) -> None:
    """Take training questions that also stand in the development sets out of `train`, and write what was found to
    overlap.json."""
    found = overlap(dev, train)
    banned = set(found["pair"]) | set(found["passage"])
    (folder / "overlap.json").write_text(json.dumps({name: len(ids) for name, ids in found.items()}))
    train.questions = [question for question in train.questions if question.id not in banned]


def start(prepared: Prepared, recipe: Recipe, encoder: Encoder) -> LandmarkModel:
    """The network before training; its last layer is the memory."""
    tokenizer = prepared.tokenizer
    ids = {name: int(tokenizer.convert_tokens_to_ids(f"<{name}>")) for name in ("landmark", "end", "pad")}
    config = decoder_config(
        encoder, len(tokenizer), rope_theta=recipe.rope_theta, eos_token_id=ids["end"], pad_token_id=ids["pad"]
    )
    network = decoder_from_encoder(encoder, tokenizer, config, prepared.sample)
    landmark = LandmarkConfig(
        block_size=recipe.block_size,
        landmark_token_id=ids["landmark"],
        memory_layers=(config.num_hidden_layers - 1,),
        prompt="<question>{question}<question>{question}<answer>",
        stop=("\n\n",),
        quotes=True,
        quotes_sentences=True,
        search_weights=((1.0,) * config.num_attention_heads,),
        ranks_by_tokens=True,
        points_at_answers=True,
        window_blocks=4,
        context_blocks=2,
    )
    model, shape = LandmarkModel(network, tokenizer, landmark), recipe.pointing_shape
    return model.with_span_head(SpanHead(model.num_kv_heads * model.head_dim, shape.width, shape.layers, shape.dropout))


def teach(
    model: LandmarkModel,
    frame_EE: Tensor,
    prepared: Prepared,
    recipe: Recipe,
    encoder: Encoder,
    out: Path,
    seed: int = 0,
    *,
    confused: bool = False,
) -> TrainingResult:
    """Training; resumes what stands in `out/teach`. The newest checkpoint is always in `out/model`.

    confused: teach with what the model as it is takes for answers, too (it has to be able to search).
    """
    taught = RetrieverTrainer(model, frame_EE, recipe.shares).to(model.device)
    hard = find_lookalikes(model, prepared.questions, recipe.pointing_shape, out / "lookalikes") if confused else None
    maker = TaughtRowMaker(
        prepared.questions,
        prepared.texts,
        model,
        encoder,
        recipe.shape,
        text_titles=prepared.text_titles,
        lookalikes=hard,
        seed=seed,
    )
    return _train(taught, maker.make, retriever_loss, recipe.settings, out / "teach", _saving(model, out))


def read(model: LandmarkModel, prepared: Prepared, recipe: Recipe, out: Path) -> TrainingResult:
    """Training of the parts that search does not use; resumes what stands in `out/read`."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    last = model.backbone.model.layers[-1]
    for part in (last.self_attn.v_proj, last.self_attn.o_proj, last.post_attention_layernorm, last.mlp):
        part.requires_grad_(True)
    model.backbone.model.norm.requires_grad_(True)
    trainee = AnswerTrainer(model, recipe.reading_shares, learns_search=False)
    trainee.search_logits_YH.requires_grad_(False)
    maker = QuestionRowMaker(prepared.questions, prepared.texts, model, prepared.idf_V, recipe.reading_shape)
    return _train(trainee, maker.make, question_loss, recipe.reading, out / "read", _saving(model, out))


def point(model: LandmarkModel, prepared: Prepared, recipe: Recipe, out: Path) -> TrainingResult:
    """Training of the pointing head; resumes what stands in `out/point`, stored documents and training alike."""
    assert model.span_head is not None
    model.requires_grad_(False)
    model.span_head.requires_grad_(True)
    shape, folder = recipe.pointing_shape, out / "point"
    documents, questions = pointed_documents(
        model, prepared.questions, prepared.held_out.questions, prepared.texts, shape
    )
    stored = cache_keys(model, documents, folder)
    asked = [question.ids for question in questions]
    met = retrieve_candidates(model, stored, asked, folder, found=shape.found)
    sources = Counter(question.source for question in questions)
    (folder / "sources.json").write_text(json.dumps(dict(sources.most_common()), indent=1))
    held = same_titles(questions, prepared.questions.titles, prepared.held_out.questions)
    kept = sorted(set(range(len(questions))) - set(held))
    maker = PointingRowMaker(stored, questions, met, shape, kept)
    watched = random.Random(0).sample(held, min(len(held), 8 * shape.questions))
    groups = [watched[start : start + shape.questions] for start in range(0, len(watched), shape.questions)]

    def keep(trained: Any, step: int) -> dict[str, float]:
        export(model, out / "model")
        found = [span_loss(trained, maker.served(numbers, shape.blocks)) for numbers in groups]
        return {"loss": float(np.mean([float(loss) for loss, _, _ in found]))} if found else {}

    return _train(model.span_head, maker.make, span_loss, recipe.pointing, folder, keep)


def _train(
    trained: Any, make: Any, loss: Any, settings: TrainingSettings, folder: Path, keep: Evaluation
) -> TrainingResult:
    watched = replace(settings, evaluate_every=settings.save_every)
    return run_training(trained, IndexedBatches(make), loss, watched, folder, evaluate=keep, progress_bar=False)


def _saving(model: LandmarkModel, out: Path) -> Evaluation:
    def keep(_: Any, step: int) -> dict[str, float]:
        export(model, out / "model")
        return {"saved": float(step)}

    return keep


def export(model: LandmarkModel, folder: Path) -> None:
    """Write the checkpoint with int8 matrices; the model itself stays as it is."""
    save_int8(model, folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def make_default_model(
    data: Path,
    out: Path,
    *,
    encoder: Path,
    size: Size = "cpu",
    device: str | None = None,
    begin: Path | None = None,
    phases: Collection[str] = PHASES,
    seed: int = 0,
) -> TrainingResult:
    """All of it, or some phases; the checkpoint is written to `out/model`.

    encoder: folder of all-MiniLM-L6-v2 or its like. begin: folder of a checkpoint that this recipe has made, to go on
    from its weights. seed: of the order of what is taught.
    """
    if size not in SIZES:
        raise ValueError(f"size is {size!r}; choose one of {', '.join(SIZES)}.")
    if not phases or set(phases) - set(PHASES):
        raise ValueError(f"phases are {', '.join(PHASES)}, and at least one; not {', '.join(phases) or 'none'}.")
    target = device or ("cuda" if torch.cuda.is_available() else "cpu")
    recipe, teacher = SIZES[size].in_precision(fast_precision(torch.device(target).type)), Encoder.load(encoder)
    prepared = prepare(data, out, recipe, begin)
    model = start(prepared, recipe, teacher)
    frame_EE = model.backbone.model.layers[-1].self_attn.k_proj.weight.detach().clone()
    if begin is not None:
        go_on_from(model, begin)
    model.to(target)
    if "teach" in phases:
        result = teach(model, frame_EE, prepared, recipe, teacher.to(target), out, seed, confused=begin is not None)
    if "read" in phases:
        result = read(model, prepared, recipe, out)
    if "point" in phases:
        result = point(model, prepared, recipe, out)
    return result


def go_on_from(model: LandmarkModel, folder: Path) -> None:
    """Put the weights of a checkpoint into what the recipe starts with."""
    begun = load_backbone(folder, device="cpu", dtype=torch.float32)
    weights = begun.backbone.state_dict()
    own = model.backbone.state_dict()
    if {name: x.shape for name, x in weights.items()} != {name: x.shape for name, x in own.items()}:
        raise ValueError(
            f"{folder} is no checkpoint of this recipe; give the folder of a model that default-model made."
        )
    model.backbone.load_state_dict(weights)
    if begun.span_head is not None and model.span_head is not None:
        model.span_head.load_state_dict(begun.span_head.state_dict())
