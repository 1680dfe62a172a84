"""A GGUF file (llama.cpp, Ollama, LM Studio) as an ordinary checkpoint.

transformers reads config, tokenizer and chat template from the file's header, and expands the weights: whatever they
were rounded to, in memory they take as much as those of an ordinary checkpoint.
"""

from pathlib import Path
from typing import Any

import torch

from model.checkpoint.backbones import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig
from model.errors import ModelError

SUFFIX = ".gguf"
HOW_TO = "Or let a server load it (llama.cpp, Ollama, LM Studio), and name the address of that as the writer."


def is_gguf(source: str) -> bool:
    """Whether a checkpoint's name is that of a GGUF file."""
    return source.lower().endswith(SUFFIX)


def read_gguf_head(source: str) -> tuple[PreTrainedConfig, Any]:
    """Config and tokenizer. Raises `ModelError` where there is no such file, it is not GGUF or of a network that
    transformers does not read, or the package `gguf` is missing."""
    path = Path(source)
    if not path.is_file():
        raise ModelError(f"there is no file {source}.")
    try:
        import gguf  # noqa: F401  # transformers imports it, and says less when it is missing
    except ImportError as error:
        raise ModelError(f"GGUF files need the package gguf: install Cairn as cairn[gguf]. {HOW_TO}") from error
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, trust_remote_code=False)
        return config, tokenizer
    except (ValueError, KeyError, IndexError, OSError, NotImplementedError) as error:
        raise ModelError(f"{source} cannot be read as a GGUF file: {str(error).rstrip('. ')}. {HOW_TO}") from error


def read_gguf_weights(source: str, dtype: torch.dtype) -> Any:
    """The network with its weights in `dtype`."""
    path = Path(source)
    return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype, trust_remote_code=False)
