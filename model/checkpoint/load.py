"""Checkpoints from a folder or the Hugging Face hub, as landmark models and as writers."""

from pathlib import Path
from typing import Any

import torch

from model.checkpoint.adapter import find_adapter, load_adapted
from model.checkpoint.backbones import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    cached_file,
)
from model.checkpoint.chat_model import ChatModel, FewBits
from model.checkpoint.config import LANDMARK_TOKEN, LandmarkConfig
from model.checkpoint.encoder_model import load_encoder
from model.checkpoint.families import ENCODER_FAMILIES, check_backbone, check_chat_backbone
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.weights import (
    INT8,
    PACKED,
    WEIGHTS_FILE,
    is_gguf,
    read_gguf_head,
    read_gguf_weights,
    read_weights,
)
from model.errors import ModelError, UnsupportedBackbone, readable


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
    source = str(path_or_hub_id)
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if (adapted := find_adapter(source)) is not None:
        backbone, tokenizer, settings = load_adapted(*adapted, _numbers(dtype, target))
        return LandmarkModel(backbone.to(target).eval(), tokenizer, settings, source=source)
    config = _read_config(source)
    if config.model_type in ENCODER_FAMILIES:
        chosen, prefixes = _numbers(dtype, target, config), (query_prefix, passage_prefix)
        tokenizer = _read_tokenizer(source)
        return load_encoder(source, tokenizer, target, chosen, block_size=block_size, prefixes=prefixes)
    check_backbone(config)
    tokenizer = _read_tokenizer(source)
    backbone = _read_weights(source, config, _numbers(dtype, target, config))
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

    Device and dtype as in `load_backbone`. A GGUF file is expanded to that dtype (`model.checkpoint.weights`); else
    only safetensors are read. few_bits: how its matrices are kept, if in fewer bits; kept: the file of their digest
    (`kept_weights_digest`). Raises `UnsupportedBackbone` for families that were not tested and for checkpoints
    without a chat template, `ModelError` for a folder without a checkpoint and for files that cannot be read.
    """
    source = str(path_or_hub_id)
    if is_gguf(source):
        config, tokenizer = read_gguf_head(source)
    else:
        config, tokenizer = _read_config(source), None
    check_chat_backbone(config)
    tokenizer = tokenizer or _read_tokenizer(source)
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    chosen = _numbers(dtype, target, config)
    with readable(f"the weights of {source}"):
        backbone = read_gguf_weights(source, chosen) if is_gguf(source) else _published_weights(source, chosen)
    placed: Any = backbone
    model = ChatModel(placed.to(target).eval(), tokenizer, source=source)
    return model.in_few_bits(few_bits, kept) if few_bits else model


def _read_config(source: str) -> PreTrainedConfig:
    if Path(source).exists() and not (Path(source) / "config.json").is_file():
        raise ModelError(
            f"{source} holds no checkpoint: config.json is missing. Give the folder of a Hugging Face checkpoint."
        )
    try:
        with readable(f"{source}/config.json"):
            config: PreTrainedConfig = AutoConfig.from_pretrained(source, trust_remote_code=False)
    except ModelError as error:
        if Path(source).exists():
            raise
        raise ModelError(
            f"no checkpoint at {source}: neither a folder nor a model that could be downloaded ({error.__cause__})."
        ) from error
    return config


def _read_tokenizer(source: str) -> Any:
    if (Path(source) / "tokenizer.model").is_file() and not (Path(source) / "tokenizer.json").is_file():
        raise UnsupportedBackbone(
            f"{source} has tokenizer.model but no fast tokenizer (tokenizer.json), which says where each token stands "
            f"in the text: `python -m research.train convert-llama --published {source} --out FOLDER` makes one."
        )
    with readable(f"the tokenizer of {source}"):
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    if not tokenizer.is_fast:
        raise UnsupportedBackbone(
            f"{source} has no fast tokenizer (tokenizer.json), which gives each token's place in the text."
        )
    return tokenizer


def _numbers(
    dtype: torch.dtype | str | None, device: torch.device, config: PreTrainedConfig | None = None
) -> torch.dtype:
    """In which numbers a checkpoint computes, by default (see `load_backbone`) or as asked."""
    if dtype is not None:
        return getattr(torch, dtype) if isinstance(dtype, str) else dtype
    large = config is not None and (
        12 * config.num_hidden_layers * config.hidden_size**2 + config.vocab_size * config.hidden_size > 10**9
    )
    return torch.bfloat16 if device.type == "cuda" or large else torch.float32


def add_landmark_token(backbone: Any, tokenizer: Any) -> int:
    """Add a landmark token to the vocabulary, its input and output rows the mean of the old ones; returns its id."""
    old = len(tokenizer)
    tokenizer.add_tokens([LANDMARK_TOKEN], special_tokens=True)
    token = int(tokenizer.convert_tokens_to_ids(LANDMARK_TOKEN))
    if token >= backbone.get_input_embeddings().num_embeddings:
        backbone.resize_token_embeddings(token + 1, mean_resizing=False)
    with torch.no_grad():
        for table in {id(t): t for t in (backbone.get_input_embeddings(), backbone.get_output_embeddings())}.values():
            table.weight[token] = table.weight[: min(old, token)].float().mean(0).to(table.weight.dtype)
    return token


def _published_weights(source: str, dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(source, dtype=dtype, use_safetensors=True, trust_remote_code=False)


def _read_weights(source: str, config: PreTrainedConfig, dtype: torch.dtype) -> Any:
    """The backbone in `dtype`."""
    kind = getattr(config, "weights", None)
    if kind is None:
        with readable(f"the weights of {source}"):
            return _published_weights(source, dtype)
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
