"""The parts of transformers that the model is built on, loaded by one thread.

transformers loads its parts when they are first named, and fails where two threads (a question and a job, say) name
them at once. Modules that serve import them from here: Python lets one thread import a module and the others wait.
"""

from transformers import AttentionInterface as AttentionInterface
from transformers import AutoConfig as AutoConfig
from transformers import AutoModel as AutoModel
from transformers import AutoModelForCausalLM as AutoModelForCausalLM
from transformers import AutoTokenizer as AutoTokenizer
from transformers import BertConfig as BertConfig
from transformers import BertModel as BertModel
from transformers import DynamicCache as DynamicCache
from transformers import PreTrainedConfig as PreTrainedConfig
from transformers import PreTrainedTokenizerBase as PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING as MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils.hub import cached_file as cached_file
