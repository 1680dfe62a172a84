"""Checkpoints from a folder or the Hugging Face hub, as landmark models and as writers."""

import os
from pathlib import Path
from typing import Any

import torch

from model.checkpoint.adapter import find_adapter, load_adapted
from model.checkpoint.backbones import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig, cached_file
from model.checkpoint.chat_model import ChatModel, FewBits
from model.checkpoint.config import LandmarkConfig
from model.checkpoint.encoder_model import load_encoder
from model.checkpoint.families import ENCODER_FAMILIES, check_backbone, check_chat_backbone
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.published import (
    add_landmark_token,
    numbers_of,
    read_config,
    read_network,
    read_published,
    read_tokenizer,
)
from model.checkpoint.weights import INT8, PACKED, WEIGHTS_FILE, read_weights
from model.errors import ModelError


def load_backbone(
    path_or_hub_id: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    block_size: int = 64,
    query_prefix: str | None = None,
    passage_prefix: str | None = None,
) -> LandmarkModel:
    """Load a checkpoint as a landmark model, ready for inference; an encoder as a finder (`load_encoder`), for which
    alone the prefixes are.

    Device: CUDA if there is one, else CPU. Dtype: bfloat16 on CUDA and for models over a billion parameters, else
    float32; rounded matrices (`model.checkpoint.weights`) are expanded to it. A checkpoint that is not a
    landmark model yet gets a landmark token, its rows the mean of the old ones, and blocks of `block_size`. Raises
    `UnsupportedBackbone` for families and configurations that were not tested, `ModelError` for a folder without a
    checkpoint and for weights that are damaged or do not fit. An adapter (`model.checkpoint.adapter`) is put into its
    base.
    """
    source, target = _opened(path_or_hub_id, device)
    if (adapted := find_adapter(source)) is not None:
        backbone, tokenizer, settings = load_adapted(*adapted, target, dtype)
        return LandmarkModel(backbone.to(target).eval(), tokenizer, settings, source=source)
    config = read_config(source)
    is_encoder = config.model_type in ENCODER_FAMILIES
    if not is_encoder:
        check_backbone(config)
    tokenizer, numbers = read_tokenizer(source), numbers_of(dtype, target, config)
    if is_encoder:
        prefixes = query_prefix, passage_prefix
        return load_encoder(source, tokenizer, target, numbers, block_size=block_size, prefixes=prefixes)
    backbone = _read_weights(source, config, numbers)
    landmark = getattr(config, "landmark", None)
    if landmark is None:
        settings = LandmarkConfig(block_size=block_size, landmark_token_id=add_landmark_token(backbone, tokenizer))
    else:
        settings = LandmarkConfig.from_dict(landmark)
        if settings.landmark_token_id >= backbone.get_input_embeddings().num_embeddings:
            raise ModelError(
                f"config.landmark names token {settings.landmark_token_id}, which the vocabulary does not have."
            )
    return LandmarkModel(backbone.to(target).eval(), tokenizer, settings, source=source)


def load_chat_model(
    path_or_hub_id: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    few_bits: FewBits | None = None,
    kept: Path | None = None,
) -> ChatModel:
    """Load an instruct checkpoint as a writer: any of `families.CHAT_FAMILIES`, just as it was published.

    Device and dtype as in `load_backbone`. A GGUF file is expanded to that dtype (`model.checkpoint.published`); else
    only safetensors are read. few_bits: how its matrices are kept, if in fewer bits; kept: the file of their digest
    (`kept_weights_digest`). Raises `UnsupportedBackbone` for families that were not tested and for checkpoints
    without a chat template, `ModelError` for a folder without a checkpoint and for files that cannot be read.
    """
    source, target = _opened(path_or_hub_id, device)
    backbone, tokenizer = read_published(source, check_chat_backbone, target, dtype)
    model = ChatModel(backbone.to(target).eval(), tokenizer, source=source)
    return model.in_few_bits(few_bits, kept) if few_bits else model


def _opened(source: str | Path, device: str | torch.device | None) -> tuple[str, torch.device]:
    """The checkpoint's name, a ~ before it resolved, and its device."""
    return os.path.expanduser(source), torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _read_weights(source: str, config: PreTrainedConfig, dtype: torch.dtype) -> Any:
    """The backbone in `dtype`."""
    kind = getattr(config, "weights", None)
    if kind is None:
        return read_network(source, dtype)
    if kind not in (INT8, PACKED):
        raise ModelError(
            f"{source} keeps its weights as {kind!r}, which this version does not know (only {INT8!r} and {PACKED!r}): "
            "the checkpoint was made by a newer version; update Cairn."
        )
    found = cached_file(source, WEIGHTS_FILE, _raise_exceptions_for_missing_entries=False)
    if found is None:
        raise ModelError(f"{source} holds no {WEIGHTS_FILE}; copy the checkpoint again.")
    file = Path(found)
    del config.weights  # the model in memory is a plain one, and so is what `LandmarkModel.save` writes
    family: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    try:
        backbone, loaded = family.from_pretrained(
            None, config=config, state_dict=read_weights(file, dtype), dtype=dtype, output_loading_info=True
        )
    except RuntimeError as error:  # raised for shapes that differ
        raise ModelError(f"{file} does not fit its config.json: {error}") from error
    if wrong := sorted(loaded["missing_keys"] | loaded["unexpected_keys"]):
        raise ModelError(f"{file} does not fit its config.json; first weight that is missing or unknown: {wrong[0]}.")
    return backbone
