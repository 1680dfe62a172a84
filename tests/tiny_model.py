"""Models for tests: the shipped one, and small random ones of every supported family with a byte-level tokenizer."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
    Starcoder2Config,
)

from model.checkpoint.chat_model import ChatModel
from model.checkpoint.config import LandmarkConfig
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from model.reading.ranker import Decision, Ranker

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

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0] * 6,
    "long_factor": [4.0] * 6,
    "original_max_position_embeddings": 1024,
}
_ENDS = {"pad_token_id": 259, "bos_token_id": 257, "eos_token_id": 258}
CHAT_FAMILIES: dict[str, PreTrainedConfig] = {
    name: FAMILIES[name] for name in ("llama", "llama-llama3-rope", "llama-tied", "mistral", "qwen2", "qwen3-yarn")
} | {
    "mistral-window": MistralConfig(**SHAPE, sliding_window=24),
    "smollm3": SmolLM3Config(**{**SHAPE, "num_hidden_layers": 4}, **_ENDS),  # every fourth layer has no positions
    "gemma3": Gemma3TextConfig(
        **SHAPE,
        **_ENDS,
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=24,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    ),
    "phi3": Phi3Config(**SHAPE, **_ENDS),
    "phi3-longrope": Phi3Config(
        **SHAPE, **_ENDS, original_max_position_embeddings=1024, partial_rotary_factor=0.75, rope_parameters=LONGROPE
    ),
}
CHAT_TEMPLATE = (
    "<bos>{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tiny_backbone(config: PreTrainedConfig, seed: int = 1) -> PreTrainedModel:
    """An ordinary network with random weights, in float32 on the CPU."""
    torch.manual_seed(seed)
    backbone = AutoModelForCausalLM.from_config(deepcopy(config)).eval()
    with torch.no_grad():
        for name, parameter in backbone.named_parameters():
            if name.endswith("bias"):  # made as zeros, so that a bias left out would go unseen
                parameter.normal_(0, 0.1)
            elif "norm" not in name:  # as made they are so small that attention is nearly even
                parameter.mul_(4)
    return backbone


def chat_tokenizer() -> PreTrainedTokenizerFast:
    """The byte tokenizer with a chat template."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def tiny_chat_model(family: str = "llama", seed: int = 1) -> ChatModel:
    """A random ordinary checkpoint of a writer's family."""
    return ChatModel(tiny_backbone(CHAT_FAMILIES[family], seed), chat_tokenizer())


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
    model = load_backbone(Path(__file__).parents[1] / "model" / "default", device="cpu", dtype=torch.float32)
    identity = model.identity()
    model.identity = lambda kept=None: identity  # hashed once, not for every library
    return model


def calibrated(model: LandmarkModel, folder: Path, **decision: Any) -> LandmarkModel:
    """The model as a checkpoint in `folder` with a ranker whose decision has these numbers."""
    model.save(folder)
    Ranker(decision=Decision(**decision)).save(folder, model.identity()["weights"], "")
    return load_backbone(folder, device="cpu")
