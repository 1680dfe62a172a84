"""The recipe of the default model, from a data folder to a checkpoint. Run: `python -m model.training default-model
--help`.

prepare: tokenizer, token statistics, documents and questions as tokens (kept in `OUT/prepared`).
build:   network whose landmarks retrieve from the start (see `initialise.py`).
bag:     token codes from questions (see `bag_start.py`).
train:   question training (see `routing.py`), with exact resume.
"""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from model.backbone import LandmarkModel
from model.config import LandmarkConfig
from model.training.bag_start import BagEncoder, BagSettings, train_codes
from model.training.batches import IndexedBatches
from model.training.corpus import QuestionSet, overlap, read_questions, sample_texts
from model.training.examples import TokenDocuments, encode_questions, encode_texts
from model.training.initialise import (
    build_backbone,
    document_frequency,
    principal,
    search_path,
    surface_signs,
    teacher_embeddings,
    token_codes,
)
from model.training.loop import TrainingResult, run_training
from model.training.question_rows import SOURCE_WEIGHT, QuestionRowMaker, RowShape
from model.training.routing import LossWeights, QuestionTrainee, question_loss
from model.training.settings import TrainingSettings
from model.training.tokenizer import load_tokenizer, train_tokenizer


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides what comes out."""

    vocab_size: int = 24_576
    hidden_size: int = 384
    heads: int = 6
    layers: int = 4
    mlp_size: int = 512
    memory_layers: tuple[int, ...] = (1, 3)
    block_size: int = 64
    rope_theta: float = 1e9
    tokenizer_characters: int = 40_000_000
    text_characters: int = 24_000_000
    bag: BagSettings = BagSettings()
    steps: int = 0
    """Of question training; 0 leaves the network as it was built."""
    max_seconds: float | None = 16 * 60
    learning_rate: float = 1e-4
    shape: RowShape = RowShape()
    weights: LossWeights = LossWeights()
    compile: bool = False
    learns_search: bool = False
    """Whether question training changes what search is made of. On little compute it does more harm than good
    (docs/experiments.md)."""
    save_every: int = 60
    held_out: int = 12
    """Every so-many-th training document is kept back, for choices made on the way."""


SIZES = {
    "tiny": Recipe(
        vocab_size=600,
        hidden_size=64,
        heads=2,
        mlp_size=64,
        bag=BagSettings(steps=3, questions=8, strangers=16),
        tokenizer_characters=300_000,
        text_characters=300_000,
        steps=4,
        max_seconds=None,
        compile=False,
        shape=RowShape(rows=4, questions=6),
    ),
    "cpu": Recipe(),
    "gpu": Recipe(
        hidden_size=512,
        heads=8,
        layers=6,
        mlp_size=1024,
        memory_layers=(1, 3),
        text_characters=400_000_000,
        steps=12_000,
        max_seconds=22 * 60,
        learning_rate=3e-4,
        save_every=2000,
        learns_search=True,
        bag=BagSettings(steps=4000),
        shape=RowShape(rows=128, blocks=4, questions=224, asked_tokens=48),
        weights=LossWeights(text=0.3, text_positions=8192),
    ),
}


@dataclass
class Prepared:
    """What training reads."""

    tokenizer: Any
    idf_V: NDArray[np.float32]
    questions: TokenDocuments
    held_out: TokenDocuments
    texts: list[NDArray[np.uint16]]
    codes_VE: NDArray[np.float32]


def prepare(data: Path, out: Path, recipe: Recipe, *, teacher: Path | None) -> Prepared:
    """Tokenizer and token files; taken from `out/prepared` if they are there."""
    folder = out / "prepared"
    folder.mkdir(parents=True, exist_ok=True)
    questions = read_questions(data, "train")
    if not (folder / "tokenizer.json").exists():
        texts = sample_texts(data, characters=recipe.tokenizer_characters)
        sample = [
            *texts,
            *(text[:5000] for text in questions.texts[::3]),
            *(question.text for question in questions.questions[::2]),
        ]
        train_tokenizer(sample, vocab_size=recipe.vocab_size).save_pretrained(folder)
    tokenizer = load_tokenizer(folder)
    check_overlap(questions, read_questions(data, "dev"), folder)
    texts_ids = [
        ids
        for ids, _ in encode_texts(tokenizer, sample_texts(data, characters=recipe.text_characters, seed=1))
        if len(ids) > 80
    ]
    idf = document_frequency(texts_ids[:4000], len(tokenizer), recipe.block_size - 1)
    encoded = encode_questions(tokenizer, questions, idf, longest_question=recipe.shape.asked_tokens - 2)
    teacher_VE = teacher_embeddings(tokenizer, teacher) if teacher is not None else None
    codes = token_codes(tokenizer, idf, recipe.hidden_size, teacher_VE=teacher_VE)
    train = [q for q in encoded.questions if q.document % recipe.held_out]
    held = [q for q in encoded.questions if not q.document % recipe.held_out]
    return Prepared(
        tokenizer,
        idf,
        TokenDocuments(encoded.ids, encoded.titles, train),
        TokenDocuments(encoded.ids, encoded.titles, held),
        texts_ids,
        codes,
    )


def check_overlap(train: QuestionSet, dev: QuestionSet, folder: Path) -> None:
    """Take training questions that also stand in the development sets out of `train`, and write what was found to
    overlap.json."""
    found = overlap(dev, train)
    banned = set(found["pair"]) | set(found["passage"])
    (folder / "overlap.json").write_text(json.dumps({name: len(ids) for name, ids in found.items()}))
    train.questions = [question for question in train.questions if question.id not in banned]


def build(prepared: Prepared, recipe: Recipe, bag: BagEncoder) -> LandmarkModel:
    """A network that starts where the bag training ended."""
    with torch.no_grad():
        learned_VE, turned_EE = bag.limited().numpy(), bag.turn_EE.detach().numpy()
    signs_VF = surface_signs(prepared.tokenizer)
    codes_VE, turn_EE = principal(learned_VE, prepared.idf_V, turned_EE, recipe.hidden_size - 1 - signs_VF.shape[1])
    tokenizer = prepared.tokenizer
    ids = {name: int(tokenizer.convert_tokens_to_ids(f"<{name}>")) for name in ("landmark", "end", "pad", "answer")}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.mlp_size,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        head_dim=recipe.hidden_size // recipe.heads,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=ids["end"],
        pad_token_id=ids["pad"],
        rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
    )
    network = build_backbone(
        config,
        codes_VE,
        signs_VF,
        turn_EE,
        block_size=recipe.block_size,
        landmark_token_id=ids["landmark"],
        empty_token_ids=(ids["answer"],),
    )
    landmark = LandmarkConfig(
        block_size=recipe.block_size,
        landmark_token_id=ids["landmark"],
        memory_layers=recipe.memory_layers,
        prompt="<question>{question}<answer>",
        stop=("\n\n",),
        quotes=True,
        quotes_sentences=True,
        search_weights=((1.0,) * recipe.heads, *((0.0,) * recipe.heads for _ in recipe.memory_layers[1:])),
    )
    return LandmarkModel(network, tokenizer, landmark)


def train(model: LandmarkModel, prepared: Prepared, recipe: Recipe, out: Path) -> TrainingResult:
    """Question training; resumes what stands in `out/run`. The newest checkpoint is always in `out/model`."""
    maker = QuestionRowMaker(
        prepared.questions, prepared.texts, prepared.tokenizer, model.config, prepared.idf_V, recipe.shape
    )
    settings = TrainingSettings(
        steps=recipe.steps,
        learning_rate=recipe.learning_rate,
        schedule="trapezoid",
        warmup=0.03,
        decay=0.6,
        final_ratio=0.02,
        betas=(0.9, 0.98),
        weight_decay=0.02,
        max_seconds=recipe.max_seconds,
        compile=recipe.compile,
        save_every=recipe.save_every,
        log_every=10,
        evaluate_every=recipe.save_every,
    )
    trainee = QuestionTrainee(model, recipe.weights, learns_search=recipe.learns_search)
    if not recipe.learns_search:
        trainee.search_logits_YH.requires_grad_(False)
        for parameter in search_path(model.backbone):
            parameter.requires_grad_(False)

    def keep(trained: QuestionTrainee, step: int) -> dict[str, float]:
        export(trained.with_search_weights(), out / "model")
        return {"saved": float(step)}

    return run_training(
        trainee, IndexedBatches(maker.make), question_loss, settings, out / "run", evaluate=keep, progress_bar=False
    )


def export(model: LandmarkModel, folder: Path) -> None:
    """Write the checkpoint with weights in bfloat16; the model itself stays as it is."""
    half = copy.deepcopy(model.backbone).to(torch.bfloat16)
    LandmarkModel(half, model.tokenizer, model.config).save(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def learn_codes(prepared: Prepared, recipe: Recipe, out: Path) -> BagEncoder:
    """The bag training; taken from `out/bag.safetensors` if it is there."""
    file = out / "bag.safetensors"
    content = prepared.codes_VE[:, :-1]
    if not file.exists():
        encoder = train_codes(
            prepared.questions, content, SOURCE_WEIGHT, tokens_per_block=recipe.block_size - 1, settings=recipe.bag
        )
        save_file({name: tensor.detach().contiguous() for name, tensor in encoder.state_dict().items()}, file)
    encoder = BagEncoder(content, recipe.bag.scale)
    encoder.load_state_dict(load_file(file))
    return encoder


def make_default_model(
    data: Path, out: Path, *, size: str = "cpu", teacher: Path | None = None, device: str | None = None
) -> TrainingResult:
    """All of it; the checkpoint is written to `out/model`."""
    if size not in SIZES:
        raise ValueError(f"size is {size!r}; choose one of {', '.join(SIZES)}.")
    recipe = SIZES[size]
    prepared = prepare(data, out, recipe, teacher=teacher)
    model = build(prepared, recipe, learn_codes(prepared, recipe, out))
    if recipe.steps == 0:
        export(model, out / "model")
        return TrainingResult(0, 0.0, 0, {}, {})
    return train(model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")), prepared, recipe, out)
