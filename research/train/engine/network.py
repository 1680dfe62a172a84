"""Prepares a network for training: optimizer, recomputed activations, compiled layers, shards."""

import os
import shutil

import torch
import torch._dynamo
from torch import nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from transformers import GenerationMixin, PreTrainedModel

from research.train.engine.settings import TrainingSettings

ENTRY_POINTS = ("encode", "logits")
"""Methods of a `LandmarkModel` that a loss calls beside `forward`; a sharded model must gather its weights for them."""
RECOMPILED = 64
"""Compiled forms of a decoder layer before the compiler gives up."""


def make_optimizer(network: nn.Module, settings: TrainingSettings) -> torch.optim.AdamW:
    """AdamW over the trained parameters; weight decay on matrices only, unless the settings say otherwise."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError("The network has no parameter that is trained.")
    if settings.decay_matrices_only:
        groups = [
            {"params": [p for p in trained if p.dim() >= 2], "weight_decay": settings.weight_decay},
            {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
        ]
    else:
        groups = [{"params": trained, "weight_decay": settings.weight_decay}]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, eps=settings.eps, fused=True)


def enable_activation_checkpointing(model: nn.Module) -> None:
    """Keep only the inputs of each layer; the backward pass computes the rest again."""
    for backbone in _backbones(model):
        backbone.activation_checkpointing_enable({"use_reentrant": False})


def compile_layers(model: nn.Module) -> None:
    """Compile each decoder layer in place, which works with any loss around them."""
    compilers = [name for name in (os.environ.get("CXX"), "g++", "clang++", "c++") if name]
    if next(model.parameters()).device.type == "cpu" and not any(map(shutil.which, compilers)):
        raise ValueError(f"Compiling layers for a CPU needs a C++ compiler: install one of {', '.join(compilers)}.")
    # With a cache the layer's index is part of the compiled form: there is one for each layer and input shape.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILED)
    for backbone in _backbones(model):
        for layer in backbone.model.layers:
            layer.compile()


def shard(model: nn.Module) -> None:
    """FSDP2 in place: each decoder layer is one unit, the rest another. Parameters become DTensors."""
    for backbone in _backbones(model):
        for layer in backbone.model.layers:
            fully_shard(layer)
    fully_shard(model)
    for entry in ENTRY_POINTS:
        if callable(getattr(model, entry, None)):
            register_fsdp_forward_method(model, entry)


def _backbones(model: nn.Module) -> list[PreTrainedModel]:
    """The transformers models inside `model`; ValueError if there is none."""
    found: list[PreTrainedModel] = [
        each for each in model.modules() if isinstance(each, PreTrainedModel) and isinstance(each, GenerationMixin)
    ]
    if not found:
        raise ValueError("Activation checkpointing and compilation need a transformers model inside the trained one.")
    return found
