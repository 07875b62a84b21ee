"""Recognise parts of transformers' models by their names and shapes.

What is recognised is only a candidate: it is proved before it is used. Weights are read in the type
that they were loaded in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal, TypeAlias

import torch
from torch import nn
from torch.nn import functional

from core.module.plain import is_plain

Activation: TypeAlias = Literal["silu", "gelu_tanh"]


QKV = ("q_proj", "k_proj", "v_proj")
HEAD_NORMS = ("q_norm", "k_norm")

NORM_OFFSETS = (0.0, 1.0)
"""Numbers that RMSNorms add to their weight: some families store the weight less 1."""

_GATED_MLP = {"gate_proj", "act_fn", "up_proj", "down_proj"}

_ACTIVATIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


LLAMA_LAYER = {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}
"""Names of the children of a decoder layer that normalises before attention and the MLP."""

Matrix: TypeAlias = tuple[torch.Tensor, torch.Tensor | None]
"""Weight ``[outputs, inputs]`` and bias of a linear layer."""


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """``down(activation(gate(x)) * up(x))``."""

    gate: Matrix
    activation: Activation
    up: Matrix
    down: nn.Module


def matrix_of(module: Any) -> Matrix | None:
    """Weight and bias of a plain linear layer, or of a Conv1D, transposed."""
    if not is_plain(module):
        return None
    if type(module) is nn.Linear:
        return module.weight.detach(), None if module.bias is None else module.bias.detach()
    if type(module).__name__ == "Conv1D":
        return module.weight.detach().t(), module.bias.detach()
    return None


def activation(module: Any) -> Activation | None:
    """Return the known activation that a module computes, found by calling it."""
    x = torch.linspace(-12, 12, 481)
    try:
        y = module(x)
    except (TypeError, ValueError, RuntimeError):
        return None
    if not isinstance(y, torch.Tensor):
        return None
    return next(
        (name for name, f in _ACTIVATIONS.items() if torch.allclose(y, f(x), atol=1e-5)), None
    )


def rms_norm(module: Any) -> tuple[torch.Tensor, float] | None:
    """Weight and epsilon of an RMSNorm. See NORM_OFFSETS for what it adds to the weight."""
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if "RMSNorm" not in type(module).__name__ or weight is None or not isinstance(eps, float):
        return None
    return weight.detach(), eps


def gated_mlp(module: nn.Module) -> GatedMLP | None:
    """A gated feed-forward block with a known activation."""
    children = dict(module.named_children())
    if not children.keys() >= _GATED_MLP:
        return None
    gate, up = matrix_of(children["gate_proj"]), matrix_of(children["up_proj"])
    act = activation(children["act_fn"])
    if gate is None or up is None or act is None or gate[0].shape != up[0].shape:
        return None
    return GatedMLP(gate, act, up, children["down_proj"])


def qkv_matrices(attention: nn.Module) -> list[Matrix] | None:
    """Query, key and value projections of an attention module, if they can be stacked."""
    matrices = [matrix_of(getattr(attention, name, None)) for name in QKV]
    known = [matrix for matrix in matrices if matrix is not None]
    if len(known) < len(QKV) or len({weight.shape[1] for weight, _ in known}) > 1:
        return None
    return known


def reads_weights(parent: nn.Module) -> bool:
    """Return true if forward code names ``weight``: maybe that of a child, as routers do."""
    forward = inspect.unwrap(type(parent).forward)
    return isinstance(forward, FunctionType) and "weight" in forward.__code__.co_names
