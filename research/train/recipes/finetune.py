"""Fine-tuning a checkpoint to use landmarks: all weights, or low-rank adapters (LoRA) and the rows of the landmark
token.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from research.landmark_models import with_config
from research.train.engine.trainer import TrainingResult, run_training
from research.train.losses.next_token import next_token_loss
from research.train.recipes.export import export, training_device
from research.train.recipes.presets import LoraSettings, Preset
from research.train.recipes.pretrain import heldout_loss, rows_of

ADAPTER = "landmark"


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

    def load(device: str | torch.device) -> LandmarkModel:
        model = load_backbone(checkpoint, device=device, dtype=dtype, block_size=preset.rows.block_size)
        preset.rows.check_fits(model.max_positions)
        windows = preset.rows.windows(model.config.block_size)
        model = with_config(model, landmark_in_loss=preset.rows.targets == "all", **windows)
        if preset.lora is not None:
            add_adapters(model, preset.lora)
        return model

    model = load(device or training_device())
    result = run_training(
        model,
        rows_of(data, model, preset.rows, seed=preset.training.seed),
        next_token_loss,
        preset.training,
        folder,
        evaluate=heldout_loss(rows_of(heldout, model, preset.rows, seed=0), heldout_rows) if heldout else None,
        progress_bar=progress_bar,
    )
    export(model, folder, lambda: load("cpu"), finish=merge_adapters)
    return result


def add_adapters(model: LandmarkModel, settings: LoraSettings) -> None:
    """Freeze the backbone and put trainable low-rank adapters into it, in place.

    The landmark's rows of embedding and head are trained in full: they are new, so there is nothing to adapt.
    """
    from peft import LoraConfig, LoraModel  # takes seconds to import, here and below

    landmark = model.config.landmark_token_id
    tied = model.backbone.get_input_embeddings().weight is model.backbone.get_output_embeddings().weight
    rows = {"embed_tokens": [landmark]} if tied else {"embed_tokens": [landmark], "lm_head": [landmark]}
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]
        lora_dropout=settings.dropout,
        target_modules=list(settings.modules),
        trainable_token_indices=rows,
    )
    LoraModel(model.backbone, config, ADAPTER)


def merge_adapters(model: LandmarkModel) -> None:
    """Add adapters, if any, to the weights and take them out: an ordinary checkpoint is left, all of it trainable."""
    from peft.tuners.lora import LoraLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    inside: set[nn.Module] = set()
    for name, module in list(model.backbone.named_modules()):
        if module in inside:
            continue
        if isinstance(module, AuxiliaryTrainingWrapper):  # the landmark's rows
            inside.update(model.backbone.get_submodule(name).modules())
            plain = module.unload_and_optionally_merge_module(merge=True, safe_merge=False, adapter_names=None)
            model.backbone.set_submodule(name, plain)
        elif isinstance(module, LoraLayer):
            inside.update(model.backbone.get_submodule(name).modules())
            module.merge()
            model.backbone.set_submodule(name, module.get_base_layer())
    model.backbone.tie_weights()
    for parameter in model.parameters():
        parameter.requires_grad_(True)
