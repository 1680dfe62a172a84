"""Which networks landmark attention was tested on.

An allow-list: other families differ in ways that fail silently (interleaved rotation, soft caps, layers without
positions).
"""

from typing import Any

from model.checkpoint.backbones import PreTrainedConfig
from model.errors import UnsupportedBackbone

TESTED_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "starcoder2")
TESTED_ROPE = ("default", "linear", "llama3", "yarn")


def check_backbone(config: PreTrainedConfig) -> None:
    """Raise `UnsupportedBackbone` for an untested family or rope type."""
    if config.model_type not in TESTED_FAMILIES:
        raise UnsupportedBackbone(
            f"model family {config.model_type!r} is not supported: landmark attention is tested on "
            f"{', '.join(TESTED_FAMILIES)} "
            "(Llama 1-3 and SmolLM2, Mistral, Qwen2/2.5, Qwen3, StarCoder2). Choose a checkpoint of one of these."
        )
    kind = (rope_of(config) or {}).get("rope_type", "default")
    if kind not in TESTED_ROPE:
        raise UnsupportedBackbone(
            f"rope type {kind!r} is not supported: stored keys need positions that do not depend on the length "
            f"({', '.join(TESTED_ROPE)})."
        )


def rope_of(config: PreTrainedConfig) -> dict[str, Any]:
    """The rotary settings of a network."""
    return dict(getattr(config, "rope_parameters", None) or {})
