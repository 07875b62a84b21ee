"""Recognising leaves: each matcher offers a replacement for a module, or None.

A matcher goes by shapes and attributes, and may be wrong: what it offers is proved before it is
used. Weights are read as they are, whatever type they were loaded in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from core.fusion.cpu.linear import PackedLinear
from core.fusion.cpu.mlp import FusedMLP
from core.fusion.cpu.norm import FusedNorm
from core.kernels.cpu.library import Kernels
from core.kernels.cpu.linear import Epilogue, Format, PackedWeight, interleave, pack
from core.model.plain import is_plain

Matrix = tuple[torch.Tensor, torch.Tensor | None]

_PLAIN_MLPS = (
    ("c_fc", "act", "c_proj"),
    ("fc1", "activation_fn", "fc2"),
    ("fc1", "act", "fc2"),
    ("dense_h_to_4h", "act", "dense_4h_to_h"),
)
_GATED_MLP = ("gate_proj", "act_fn", "up_proj", "down_proj")


def matrix_of(module: Any) -> Matrix | None:
    """Weight ``[out, in]`` and bias of a plain linear layer, also of GPT-2's transposed one."""
    if not is_plain(module):
        return None
    if type(module) is nn.Linear:
        return module.weight.detach(), None if module.bias is None else module.bias.detach()
    if type(module).__name__ == "Conv1D":
        return module.weight.detach().t(), module.bias.detach()
    return None


def packed(library: Kernels, matrices: list[Matrix], fmt: Format) -> PackedWeight:
    """Pack matrices with one input below each other."""
    return pack(library, [w for w, _ in matrices], [b for _, b in matrices], fmt)


def linear(library: Kernels, module: nn.Module, fmt: Format) -> nn.Module | None:
    """``nn.Linear`` and ``Conv1D``."""
    matrix = matrix_of(module)
    return None if matrix is None else PackedLinear(packed(library, [matrix], fmt))


def mlp(library: Kernels, module: nn.Module, fmt: Format) -> nn.Module | None:
    """A feed-forward block, gated or not, whose activation the matrix kernel knows."""
    children = dict(module.named_children())
    if all(name in children for name in _GATED_MLP):
        return _gated_mlp(library, children, fmt)
    for first_name, act_name, second_name in _PLAIN_MLPS:
        if {first_name, act_name, second_name} <= children.keys():
            first, second = matrix_of(children[first_name]), matrix_of(children[second_name])
            act = activation(children[act_name])
            if first is not None and second is not None and act is not None:
                return FusedMLP(packed(library, [first], fmt), act, packed(library, [second], fmt))
    return None


def _gated_mlp(library: Kernels, children: dict[str, nn.Module], fmt: Format) -> nn.Module | None:
    gate, up, down = (matrix_of(children[n]) for n in ("gate_proj", "up_proj", "down_proj"))
    act = activation(children["act_fn"])
    if gate is None or up is None or down is None or act is None:
        return None
    if gate[1] is not None or up[1] is not None:
        return None
    both = interleave(library, gate[0], up[0])
    if both is None:
        return None
    gated = Epilogue.SILU_GATE if act is Epilogue.SILU else Epilogue.GELU_TANH_GATE
    return FusedMLP(packed(library, [(both, None)], fmt), gated, packed(library, [down], fmt))


def activation(module: Any) -> Epilogue | None:
    """Which of the kernel's activations a module is, found out by trying."""
    x = torch.linspace(-12, 12, 481)
    try:
        y = module(x)
    except (TypeError, ValueError, RuntimeError):
        return None
    candidates: dict[Epilogue, Callable[[torch.Tensor], torch.Tensor]] = {
        Epilogue.SILU: nn.functional.silu,
        Epilogue.GELU_TANH: lambda v: nn.functional.gelu(v, approximate="tanh"),
    }
    for epilogue, function in candidates.items():
        if isinstance(y, torch.Tensor) and torch.allclose(y, function(x), atol=1e-5):
            return epilogue
    return None


def norms(library: Kernels, module: Any) -> list[FusedNorm]:
    """Candidates for a norm: some families store the weight, some the weight less 1."""
    if type(module) is nn.LayerNorm:
        if module.weight is None or len(module.normalized_shape) != 1:
            return []
        return [FusedNorm(library, module.weight, module.bias, eps=module.eps, center=True)]
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if "RMSNorm" not in type(module).__name__ or weight is None or not isinstance(eps, float):
        return []
    return [
        FusedNorm(library, weight.detach().float() + offset, None, eps=eps, center=False)
        for offset in (0, 1)
    ]
