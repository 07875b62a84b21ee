"""The feed-forward block of a mixture as the layer kernel computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from core.fusion.cpu.experts import PackedExperts
from core.fusion.cpu.mlp import FusedMLP, fused_mlp
from core.fusion.patterns import matrix_of
from core.fusion.proof import Proof, output_of
from core.kernels.cpu.layer import Matrices, Matrix, Mixture
from core.kernels.cpu.linear import PackedWeight
from core.model.plain import is_plain
from core.weights.packer import Packer

_ROUTERS = ("gate", "router")
_SHARED_EXPERT = "shared_expert"
_SHARED_GATE = "shared_expert_gate"

NUM_ROUTED = 64
"""Tokens that a router is proved with: enough for each of few experts to be chosen."""


@dataclass(frozen=True, slots=True)
class Router:
    """Gives a token its ``per_token`` experts of the largest logits, weighted by their softmax.

    ``weight`` is float32, since a rounding error would change which experts serve a token.
    """

    weight: PackedWeight  # [num_experts, hidden_size]
    per_token: int
    normalises: bool
    """Whether the weights of a token's experts are divided by their sum."""


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """An expert of all tokens. Its weight is the sigmoid of ``gate``, or 1."""

    mlp: FusedMLP
    gate: PackedWeight | None  # float32 [1, hidden_size]


@dataclass(frozen=True, slots=True)
class FusedMixture:
    """The parts of a block of experts, of which FusedLayer makes arguments of the kernel."""

    router: Router
    experts: PackedExperts
    shared: SharedExpert | None

    def fits(self, hidden_size: int) -> bool:
        """Whether the parts' sizes go together: the kernel reads them without asking."""
        first, second = self.experts.first, self.experts.second
        inner = first.num_rows // 2 if self.experts.epilogue.is_gated else first.num_rows
        fits = (
            self.experts.activation is None
            and first.num_columns == self.router.weight.num_columns == hidden_size
            and second.num_rows == hidden_size
            and second.num_columns == inner
            and first.num_groups == second.num_groups == self.router.weight.num_rows
            and 1 <= self.router.per_token <= first.num_groups
        )
        if self.shared is None or not fits:
            return fits
        mlp, gate = self.shared.mlp, self.shared.gate
        return (
            mlp.fits(hidden_size)
            and mlp.first.num_parts == mlp.second.num_parts == 1
            and (gate is None or (gate.num_columns, gate.num_rows) == (hidden_size, 1))
        )

    def arguments(self) -> Mixture:
        """Return the block as the layer kernel reads it; valid while this object lives."""
        mixture = Mixture(
            router=Matrix.of(self.router.weight),
            per_token=self.router.per_token,
            normalises=int(self.router.normalises),
            up=Matrices.of(self.experts.first, self.experts.epilogue),
            down=Matrices.of(self.experts.second),
        )
        if self.shared is not None:
            mlp, gate = self.shared.mlp, self.shared.gate
            mixture.shared_up = Matrix.of(mlp.first, mlp.epilogue)
            mixture.shared_down = Matrix.of(mlp.second)
            if gate is not None:
                mixture.shared_gate = Matrix.of(gate)
        return mixture


def fused_mixture(packer: Packer, module: nn.Module, proof: Proof) -> FusedMixture | None:
    """Recognise a block of a router, packed experts, and maybe a shared expert.

    The router is proved here: three tokens of a layer's proof would hardly show which of its
    weights are normalised.
    """
    children = dict(module.named_children())
    experts = children.pop("experts", None)
    name = next((name for name in _ROUTERS if name in children), None)
    if not isinstance(experts, PackedExperts) or name is None:
        return None
    router = _router(packer, children.pop(name), proof)
    shared = _shared(packer, children)
    is_known = not children or (
        shared is not None and children.keys() <= {_SHARED_EXPERT, _SHARED_GATE}
    )
    return FusedMixture(router, experts, shared) if router is not None and is_known else None


def _router(packer: Packer, module: Any, proof: Proof) -> Router | None:
    parameters = dict(module.named_parameters())
    per_token = getattr(module, "top_k", None)
    if (
        not is_plain(module)
        or not parameters.keys() <= {"weight", "bias"}
        or module.weight.dim() != 2
        or not isinstance(per_token, int)
        or not 1 <= per_token <= len(module.weight)
    ):
        return None
    [reference] = proof.references([module])
    x = proof.random(NUM_ROUTED, module.weight.shape[1])
    logits = functional.linear(x, reference.weight, getattr(reference, "bias", None))
    weights, chosen = logits.softmax(-1).topk(per_token)
    for normalises in (False, True):
        expected = weights / weights.sum(-1, keepdim=True) if normalises else weights
        if _routes(output_of(reference, x), chosen, expected, proof):
            return Router(
                packer.exact(module.weight.detach(), parameters.get("bias")), per_token, normalises
            )
    return None


def _routes(output: object, chosen: torch.Tensor, weights: torch.Tensor, proof: Proof) -> bool:
    """Whether a router's output ends with these weights and experts."""
    if not isinstance(output, tuple) or len(output) < 2:
        return False
    found_weights, found_chosen = output[-2:]
    return (
        isinstance(found_chosen, torch.Tensor)
        and torch.equal(found_chosen, chosen)
        and proof.is_close(found_weights, weights)
    )


def _shared(packer: Packer, children: dict[str, nn.Module]) -> SharedExpert | None:
    """The expert of all tokens, of the other children of a block."""
    if _SHARED_EXPERT not in children:
        return None
    mlp = fused_mlp(packer, children[_SHARED_EXPERT])
    gate = matrix_of(children.get(_SHARED_GATE))
    if mlp is None or (gate is None and _SHARED_GATE in children):
        return None
    if gate is None:
        return SharedExpert(mlp, None)
    weight, bias = gate
    if not isinstance(weight, torch.Tensor) or len(weight) != 1:
        return None
    return SharedExpert(mlp, packer.exact(weight.detach(), bias))
