"""The recipe of the default model: `python -m research.train default-model --help`.

prepare: tokenizer, documents and questions as tokens (`default_data.py`).
start:   a sentence encoder rewritten as a causal decoder (`convert/init_from_encoder.py`).
teach:   the memory layer learns meaning, search and spans (`losses/retriever_loss.py`).
read:    what follows the memory layer's attention learns to put what it read into words
         (`losses/question_answering_loss.py`); everything that search uses stays frozen.

Each phase resumes exactly where it was stopped.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from model.checkpoint.config import LandmarkConfig
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from model.precision import fast_precision
from research.train.convert.init_from_encoder import Encoder, decoder_config, decoder_from_encoder
from research.train.data.batches.distillation_batches import DistillationBatchMaker
from research.train.data.batches.hard_negatives import find_hard_negatives
from research.train.data.batches.question_batches import QuestionBatchMaker
from research.train.data.encoder_frame import frame_of
from research.train.engine.batches import IndexedBatches
from research.train.engine.settings import TrainingSettings
from research.train.engine.trainer import Evaluation, LossFunction, TrainingResult, run_training
from research.train.losses.question_answering_loss import question_loss
from research.train.losses.retriever_loss import RetrieverTrainer, retriever_loss
from research.train.recipes.default_data import Prepared, prepare
from research.train.recipes.default_recipe import SIZES, Recipe, Size
from research.train.recipes.rounding import save_int8

PHASES = ("teach", "read")
FRAME_TOKENS = 300
"""Of each text that the frame of a checkpoint is found by."""


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
    """Run all phases, or some; the checkpoint is written to `out/model`.

    encoder: folder of all-MiniLM-L6-v2 or a similar model. begin: folder of a checkpoint made by this recipe, to
    continue from its weights. seed: of the order of the training data.
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
        load_weights(model, begin)
        frame_EE = frame_of(model, teacher, [ids[:FRAME_TOKENS] for ids in prepared.texts[: recipe.fitted_texts]])
    model.to(target)
    if "teach" in phases:
        teacher = teacher.to(target)
        result = teach(model, frame_EE, prepared, recipe, teacher, out, seed, mine_negatives=begin is not None)
    if "read" in phases:
        result = read(model, prepared, recipe, out)
    return result


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
        answers="quoted",
        quotes_sentences=True,
        search_weights=((1.0,) * config.num_attention_heads,),
        ranks_by_tokens=True,
        window_blocks=4,
        context_blocks=2,
    )
    return LandmarkModel(network, tokenizer, landmark)


def load_weights(model: LandmarkModel, folder: Path) -> None:
    """Put the weights of a checkpoint made by this recipe into a fresh model."""
    given = load_backbone(folder, device="cpu", dtype=torch.float32)
    weights, own = given.backbone.state_dict(), model.backbone.state_dict()
    if {name: x.shape for name, x in weights.items()} != {name: x.shape for name, x in own.items()}:
        raise ValueError(
            f"{folder} is not a checkpoint of this recipe; give the folder of a model that default-model made."
        )
    model.backbone.load_state_dict(weights)


def teach(
    model: LandmarkModel,
    frame_EE: Tensor,
    prepared: Prepared,
    recipe: Recipe,
    encoder: Encoder,
    out: Path,
    seed: int = 0,
    *,
    mine_negatives: bool = False,
) -> TrainingResult:
    """Train everything. mine_negatives: also with what the model, which must be able to search, wrongly finds."""
    trained = RetrieverTrainer(model, frame_EE, recipe.loss_weights).to(model.device)
    negatives = None
    if mine_negatives:
        negatives = find_hard_negatives(model, prepared.questions, recipe.mined, out / "hard_negatives")
    maker = DistillationBatchMaker(
        prepared.questions,
        prepared.texts,
        model,
        encoder,
        recipe.shape,
        text_titles=prepared.text_titles,
        hard_negatives=negatives,
        seed=seed,
    )
    return _train(trained, maker.make, retriever_loss, recipe.teaching, out / "teach", _save_checkpoint(model, out))


def read(model: LandmarkModel, prepared: Prepared, recipe: Recipe, out: Path) -> TrainingResult:
    """Train the parts that search does not use."""
    model.requires_grad_(False)
    last = model.backbone.model.layers[-1]
    for part in (last.self_attn.v_proj, last.self_attn.o_proj, last.post_attention_layernorm, last.mlp):
        part.requires_grad_(True)
    model.backbone.model.norm.requires_grad_(True)
    maker = QuestionBatchMaker(prepared.questions, prepared.texts, model, prepared.idf_V, recipe.answer_shape)
    loss = partial(question_loss, share=recipe.answer_weights)
    return _train(model, maker.make, loss, recipe.reading, out / "read", _save_checkpoint(model, out))


def _train(
    trained: nn.Module,
    make: Callable[[int], Any],
    loss: LossFunction,
    settings: TrainingSettings,
    folder: Path,
    evaluate: Evaluation,
) -> TrainingResult:
    settings = replace(settings, evaluate_every=settings.save_every)
    return run_training(trained, IndexedBatches(make), loss, settings, folder, evaluate=evaluate, progress_bar=False)


def _save_checkpoint(model: LandmarkModel, out: Path) -> Evaluation:
    """In place of an evaluation: writes the newest weights to `out/model`."""

    def save(_: Any, step: int) -> dict[str, float]:
        export(model, out / "model")
        return {"saved": float(step)}

    return save


def export(model: LandmarkModel, folder: Path) -> None:
    """Write the checkpoint with int8 matrices; the model itself stays as it is."""
    save_int8(model, folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
