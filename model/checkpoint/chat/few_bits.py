"""The matrices of a writer's layers in fewer bits, made while a checkpoint is loaded: for memory, not for speed.

- `int8`: a byte a weight, one scale a row (torchao). They are expanded for every pass.
- `nf4`: half a byte a weight, one scale for each 64 of them, sixteen levels placed as weights are distributed
  (bitsandbytes; QLoRA, arXiv 2305.14314). On processors with AVX-512 bf16 a single token is multiplied as it is stored.
- Embeddings, output layer and norms stay as they are. Both need the weights once as they were.
"""

from __future__ import annotations

from typing import Any, Literal

from torch import nn

from model.errors import ModelError

FewBits = Literal["int8", "nf4"]
_SIDE = 64
"""bitsandbytes scales 64 weights together, and multiplies 32 rows at a time."""


def round_matrices(layers: nn.Module, kind: FewBits) -> None:
    """Round the matrices below `layers` in place. Raises `ModelError` without the package, or where none can be."""
    if kind == "int8":
        _to_int8(layers)
    else:
        _to_nf4(layers)


def _to_int8(layers: nn.Module) -> None:
    try:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_
    except ImportError as error:
        raise ModelError("weights in int8 need torchao: install Cairn as cairn[int8].") from error
    quantize_(layers, Int8WeightOnlyConfig())


def _to_nf4(layers: nn.Module) -> None:
    try:
        import bitsandbytes
    except ImportError as error:
        raise ModelError("weights in nf4 need bitsandbytes: install Cairn as cairn[nf4].") from error
    made: Any = bitsandbytes.nn  # untyped
    rounded = 0
    for parent in list(layers.modules()):
        for name, linear in list(parent.named_children()):
            if type(linear) is not nn.Linear or linear.in_features % _SIDE or linear.out_features % _SIDE:
                continue
            weight, bias = linear.weight.data, linear.bias
            small = made.Linear4bit(
                linear.in_features, linear.out_features, bias=False, compute_dtype=weight.dtype, quant_type="nf4"
            )
            small.weight = made.Params4bit(weight, requires_grad=False, quant_type="nf4", module=small)
            small.bias = bias
            setattr(parent, name, small.to(weight.device).eval())  # moving it rounds it
            rounded += 1
    if not rounded:
        raise ModelError(f"this checkpoint has no matrix with sides of a multiple of {_SIDE}, as nf4 needs them.")
