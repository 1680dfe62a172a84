"""The parts of transformers that the model is built on, loaded by one thread.

transformers loads its parts when they are first named, and fails where two threads (a question and a job, say) name
them at once. Modules that serve import them from here: Python lets one thread import a module and the others wait.
"""

from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    BertConfig,
    BertModel,
    DynamicCache,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils.hub import cached_file

__all__ = [
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "AttentionInterface",
    "AutoConfig",
    "AutoModel",
    "AutoModelForCausalLM",
    "AutoTokenizer",
    "BertConfig",
    "BertModel",
    "DynamicCache",
    "PreTrainedConfig",
    "PreTrainedTokenizerBase",
    "cached_file",
]
