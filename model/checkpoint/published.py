"""Causal checkpoints as they are published: a folder, a name on the Hugging Face hub, or a GGUF file.

A GGUF file (llama.cpp, Ollama, LM Studio) is read by transformers: config, tokenizer and chat template from its header,
and its weights expanded, so that in memory they take as much as those of an ordinary checkpoint. Of others only
safetensors are read, and no code of a checkpoint is run.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from model.checkpoint.backbones import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig
from model.checkpoint.config import LANDMARK_TOKEN
from model.errors import ModelError, UnsupportedBackbone, readable

_GGUF = ".gguf"
_HOW_TO = "Or let a server load it (llama.cpp, Ollama, LM Studio), and name the address of that as the writer."


def read_published(
    source: str, check: Callable[[PreTrainedConfig], None], device: torch.device, dtype: torch.dtype | str | None
) -> tuple[Any, Any]:
    """Network, on the CPU, and tokenizer. `check` refuses configurations before anything large is read; device, dtype:
    see `numbers_of`. Raises `ModelError` for what cannot be read."""
    if source.lower().endswith(_GGUF):
        config, tokenizer = _read_gguf_head(source)
        check(config)
    else:
        config = read_config(source)
        check(config)
        tokenizer = read_tokenizer(source)
    return read_network(source, numbers_of(dtype, device, config)), tokenizer


def read_config(source: str) -> PreTrainedConfig:
    """Of a folder or a name on the hub. Raises `ModelError`."""
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


def read_tokenizer(source: str) -> Any:
    """Of a folder or a name on the hub. Raises `UnsupportedBackbone` for one that does not tell where tokens stand."""
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


def read_network(source: str, dtype: torch.dtype) -> Any:
    """The network with its weights in `dtype`. Raises `ModelError`."""
    path = Path(source)
    with readable(f"the weights of {source}"):
        if source.lower().endswith(_GGUF):
            return AutoModelForCausalLM.from_pretrained(
                path.parent, gguf_file=path.name, dtype=dtype, trust_remote_code=False
            )
        return AutoModelForCausalLM.from_pretrained(source, dtype=dtype, use_safetensors=True, trust_remote_code=False)


def _read_gguf_head(source: str) -> tuple[PreTrainedConfig, Any]:
    """Config and tokenizer. Raises `ModelError` where there is no such file, it is not GGUF or of a network that
    transformers does not read, or the package `gguf` is missing."""
    path = Path(source)
    if not path.is_file():
        raise ModelError(f"there is no file {source}.")
    try:
        import gguf  # noqa: F401  # transformers imports it, and says less when it is missing
    except ImportError as error:
        raise ModelError(f"GGUF files need the package gguf: install Cairn as cairn[gguf]. {_HOW_TO}") from error
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, trust_remote_code=False)
        return config, tokenizer
    except (ValueError, KeyError, IndexError, OSError, NotImplementedError) as error:
        raise ModelError(f"{source} cannot be read as a GGUF file: {str(error).rstrip('. ')}. {_HOW_TO}") from error


def numbers_of(dtype: torch.dtype | str | None, device: torch.device, config: PreTrainedConfig) -> torch.dtype:
    """In which numbers a checkpoint computes: as asked, or bfloat16 on CUDA and for networks of over a billion
    parameters, else float32."""
    if dtype is not None:
        return getattr(torch, dtype) if isinstance(dtype, str) else dtype
    per_layer, width = 12 * config.hidden_size**2, config.hidden_size
    large = config.num_hidden_layers * per_layer + config.vocab_size * width > 10**9
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
