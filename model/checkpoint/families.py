"""Which networks landmark attention was tested on.

An allow-list: other families differ in ways that fail silently (interleaved rotation, soft caps, layers without
positions).
"""

from typing import Any

from model.checkpoint.backbones import PreTrainedConfig
from model.errors import UnsupportedBackbone

TESTED_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "starcoder2")
TESTED_ROPE = ("default", "linear", "llama3", "yarn")
ENCODER_FAMILIES = ("bert", "camembert", "distilbert", "electra", "modernbert", "mpnet", "roberta", "xlm-roberta")
"""Read both ways; finders without training (`encoder_model`)."""
CHAT_FAMILIES = ("gemma3_text", "llama", "mistral", "phi3", "qwen2", "qwen3", "smollm3")
CHAT_ROPE = (*TESTED_ROPE, "longrope")


def check_backbone(config: PreTrainedConfig) -> None:
    """Raise `UnsupportedBackbone` for an untested family or rope type."""
    if config.model_type not in TESTED_FAMILIES:
        raise UnsupportedBackbone(
            f"model family {config.model_type!r} is not supported: landmark attention is tested on "
            f"{', '.join(TESTED_FAMILIES)} "
            "(Llama 1-3 and SmolLM2, Mistral, Qwen2/2.5, Qwen3, StarCoder2). Choose a checkpoint of one of these, or "
            f"an encoder as a finder: {', '.join(ENCODER_FAMILIES)}."
        )
    _check_rope(config, TESTED_ROPE)


def check_chat_backbone(config: PreTrainedConfig) -> None:
    """Raise `UnsupportedBackbone` for a family or rope type whose stored keys were not tested as a writer's."""
    if config.model_type not in CHAT_FAMILIES:
        raise UnsupportedBackbone(
            f"model family {config.model_type!r} is not supported as a local writer: stored keys are tested on "
            f"{', '.join(CHAT_FAMILIES)} (Gemma 3 270M and 1B, Llama 3 and SmolLM2, Mistral, Phi-4, Qwen2.5, Qwen3, "
            "SmolLM3). Choose one of these, or serve the checkpoint and name its address."
        )
    _check_rope(config, CHAT_ROPE)
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, cap, None) is not None:
            raise UnsupportedBackbone(f"{cap} is not supported for a local writer; choose a checkpoint without it.")


def _check_rope(config: PreTrainedConfig, tested: tuple[str, ...]) -> None:
    rope = rope_of(config)  # of all layers, or of each kind of layer
    kinds = {value.get("rope_type", "default") for value in rope.values() if isinstance(value, dict)}
    if untested := (kinds or {rope.get("rope_type", "default")}) - set(tested):
        raise UnsupportedBackbone(
            f"rope type {', '.join(map(repr, sorted(untested)))} is not supported: stored keys need positions that do "
            f"not depend on the length ({', '.join(tested)})."
        )


def rope_of(config: PreTrainedConfig) -> dict[str, Any]:
    """The rotary settings of a network."""
    return dict(getattr(config, "rope_parameters", None) or {})
