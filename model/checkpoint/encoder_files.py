"""What lies in the folder of an encoder, for a finder: network, projection of ColBERT-style checkpoints, prefixes."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from model.checkpoint.backbones import AutoModel, cached_file
from model.checkpoint.encoder_model import EncoderModel, EncoderPrefixes
from model.errors import ModelError, readable

_WEIGHTS = "model.safetensors"
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
    stated = stated_prefixes(source, tokenizer)
    given = [_ids(tokenizer, text) if text is not None else None for text in prefixes]
    return EncoderModel(
        encoder.to(device).eval(),
        tokenizer,
        block_size=block_size,
        prefixes=EncoderPrefixes(*(own if own is not None else kept for own, kept in zip(given, stated, strict=True))),
        projection_EH=_projection(source, device),
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
        file = cached_file(source, folder + _WEIGHTS, _raise_exceptions_for_missing_entries=False)
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
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} is not JSON ({error}); copy the checkpoint again.") from error
