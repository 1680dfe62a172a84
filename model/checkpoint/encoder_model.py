"""An encoder of Hugging Face as a finder, without training: it finds and is quoted from, it has no words of its own.

- Stands behind the interface of a landmark model, with one memory layer of one head: the key of a token is its last
  state (through the checkpoint's projection, if it has one), of length 1, and the landmark of a block the mean of its
  keys, of length 1 too. There are no values.
- A window of blocks is read at once, both ways, wrapped as the checkpoint expects it: first token, prefix, text,
  separator. Only the text's tokens are kept.
- Late interaction ranks what landmarks propose, as with the shipped checkpoint.

Axes: B batch (rows), T tokens, N blocks, L tokens in a block (landmark last), E width of a key, H hidden width, Q
question tokens.
"""

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from model.attention.context import LandmarkContext
from model.attention.memory import MemoryReader
from model.attention.selection import SelectionPolicy
from model.checkpoint.backbone_model import text_digest, weights_digest
from model.checkpoint.backbones import AutoModel, DynamicCache, cached_file
from model.checkpoint.config import LandmarkConfig
from model.checkpoint.landmark_model import LandmarkModel, Prompt
from model.checkpoint.weights import WEIGHTS_FILE
from model.errors import ContextTooLong, ModelError, readable

WINDOW_BLOCKS = 4
"""Blocks that are read together, fewer where the encoder has fewer positions."""
_AROUND = 200
"""Characters on each side of a block within which a word that crosses its border is looked for."""


@dataclass(frozen=True)
class EncoderPrefixes:
    """Token ids before every question and before every window of a document, for checkpoints trained with them."""

    query: tuple[int, ...] = ()
    passage: tuple[int, ...] = ()


class EncoderModel(LandmarkModel):
    """See the module. `projection_EH`: weights of a ColBERT-style checkpoint's last layer; None: states are the keys.

    Raises `ModelError` for an encoder that cannot read a block at once.
    """

    is_causal_lm = False
    projection_EH: Tensor | None

    def __init__(
        self,
        encoder: Any,
        tokenizer: Any,
        *,
        block_size: int = 64,
        prefixes: EncoderPrefixes = EncoderPrefixes(),
        projection_EH: Tensor | None = None,
        source: str = "",
    ) -> None:
        nn.Module.__init__(self)
        self.backbone, self.tokenizer, self.source = encoder, tokenizer, source
        self.prefixes = prefixes
        self.register_buffer("projection_EH", projection_EH)
        self._first, self._separator = _wrapping(tokenizer)
        room = (self.max_positions - 2 - len(prefixes.passage)) // (block_size - 1)
        if room < 1:
            raise ModelError(
                f"{source} reads {self.max_positions} tokens at once, too few for a block of {block_size}: "
                "choose a smaller CAIRN_BLOCK_SIZE."
            )
        self.config = LandmarkConfig(
            block_size=block_size,
            # Of the tokens that a text never has, as it is read as plain text.
            landmark_token_id=int(self.tokenizer.pad_token_id),
            memory_layers=(self.num_layers - 1,),
            window_blocks=min(WINDOW_BLOCKS, room),
            context_blocks=0,
            prompt="{question}",
            answers="quoted",
            quotes_sentences=True,
            ranks_by_tokens=True,
        )

    # shape

    @property
    def num_heads(self) -> int:
        return 1

    @property
    def num_kv_heads(self) -> int:
        return 1

    @property
    def head_dim(self) -> int:
        if self.projection_EH is not None:
            return len(self.projection_EH)
        return int(self.backbone.config.hidden_size)

    @property
    def max_positions(self) -> int:
        """RoBERTa-like encoders number positions from behind the padding's."""
        config = self.backbone.config
        roberta = config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet")
        return int(config.max_position_embeddings) - (2 if roberta else 0)

    # reading

    def context(
        self,
        *,
        valid_BK: Tensor | None = None,
        reader: MemoryReader | None = None,
        policy: SelectionPolicy | None = None,
    ) -> LandmarkContext:
        """Only `valid_BK` is used."""
        return LandmarkContext(self.config.block_size, nn.Identity(), valid_BK, reader, policy)

    @torch.no_grad()
    def fill_cache(self, ids_BT: Tensor, context: LandmarkContext, cache: DynamicCache) -> None:
        """Keys of whole blocks: a token's is its state, a landmark's the direction of their sum. Values are zeros."""
        size = self.config.block_size
        valid_BT = torch.ones_like(ids_BT, dtype=torch.bool) if context.valid_BK is None else context.valid_BK
        token_T = torch.arange(ids_BT.shape[1], device=ids_BT.device) % size < size - 1
        ordinary_BT = valid_BT & token_T
        if context.between_layers is not None:
            context.between_layers()
        rows = [ids_T[there_T].tolist() for ids_T, there_T in zip(ids_BT, ordinary_BT, strict=True)]
        keys_BTE = ids_BT.new_zeros((*ids_BT.shape, self.head_dim), dtype=self.dtype)
        keys_BTE[ordinary_BT] = torch.cat(self._states(rows, self.prefixes.passage)).to(keys_BTE.dtype)
        keys_BNLE = keys_BTE.unflatten(1, (-1, size))
        keys_BNLE[:, :, -1] = _unit(keys_BNLE[:, :, :-1].sum(2))
        keys_B1TE = keys_BNLE.flatten(1, 2)[:, None]
        for layer in range(self.num_layers):  # the cache knows a layer by how many came before it
            held = keys_B1TE if layer in self.memory_layers else keys_B1TE[:, :, :0]
            cache.update(held, torch.zeros_like(held), layer)

    @torch.no_grad()
    def question_states(self, question_ids: Sequence[int]) -> Tensor:
        """queries_QE (float32) of a question's tokens. Raises `ContextTooLong`."""
        length = len(question_ids) + len(self.prefixes.query) + 2
        if length > self.max_positions:
            raise ContextTooLong(
                f"the question of {len(question_ids)} tokens needs {length} positions, but the encoder has "
                f"{self.max_positions}: shorten it."
            )
        return self._states([list(question_ids)], self.prefixes.query)[0].float()

    def _states(self, rows: Sequence[list[int]], prefix: tuple[int, ...]) -> list[Tensor]:
        """states_TE, of length 1, of the tokens of each row, which are read side by side."""
        before = [self._first, *prefix]
        texts = [[*before, *row, self._separator] for row in rows]
        longest = max(map(len, texts))
        ids_BT = torch.full((len(rows), longest), int(self.tokenizer.pad_token_id), device=self.device)
        mask_BT = torch.zeros_like(ids_BT)
        for number, text in enumerate(texts):
            ids_BT[number, : len(text)] = torch.tensor(text, device=self.device)
            mask_BT[number, : len(text)] = 1
        states_BTH = self.backbone(input_ids=ids_BT, attention_mask=mask_BT).last_hidden_state
        if self.projection_EH is not None:
            states_BTH = states_BTH @ self.projection_EH.T.to(states_BTH.dtype)
        return [
            _unit(states_TE[len(before) : len(before) + len(row)])
            for states_TE, row in zip(states_BTH, rows, strict=True)
        ]

    # text

    def prompt_of(self, question_ids: Sequence[int]) -> Prompt:
        """The question alone: what goes around it is no token of its own."""
        return Prompt(list(question_ids), slice(0, len(question_ids)))

    def token_ends(self, tokens: Sequence[int], text: str, start: int, end: int) -> list[int]:
        """Found by tokenizing the text around the block again, since encoders' tokens do not spell their text (case and
        spaces are lost). Where the tokens came out otherwise (a word longer than what is looked at), the block is
        divided evenly among them."""
        # With the white space before the word, which some tokenizers count as part of it.
        low, high = max(0, _word_border(text, start, -1) - 1), _word_border(text, end, 1)
        found = self.tokenize(text[low:high])
        starts = [low + int(each) for each in found.starts]
        first, stop = bisect_left(starts, start), bisect_left(starts, end)
        if found.ids[first:stop] == list(tokens):
            return [low + int(each) for each in found.ends[first:stop]]
        return [start + (end - start) * (number + 1) // len(tokens) for number in range(len(tokens))]

    # checkpoint

    def identity(self, kept: Path | None = None) -> dict[str, str]:
        """As of a landmark model; `finder` holds all that is particular to encoders. Their weights are hashed each
        time: they are small."""
        about = {**asdict(self.prefixes), "projection": None if self.projection_EH is None else weights_digest(self)}
        return {
            "weights": weights_digest(self.backbone),
            "tokenizer": text_digest(self.tokenizer.backend_tokenizer.to_str()),
            "finder": text_digest(json.dumps(about, sort_keys=True)),
            "block_size": str(self.config.block_size),
            "memory_layers": ",".join(map(str, self.memory_layers)),
            "prefill": f"{self.config.window_blocks}+0",
        }


def _unit(states_XE: Tensor) -> Tensor:
    """Of length 1; zeros stay."""
    return nn.functional.normalize(states_XE.float(), dim=-1).to(states_XE.dtype)


def _wrapping(tokenizer: Any) -> tuple[int, int]:
    """Ids of the token before a text and of the one behind it. Raises `ModelError`."""
    first = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
    last = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    if first is None or last is None or tokenizer.pad_token_id is None:
        raise ModelError("the tokenizer has no first token, separator or padding; an encoder's has all three.")
    return int(first), int(last)


def _word_border(text: str, position: int, step: int) -> int:
    """The nearest white space from a position on, in a direction, or as far as is looked."""
    limit = max(0, min(len(text), position + step * _AROUND))
    while position != limit and not text[position - (step < 0)].isspace():
        position += step
    return position


_PROJECTION = "linear.weight"


def load_encoder(
    source: str,
    tokenizer: Any,
    device: torch.device,
    dtype: torch.dtype,
    *,
    block_size: int = 64,
    prefixes: tuple[str | None, str | None] = (None, None),
) -> EncoderModel:
    """The encoder in a folder or on the hub, ready to find. Only safetensors are read.

    `prefixes`: of questions and of passages; None: as the checkpoint says (`stated_prefixes`). Raises `ModelError`.
    """
    with readable(f"the weights of {source}"):
        encoder, found = AutoModel.from_pretrained(
            source, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # of the first token alone; many checkpoints lack it, and it would be made at random
    if missing := sorted(name for name in found["missing_keys"] if not name.startswith("pooler")):
        raise ModelError(f"{source} does not hold all weights of its encoder; the first one missing: {missing[0]}.")
    with readable(f"what the files of {source} say of prefixes and a projection"):
        stated, projection_EH = stated_prefixes(source, tokenizer), _projection(source, device)
    given = [_ids(tokenizer, text) if text is not None else None for text in prefixes]
    return EncoderModel(
        encoder.to(device).eval(),
        tokenizer,
        block_size=block_size,
        prefixes=EncoderPrefixes(*(own if own is not None else kept for own, kept in zip(given, stated, strict=True))),
        projection_EH=projection_EH,
        source=source,
    )


def stated_prefixes(source: str, tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Token ids before questions and before passages that the checkpoint's own files name, empty where they do not.

    `prompts` ("query", and "passage" or "document") or `query_prefix` and `document_prefix` of
    config_sentence_transformers.json, or the marker tokens in ColBERT's artifact.metadata.
    """
    stated = _json(source, "config_sentence_transformers.json")
    prompts = stated.get("prompts") or {}
    query = prompts.get("query") or stated.get("query_prefix") or ""
    passage = prompts.get("passage") or prompts.get("document") or stated.get("document_prefix") or ""
    if query or passage:
        return _ids(tokenizer, query), _ids(tokenizer, passage)
    markers = _json(source, "artifact.metadata")
    tokens = [markers.get(name) for name in ("query_token_id", "doc_token_id")]
    if all(isinstance(token, str) and token in tokenizer.get_vocab() for token in tokens):
        query_id, passage_id = (int(tokenizer.convert_tokens_to_ids(token)) for token in tokens)
        return (query_id,), (passage_id,)
    return (), ()


def _ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def _projection(source: str, device: torch.device) -> Tensor | None:
    """projection_EH of a ColBERT-style checkpoint: `linear.weight` beside the encoder's weights, or in the folder of a
    dense module that follows the encoder directly. A dense module behind pooling is no projection of tokens."""
    modules = _json(source, "modules.json") or []
    folders = [""]
    if len(modules) > 1 and str(modules[1].get("type", "")).endswith("Dense"):
        folders.append(str(modules[1]["path"]) + "/")
    for folder in folders:
        file = cached_file(source, folder + WEIGHTS_FILE, _raise_exceptions_for_missing_entries=False)
        if file is None:
            continue
        with safe_open(file, "pt") as weights:
            if _PROJECTION in weights.keys():  # noqa: SIM118 - no mapping
                projection: Tensor = weights.get_tensor(_PROJECTION)
                return projection.to(device)
    return None


def _json(source: str, name: str) -> Any:
    """The file's content, {} without one. Raises `ModelError`."""
    file = cached_file(source, name, _raise_exceptions_for_missing_entries=False)
    if file is None:
        return {}
    with readable(file):
        return json.loads(Path(file).read_text(encoding="utf-8"))
