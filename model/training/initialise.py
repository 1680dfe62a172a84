"""A start for the default model from which landmarks retrieve before any training.

- Token embeddings: a code that tokens of one word form share whatever their case, one they share with their stem, and
  the (whitened)
  word embedding of a small sentence encoder; weighted by inverse document frequency. What is left of the norm lies in
  one common
  direction, so that after RMSNorm a frequent token says little.
- Layer 0: landmarks attend evenly, values pass through: the landmark becomes the weighted bag of its block.
- The answer token has no content of its own: after layer 0 it is the bag of the question.
- Layer 2 writes what stands before each token beside it; layer 3 looks for tokens that follow what the query holds, and
  copies them.
- Layer 1: queries and keys share one projection on the slowly rotating dimensions, so that a landmark's logit is the
  likeness of a
  question token to the bag.

Everything after that is learned. Axes: V vocabulary, E hidden width.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaForCausalLM

COMMON = -1
"""The hidden dimension that all tokens share."""
SUFFIXES = ("ing", "ed", "es", "s", "ly")
EMBEDDING_NORM = 2.0
FINAL_GAIN = 0.3
SIGN_SHARE = 0.45
TYPICAL_QUESTION = 16
LIKENESS_GAIN = 0.75
"""Of queries and keys each: a token's logit with itself is then about 3."""
BAG_GAIN = 0.05
COPY_GAIN = 0.01
CONTEXT_GAIN = 0.06
SHARPER = 1.6
LAST_COPY_GAIN = 0.12
"""Later layers add a little of what they attend to: the first step towards copying it."""


def document_frequency(
    token_lists: Iterable[Sequence[int] | NDArray[np.uint16]], vocab_size: int, tokens_per_block: int
) -> NDArray[np.float32]:
    """Inverse document frequency of every token, blocks counting as documents."""
    found, blocks = np.zeros(vocab_size), 0
    for ids in token_lists:
        for start in range(0, len(ids), tokens_per_block):
            found[np.unique(ids[start : start + tokens_per_block])] += 1
            blocks += 1
    return np.log((blocks - found + 0.5) / (found + 0.5) + 1).astype(np.float32)


def teacher_embeddings(tokenizer: Any, teacher: Path) -> NDArray[np.float32]:
    """For every token the mean word embedding of its pieces in the sentence encoder in folder `teacher`; zeros for what
    it lacks."""
    weights = load_file(teacher / "model.safetensors")
    table = next(value for name, value in weights.items() if name.endswith("word_embeddings.weight")).astype(np.float32)
    pieces = Tokenizer.from_file(str(teacher / "tokenizer.json"))
    pieces.no_padding()
    vocabulary, centre = pieces.get_vocab(), table[2000:].mean(0)
    unknown = vocabulary["[UNK]"]
    out = np.zeros((len(tokenizer), table.shape[1]), np.float32)
    for token in range(len(tokenizer)):
        text = tokenizer.decode([token])
        word = text.strip().lower()
        if not text.startswith(" ") and "##" + word in vocabulary:
            ids = [vocabulary["##" + word]]
        else:
            ids = [piece for piece in pieces.encode(word, add_special_tokens=False).ids if piece != unknown]
        if ids:
            out[token] = (table[ids] - centre).mean(0)
    return out


def token_codes(
    tokenizer: Any,
    idf_V: NDArray[np.float32],
    width: int,
    *,
    teacher_VE: NDArray[np.float32] | None,
    seed: int = 0,
) -> NDArray[np.float32]:
    """Embeddings_VE of norm 1: content weighted by idf, the rest of the norm in the common dimension."""
    random = np.random.default_rng(seed)
    texts = [tokenizer.decode([token]) for token in range(len(tokenizer))]
    forms = [re.sub(r"\s+", "", text).lower() or text for text in texts]
    codes = _shared_codes(forms, width - 1, random) + 0.4 * _shared_codes(
        [_stem(form) for form in forms], width - 1, random
    )
    if teacher_VE is not None:
        codes = codes + 0.5 * _whitened(teacher_VE, width - 1)
    index = {form: number for number, form in enumerate(dict.fromkeys(forms))}
    of_form = np.array([index[form] for form in forms])
    seen = np.bincount(of_form, weights=np.exp(-idf_V.astype(np.float64)))
    idf = np.minimum(idf_V, -np.log(np.minimum(1.0, seen[of_form])))
    share = np.clip(idf / 9.0, 0.02, 0.99).astype(np.float32)[:, None]
    return np.concatenate((_unit(codes) * share, np.sqrt(1 - share**2)), 1).astype(np.float32)


def _shared_codes(keys: Sequence[str], width: int, random: np.random.Generator) -> NDArray[np.float32]:
    index = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    table = _unit(random.standard_normal((len(index), width)).astype(np.float32))
    return table[[index[key] for key in keys]]


def _stem(form: str) -> str:
    for suffix in SUFFIXES:
        if len(form) > len(suffix) + 3 and form.endswith(suffix):
            return form[: -len(suffix)]
    return form


def _whitened(table: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    centred = table - table.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    values, vectors = np.sqrt(np.maximum(values[::-1], 0)), vectors[:, ::-1]
    floor = 0.3 * values[min(50, len(values) - 1)]
    white = _unit(centred @ vectors / (values + floor))[:, :width]
    return np.pad(white, ((0, 0), (0, width - white.shape[1])))


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.maximum(1e-6, np.linalg.norm(rows, axis=1, keepdims=True))


def surface_signs(tokenizer: Any) -> NDArray[np.float32]:
    """signs_V3: what tells tokens of one form apart: blank in front, first letter large, all letters large."""
    texts = [tokenizer.decode([token]) for token in range(len(tokenizer))]
    words = [text.strip() for text in texts]
    return (
        np.array(
            [
                [text.startswith(" "), word[:1].isupper(), len(word) > 1 and word.isupper()]
                for text, word in zip(texts, words, strict=True)
            ],
            np.float32,
        )
        * 2
        - 1
    )


def principal(
    codes_VE: NDArray[np.float32], idf_V: NDArray[np.float32], turn_EE: NDArray[np.float32], width: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Codes and matrix in the directions in which texts differ most, strongest first, cut to `width`."""
    weighted = codes_VE * np.exp(-0.5 * idf_V)[:, None]
    _, vectors = np.linalg.eigh(weighted.T @ weighted)
    basis = vectors[:, ::-1][:, :width]
    return (codes_VE @ basis).astype(np.float32), (basis.T @ turn_EE @ basis).astype(np.float32)


def build_backbone(
    config: Any,  # transformers types its configs and the parts of its models loosely
    codes_VE: NDArray[np.float32],
    signs_VF: NDArray[np.float32],
    turn_EE: NDArray[np.float32],
    *,
    block_size: int,
    landmark_token_id: int,
    empty_token_ids: Sequence[int],
    seed: int = 0,
) -> Any:
    """A Llama whose landmarks are bags of their blocks, from layer 1 on.

    codes: content of each token, norm at most 1, strongest directions first, as wide as hidden_size - 1 - F; signs: F
    surface signs;
    turn: what a question's content (row vector) is multiplied with.
    """
    torch.manual_seed(seed)
    network: Any = LlamaForCausalLM(config)
    width, heads, head_dim = config.hidden_size, config.num_attention_heads, config.head_dim
    content = codes_VE.shape[1]
    if config.num_key_value_heads != heads or heads * head_dim != width:
        raise ValueError(
            "the landmark start needs as many KV heads as query heads, together as wide as the hidden state."
        )
    if content + signs_VF.shape[1] + 1 != width:
        raise ValueError("content, surface signs and the common dimension must fill the hidden state.")
    rotation = _Rotation(config, block_size)
    turn = torch.eye(width)
    turn[:content, :content] = torch.from_numpy(turn_EE)
    rest_V1 = (1 - torch.from_numpy(codes_VE).square().sum(1, keepdim=True)).clamp_min(0).sqrt()
    signs = torch.from_numpy(signs_VF) * SIGN_SHARE
    common_V1 = (1 - signs.square().sum(1, keepdim=True)).sqrt()
    with torch.no_grad():
        embedding = network.get_input_embeddings().weight
        embedding.copy_(
            EMBEDDING_NORM * torch.cat((torch.from_numpy(codes_VE), signs * rest_V1, common_V1 * rest_V1), 1)
        )
        embedding[landmark_token_id] = 0.0
        embedding[landmark_token_id, COMMON] = 0.1
        network.model.norm.weight.fill_(FINAL_GAIN)
        for token in empty_token_ids:
            embedding[token] = embedding[landmark_token_id]
        inside = torch.zeros(width, width)
        inside[:content, :content] = torch.eye(content)
        aside = inside @ _orthogonal(width) @ inside  # where layer 2 writes what stands around a token
        for number, layer in enumerate(network.model.layers):
            attention, mlp = layer.self_attn, layer.mlp
            shared = rotation.likeness(heads, content)
            asked = shared
            through, out = _orthogonal(width) @ inside, COPY_GAIN
            back = through.T
            if number == 0:
                out = BAG_GAIN
            elif number == 1:
                asked = rotation.absorbed(shared @ turn.T, heads)
            elif number == 2:
                shared = asked = rotation.recency(heads)
                out, back = CONTEXT_GAIN, aside @ through.T
            elif number == 3:
                shared = SHARPER * shared
                asked = rotation.absorbed(shared @ aside, heads)
                out = LAST_COPY_GAIN
            noise = 0.0 if number < 2 else 0.003
            attention.q_proj.weight.copy_(asked + noise * torch.randn(width, width))
            attention.k_proj.weight.copy_(shared + noise * torch.randn(width, width))
            attention.v_proj.weight.copy_(through)
            attention.o_proj.weight.copy_(out * back)
            mlp.gate_proj.weight.normal_(0, 0.03)
            mlp.up_proj.weight.normal_(0, 0.03)
            mlp.down_proj.weight.normal_(0, 0.001 if number else 0.0)
    return network


def search_path(network: Any) -> list[torch.nn.Parameter]:
    """What the landmark keys and question queries of layer 1 are made of."""
    first, second = network.model.layers[:2]
    return [
        network.get_input_embeddings().weight,
        *first.parameters(),
        second.input_layernorm.weight,
        second.self_attn.q_proj.weight,
        second.self_attn.k_proj.weight,
    ]


class _Rotation:
    """Which dimensions of a head turn little over the length of a question, so that likeness survives the distance."""

    def __init__(self, config: Any, block_size: int) -> None:
        theta, half = float(config.rope_parameters["rope_theta"]), config.head_dim // 2
        self.frequency = theta ** (-torch.arange(half) / half)
        self.slow = (self.frequency * block_size < 3.0).repeat(2)
        self.head_dim, self.block_size = config.head_dim, block_size

    def likeness(self, heads: int, content: int) -> Tensor:
        """Weight of queries and keys alike: an inner product of the strongest directions of the content, mixed among
        the heads."""
        width, slots = heads * self.head_dim, self.slow.repeat(heads)
        room = min(int(slots.sum()), content)
        mixed = torch.zeros(int(slots.sum()), width)
        mixed[:room, :room] = _orthogonal(room)
        weight = torch.zeros(width, width)
        weight[slots] = LIKENESS_GAIN * mixed
        return weight

    def recency(self, heads: int) -> Tensor:
        """Weight of queries and keys alike: half of the heads attend evenly, the others to what stands near, whatever
        it is."""
        weight = torch.zeros(heads, self.head_dim, heads * self.head_dim)
        medium = (self.frequency < 0.6) & (self.frequency > 0.06)
        weight[heads // 2 :, : len(medium), COMMON] = 0.3 * medium.float()
        return weight.reshape(heads * self.head_dim, -1)

    def absorbed(self, weight_EE: Tensor, heads: int) -> Tensor:
        """Queries turned back by the distance at which questions meet landmarks (one block and the middle of a
        question)."""
        distance = self.block_size + 1 + TYPICAL_QUESTION // 2
        angle = (self.frequency * distance * self.slow[: len(self.frequency)])[None, :, None]
        first, second = weight_EE.view(heads, self.head_dim, -1).chunk(2, 1)
        turned = torch.cat((first * angle.cos() + second * angle.sin(), second * angle.cos() - first * angle.sin()), 1)
        return turned.reshape(weight_EE.shape)


def _orthogonal(width: int) -> Tensor:
    return torch.linalg.qr(torch.randn(width, width)).Q
