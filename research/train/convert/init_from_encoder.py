"""A start for the default model: a trained sentence encoder of the BERT family, rewritten as a causal decoder.

- Embeddings: each token takes the mean embedding of the encoder's pieces of its text, normalised as the encoder does.
- Layers: BERT normalises *behind* each sublayer, x' = LN(x + f(x)); a decoder in front of it, y' = y + f(LN(y)). With
  D the product of the gains passed so far, x = D y up to the deviation of single tokens from the mean: sublayer outputs
  are divided by D, LN's gain and bias are fitted (least squares, dimension by dimension) on a sample of texts.
- Positions are dropped: rotary positions take their place. In every head the directions that matter least for q . k go
  to the pairs that rotate fastest.
- One layer more, whose keys are the encoder's last states: the memory that search reads.

The result is only a start: attention is causal now, which training (`losses/retriever_loss.py`) has to make up for.
Axes: V vocabulary, E hidden width, B texts, T pieces, D head dim.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm
from transformers import AutoModel, AutoTokenizer, Starcoder2Config, Starcoder2ForCausalLM

from model.precision import fast_precision

COPY_GAIN = 0.05
"""Of the last layer's output: it is not the encoder's and learns from a small start."""
OUTLIER, DAMPED = 4.0, 0.05
"""Some dimensions of the encoder take values far beyond all others at a few tokens, which its norms then press down
again. Without those norms they would drown the rest."""
LEAST_GAIN = 0.3
"""Gains far below their median would blow up what is divided by them."""


@dataclass(frozen=True)
class Encoder:
    """A BERT-like sentence encoder and its tokenizer."""

    network: Any
    tokenizer: Any

    @classmethod
    def load(cls, folder: Path) -> "Encoder":
        network = AutoModel.from_pretrained(folder, use_safetensors=True, trust_remote_code=False)
        return cls(network.eval(), AutoTokenizer.from_pretrained(folder, trust_remote_code=False))

    def to(self, device: str) -> "Encoder":
        """The same encoder on a device; its states come back on the CPU wherever it runs."""
        return Encoder(self.network.to(device), self.tokenizer)

    @property
    def width(self) -> int:
        return int(self.network.config.hidden_size)

    @torch.inference_mode()
    def states(self, texts: list[str], *, longest: int = 256) -> tuple[Tensor, Tensor, Tensor]:
        """Last states_BTE of the texts' pieces in float32, which of them are pieces of the text, and their
        characters_BT2."""
        batch = self.tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=longest,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            return_tensors="pt",
        )
        characters_BT2 = batch.pop("offset_mapping")
        real_BT = batch.pop("special_tokens_mask") == 0
        device = self.network.device
        with torch.autocast(device.type, torch.bfloat16, enabled=fast_precision(device.type) == "bf16"):
            states_BTE = self.network(**batch.to(device)).last_hidden_state
        return states_BTE.float().cpu(), real_BT, characters_BT2


@torch.no_grad()
def token_embeddings(encoder: Encoder, tokenizer: Any) -> Tensor:
    """embeddings_VE: what the encoder's embedding layer makes of each token's text at an average position."""
    table = encoder.network.embeddings
    steady = table.token_type_embeddings.weight[0] + table.position_embeddings.weight[1:100].mean(0)
    vocabulary = encoder.tokenizer.get_vocab()
    unknown = encoder.tokenizer.unk_token_id
    out = torch.zeros(len(tokenizer), encoder.width)
    texts = [tokenizer.decode([token]) for token in range(len(tokenizer))]
    words = [text.strip().lower() for text in texts]
    pieces = encoder.tokenizer(words, add_special_tokens=False)["input_ids"]
    for token, (text, word) in enumerate(zip(texts, words, strict=True)):
        if not text.startswith(" ") and "##" + word in vocabulary:
            ids = [vocabulary["##" + word]]
        else:
            ids = [piece for piece in pieces[token] if piece != unknown]
        words_PE = table.word_embeddings.weight[ids] if ids else table.word_embeddings.weight.mean(0, keepdim=True)
        out[token] = table.LayerNorm(words_PE + steady).mean(0)
    return out


def decoder_config(encoder: Encoder, vocab_size: int, *, rope_theta: float, **special: Any) -> Starcoder2Config:
    """A decoder of the encoder's shape with one layer more."""
    shape = encoder.network.config
    return Starcoder2Config(
        vocab_size=vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_hidden_layers + 1,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shape.num_attention_heads,
        hidden_act="gelu",
        max_position_embeddings=4096,
        norm_epsilon=shape.layer_norm_eps,
        use_bias=True,
        tie_word_embeddings=True,
        sliding_window=None,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
        bos_token_id=None,
        **special,
    )


@torch.no_grad()
def decoder_from_encoder(
    encoder: Encoder, tokenizer: Any, config: Starcoder2Config, texts: list[str], *, seed: int = 0
) -> Any:
    """The decoder; `texts`: a sample that norms and head directions are fitted on."""
    torch.manual_seed(seed)
    decoder: Any = Starcoder2ForCausalLM(config)
    decoder.get_input_embeddings().weight.copy_(token_embeddings(encoder, tokenizer))
    heads = config.num_attention_heads
    batch = encoder.tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
    there_BT = batch["attention_mask"].bool()
    special = torch.tensor(encoder.tokenizer.all_special_ids)
    fit = _Fit(there_BT & ~torch.isin(batch["input_ids"], special))
    states = encoder.network(**batch, output_hidden_states=True).hidden_states
    table = encoder.network.embeddings
    stream = table.LayerNorm(
        table.word_embeddings(batch["input_ids"])
        + table.token_type_embeddings.weight[0]
        + table.position_embeddings.weight[1:100].mean(0)
    )
    gain = torch.ones(config.hidden_size)
    for number, layer in enumerate(encoder.network.encoder.layer):
        made = decoder.model.layers[number]
        x = fit.norm(made.input_layernorm, stream, states[number])
        own = layer.attention.self
        q, k, v = (part(x).unflatten(-1, (heads, -1)).transpose(1, 2) for part in (own.query, own.key, own.value))
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~there_BT[:, None, None], -1e9)
        attended = layer.attention.output.dense((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        turn = _slow_last(q, k, fit.real_BT)
        _copy(made.self_attn.q_proj, own.query, turn_DD=turn)
        _copy(made.self_attn.k_proj, own.key, turn_DD=turn)
        _copy(made.self_attn.v_proj, own.value)
        middle = layer.attention.output.LayerNorm(x + attended)
        new_gain, shift = fit.passed(gain, x + attended, layer.attention.output.LayerNorm)
        _copy(made.self_attn.o_proj, layer.attention.output.dense, gain=gain, shift=shift)
        stream, gain = stream + attended / gain + shift, new_gain

        x = fit.norm(made.post_attention_layernorm, stream, middle)
        changed = layer.output.dense(gelu(layer.intermediate.dense(x)))
        most = changed[fit.real_BT].abs().amax(0)
        damped_E = torch.where(most > OUTLIER * most.median(), DAMPED, 1.0)
        changed = changed * damped_E
        new_gain, shift = fit.passed(gain, x + changed, layer.output.LayerNorm)
        _copy(made.mlp.c_fc, layer.intermediate.dense)
        _copy(made.mlp.c_proj, layer.output.dense, gain=gain / damped_E, shift=shift)
        stream, gain = stream + changed / gain + shift, new_gain
    _memory_layer(decoder.model.layers[-1], fit, stream, states[-1], heads, config)
    # Next-token logits start small: the tied embeddings are as long as the encoder's.
    decoder.model.norm.weight.fill_(0.3)
    return decoder


class _Fit:
    """Least squares over the real pieces of the sample."""

    def __init__(self, real_BT: Tensor) -> None:
        self.real_BT = real_BT

    def norm(self, norm: nn.LayerNorm, stream: Tensor, target: Tensor) -> Tensor:
        """Set gain and bias so that norm(stream) comes near the encoder's states; returns norm(stream)."""
        plain = layer_norm(stream, stream.shape[-1:], eps=norm.eps)
        x, t = plain[self.real_BT], target[self.real_BT]
        norm.weight.copy_(((x - x.mean(0)) * (t - t.mean(0))).mean(0) / x.var(0, correction=0).clamp_min(1e-6))
        norm.bias.copy_(t.mean(0) - norm.weight * x.mean(0))
        normed: Tensor = norm(stream)
        return normed

    def passed(self, gain: Tensor, summed: Tensor, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
        """The gain behind a norm that the stream does not have, and the constant that its bias adds to the stream."""
        real = summed[self.real_BT]
        spread, mean = real.std(-1, correction=0).mean(), real.mean()
        behind = norm.weight * gain / spread
        behind = torch.maximum(behind, LEAST_GAIN * behind.median())
        return behind, (norm.bias - norm.weight * mean / spread) / behind


def _slow_last(q_BHTD: Tensor, k_BHTD: Tensor, real_BT: Tensor) -> Tensor:
    """turn_HDD, orthogonal: q . k stays, and the directions of least weight come to stand where rotation is fastest.

    Dimensions i and i + D/2 rotate as pair i, the fastest first.
    """
    q, k = (x.transpose(1, 2)[real_BT] for x in (q_BHTD, k_BHTD))  # N H D
    both = torch.einsum("nhd,nhe->hde", q, q) + torch.einsum("nhd,nhe->hde", k, k)
    _, vectors = torch.linalg.eigh(both)  # columns ascending
    half = q.shape[-1] // 2
    order = torch.cat((torch.arange(0, 2 * half, 2), torch.arange(1, 2 * half, 2)))
    turn_HDD: Tensor = vectors[:, :, order].transpose(1, 2)
    return turn_HDD


def _copy(
    made: nn.Linear,
    given: nn.Linear,
    *,
    turn_DD: Tensor | None = None,
    gain: Tensor | None = None,
    shift: Tensor | None = None,
) -> None:
    weight, bias = given.weight.clone(), given.bias.clone()
    if turn_DD is not None:
        heads = turn_DD.shape[0]
        weight = (turn_DD @ weight.unflatten(0, (heads, -1))).flatten(0, 1)
        bias = (turn_DD @ bias.unflatten(0, (heads, -1)).unsqueeze(-1)).flatten()
    if gain is not None:
        weight, bias = weight / gain[:, None], bias / gain
    if shift is not None:
        bias = bias + shift
    made.weight.copy_(weight)
    made.bias.copy_(bias)


def _memory_layer(layer: Any, fit: _Fit, stream: Tensor, target: Tensor, heads: int, config: Any) -> None:
    """Queries and keys are the encoder's last states in an orthogonal frame: weak directions in the fast pairs."""
    x = fit.norm(layer.input_layernorm, stream, target)[fit.real_BT]
    width = x.shape[-1]
    _, vectors = torch.linalg.eigh(x.T @ x)  # columns ascending
    half = width // heads // 2
    # Pair i of every head gets the 2 * heads next weakest directions.
    place = torch.arange(width).view(half, heads, 2).permute(1, 2, 0).reshape(-1)
    frame_EE = vectors[:, place].T
    for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
        projection.weight.copy_(frame_EE)
        projection.bias.zero_()
    layer.self_attn.v_proj.weight.copy_(torch.eye(width))
    layer.self_attn.o_proj.weight.copy_(COPY_GAIN * torch.eye(width))
    nn.init.normal_(layer.mlp.c_fc.weight, std=config.initializer_range)
    nn.init.normal_(layer.mlp.c_proj.weight, std=0.1 * config.initializer_range)
    for part in (layer.self_attn.v_proj, layer.self_attn.o_proj, layer.mlp.c_fc, layer.mlp.c_proj):
        part.bias.zero_()
