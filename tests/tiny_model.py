"""Models for tests: the shipped one, and small random ones of every supported family with a byte-level tokenizer."""

from copy import deepcopy
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    Starcoder2Config,
)

from model.checkpoint.config import LandmarkConfig
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone

GOLDEN = Path(__file__).parent / "golden" / "tiny_mf7"


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte (256), then <landmark>, <bos>, <end>, <pad>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({char: index for index, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>", bos_token="<bos>")
    fast.add_special_tokens({"additional_special_tokens": ["<landmark>"]})
    return fast


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SHAPE = {
    "vocab_size": 264,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
FAMILIES: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SHAPE),
    "llama-llama3-rope": LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "llama-yarn": LlamaConfig(**SHAPE, rope_parameters=YARN),
    "llama-tied": LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "mistral": MistralConfig(**SHAPE, sliding_window=None),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen3": Qwen3Config(**SHAPE, head_dim=16),
    "qwen3-yarn": Qwen3Config(**SHAPE, head_dim=16, rope_parameters=YARN),
    "starcoder2": Starcoder2Config(**SHAPE, bos_token_id=257, eos_token_id=258),
}

ONE_LAYER = ((0.0, 0.0, 0.0, 0.0), (1.0, 0.5, 0.0, 2.0))
"""`search_weights` with which one of the two memory layers has all the say."""


def tiny_model(family: str = "llama", *, block_size: int = 8, seed: int = 1, **settings: object) -> LandmarkModel:
    """A random model of a supported family with a byte tokenizer; three layers, 64 wide, in float32 on the CPU."""
    torch.manual_seed(seed)
    backbone = AutoModelForCausalLM.from_config(deepcopy(FAMILIES[family])).eval()
    with torch.no_grad():
        for name, parameter in backbone.named_parameters():
            if name.endswith("bias"):  # made as zeros, so that a bias left out would go unseen
                parameter.normal_(0, 0.1)
    tokenizer = byte_tokenizer()
    landmark = tokenizer.convert_tokens_to_ids("<landmark>")
    config = LandmarkConfig(block_size=block_size, landmark_token_id=landmark, **settings)  # type: ignore[arg-type]
    return LandmarkModel(backbone, tokenizer, config)


def golden_model(**settings: object) -> LandmarkModel:
    """The model that the published implementation's numbers were recorded with (tests/golden/README.md)."""
    config = LlamaConfig.from_json_file(GOLDEN / "config.json")
    backbone = AutoModelForCausalLM.from_config(config).eval()
    backbone.load_state_dict(load_file(GOLDEN / "model.safetensors"))
    return LandmarkModel(backbone, byte_tokenizer(), LandmarkConfig(block_size=8, landmark_token_id=127, **settings))  # type: ignore[arg-type]


@cache
def shipped_model() -> LandmarkModel:
    """The checkpoint in model/default, loaded once a process: where answers have to make sense."""
    return load_backbone(Path(__file__).parents[1] / "model" / "default", device="cpu", dtype=torch.float32)
