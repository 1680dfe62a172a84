"""Fine-tuning a checkpoint to use landmarks: all weights, or low-rank adapters (LoRA) and the rows of the landmark
token.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from model.backbone import LandmarkModel, load_backbone
from model.training.loop import TrainingResult, run_training
from model.training.losses import next_token_loss
from model.training.presets import LoraSettings, Preset
from model.training.pretrain import heldout_loss, rows_of


def finetune(
    preset: Preset,
    checkpoint: str,
    data: Sequence[Path],
    folder: Path,
    *,
    heldout: Sequence[Path] = (),
    heldout_rows: int = 64,
    device: str | None = None,
    dtype: torch.dtype | None = torch.float32,
    progress_bar: bool = True,
) -> TrainingResult:
    """Train a checkpoint on text; the result lies in `folder/model` in Hugging Face layout, adapters merged.

    `checkpoint` without a landmark gets one. `dtype` is that of the weights: float32 trains best, bfloat16 takes half
    the memory.
    """
    model = load_backbone(checkpoint, device=device, dtype=dtype, block_size=preset.rows.block_size)
    model.config = model.with_config(landmark_in_loss=preset.rows.targets == "all").config
    adapters = add_adapters(model, preset.lora) if preset.lora is not None else None
    result = run_training(
        model,
        rows_of(data, model, preset.rows, seed=preset.training.seed),
        next_token_loss,
        preset.training,
        folder,
        evaluate=heldout_loss(rows_of(heldout, model, preset.rows, seed=0), heldout_rows) if heldout else None,
        progress_bar=progress_bar,
    )
    if adapters is not None:
        merge_adapters(model, adapters)
    model.save(folder / "model")
    return result


def add_adapters(model: LandmarkModel, settings: LoraSettings) -> nn.Module:
    """Freeze the backbone and put trainable low-rank adapters into it, in place; returns what `merge_adapters` needs.

    The landmark's rows of embedding and head are trained in full: they are new, so there is nothing to adapt.
    """
    landmark = model.config.landmark_token_id
    tied = model.backbone.get_input_embeddings().weight is model.backbone.get_output_embeddings().weight
    rows = {"embed_tokens": [landmark]} if tied else {"embed_tokens": [landmark], "lm_head": [landmark]}
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]
        lora_dropout=settings.dropout,
        target_modules=list(settings.modules),
        trainable_token_indices=rows,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model.backbone, config)


def merge_adapters(model: LandmarkModel, adapters: nn.Module) -> None:
    """Add the adapters to the weights and take them out again: an ordinary checkpoint is left, all of it trainable."""
    model.backbone = adapters.merge_and_unload()  # type: ignore[operator]
    for parameter in model.parameters():
        parameter.requires_grad_(True)
