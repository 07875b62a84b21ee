"""The experts of a mixture, packed. Each multiplies the tokens that a router sends to it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from core.fusion.cpu.mlp import GATED
from core.fusion.patterns import gate_kind
from core.fusion.proof import NUM_ROWS, Proof, output_of
from core.fusion.visitor import Place
from core.gguf.modules import BlockExperts
from core.kernels.cpu.experts import assign
from core.kernels.cpu.grouped import GroupedWeight
from core.kernels.cpu.linear import Epilogue
from core.model.plain import COMPUTED
from core.system.private_names import replace_parameters, stacked_activation
from core.weights.packer import Packer

_FIRST = ("gate_up_proj", "up_proj")
"""Names of the first weight: with a gate, and without."""

_SECOND = "down_proj"

Activation = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class StackedExperts:
    """The parameters of a module that holds all experts of a layer.

    ``first`` is ``[num_experts, outputs, hidden_size]`` and ``second``
    ``[num_experts, hidden_size, inner]``; both may be views of transposed weights.
    ``activation`` maps ``outputs`` values to ``inner``.
    """

    first: torch.Tensor
    first_bias: torch.Tensor | None
    activation: Activation
    second: torch.Tensor
    second_bias: torch.Tensor | None


class PackedExperts(nn.Module):
    """``sum_k weight[k] * second[id[k]](activation(first[id[k]](x)))``; float32 in and out.

    The sum runs over k in order, so that a token's result does not depend on its batch. Core thread
    only.
    """

    def __init__(
        self, first: GroupedWeight, activation: Activation | Epilogue, second: GroupedWeight
    ) -> None:
        """``activation`` is an epilogue of the first product where the kernel has one."""
        super().__init__()
        self.first = first
        self.second = second
        self.epilogue = activation if isinstance(activation, Epilogue) else Epilogue.NONE
        self.activation = None if isinstance(activation, Epilogue) else activation

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """Return the weighted sum for each token, in the shape of ``hidden_states``.

        ``top_k_index`` and ``top_k_weights`` are ``[num_tokens, k]``. An index of ``num_experts``
        or more stands for no expert.
        """
        x = hidden_states.reshape(-1, hidden_states.shape[-1]).float()
        chosen = top_k_index.reshape(len(x), -1)
        assigned = assign(self.first.kernels, chosen, self.first.num_groups)
        inner = self.first.multiply(x[assigned.sources], assigned.ends, self.epilogue)
        if self.activation is not None:
            inner = self.activation(inner).contiguous()
        rows = self.second.multiply(inner, assigned.ends)
        return assigned.sum(rows, top_k_weights).view(hidden_states.shape)


class ExpertsCandidate:
    """A candidate for the experts of a layer."""

    counts: ClassVar[Mapping[str, int]] = {"experts": 1}

    def __init__(self, place: Place, fused: PackedExperts) -> None:
        self._place = place
        self._fused = fused

    def is_equal(self, proof: Proof) -> bool:
        """See Candidate.

        The original computes with a few of its experts, widened to float32: the first, the last and
        one between. A copy of all could be larger than the rest of the model.
        """
        num_experts, size = self._fused.first.num_groups, self._fused.first.num_columns
        some = sorted({0, num_experts // 2, num_experts - 1})
        original = _with_experts(self._place.module, some)
        x = proof.random(NUM_ROWS, size)
        weights = proof.random(NUM_ROWS, len(some))
        index = torch.stack([torch.arange(len(some)).roll(i) for i in range(NUM_ROWS)])
        expected = output_of(original, x, index, weights)
        actual = self._fused(x, torch.tensor(some)[index], weights)
        return proof.is_close(expected, actual, is_product=True)

    def install(self) -> None:
        """See Candidate. Frees the original weights; the activation may belong to the original."""
        original = self._place.module
        self._place.put(self._fused)
        replace_parameters(original, {})


def experts_pattern(packer: Packer, place: Place) -> Iterator[ExpertsCandidate]:
    """Experts with stacked parameters, or in blocks."""
    if isinstance(place.module, BlockExperts):
        fused = _packed_blocks(packer, place.module)
        if fused is not None:
            yield ExpertsCandidate(place, fused)
        return
    for stacked in _stacked(place.module):
        yield ExpertsCandidate(place, _packed(packer, stacked))


def _packed(packer: Packer, experts: StackedExperts) -> PackedExperts:
    second = packer.groups(experts.second, experts.second_bias)
    kind = gate_kind(experts.activation)
    if kind is not None:
        bias = experts.first_bias
        first = packer.gated_groups(
            kind.halves(experts.first, 1), None if bias is None else kind.halves(bias, 1)
        )
        if first is not None:
            return PackedExperts(first, GATED[kind.gate], second)
    first = packer.groups(experts.first, experts.first_bias)
    return PackedExperts(first, experts.activation, second)


def _packed_blocks(packer: Packer, experts: BlockExperts) -> PackedExperts | None:
    both, count = [experts.gate, experts.up], experts.num_experts
    kind = gate_kind(experts.activation)
    first = None
    activation: Activation | Epilogue = experts.activation
    if kind is not None and not kind.alternates:
        first, activation = packer.block_groups(both, count, is_gated=True), GATED[kind.gate]
    if first is None:
        first, activation = packer.block_groups(both, count), experts.activation
    second = packer.block_groups([experts.down], count)
    if first is None or second is None:
        return None
    return PackedExperts(first, activation, second)


def _stacked(module: Any) -> Iterator[StackedExperts]:
    """Readings of a module's parameters: as they are, and transposed."""
    parameters = dict(module.named_parameters(recurse=False))
    name = next((name for name in _FIRST if name in parameters), None)
    allowed = {name, f"{name}_bias", _SECOND, f"{_SECOND}_bias"}
    if (
        name is None
        or not {_SECOND} <= parameters.keys() <= allowed
        or "forward" in vars(module)
        or any(type(p) is not nn.Parameter or p.dtype not in COMPUTED for p in parameters.values())
    ):
        return
    first, second = parameters[name].detach(), parameters[_SECOND].detach()
    biases = [parameters.get(f"{key}_bias") for key in (name, _SECOND)]
    is_gated = name == _FIRST[0]
    activation = stacked_activation(module) if is_gated else getattr(module, "act_fn", None)
    if first.dim() != 3 or second.dim() != 3 or activation is None:
        return
    for one, two in ((first, second), (first.mT, second.mT)):
        width = one.shape[1] // 2 if is_gated else one.shape[1]
        is_fitting = one.shape[2] == two.shape[1] and two.shape[2] == width
        if is_fitting and len(one) == len(two) == getattr(module, "num_experts", None):
            yield StackedExperts(one, _values(biases[0]), activation, two, _values(biases[1]))


def _values(parameter: nn.Parameter | None) -> torch.Tensor | None:
    return None if parameter is None else parameter.detach()


def _with_experts(module: nn.Module, some: list[int]) -> Any:
    """Return a float32 copy of a module of experts with only some of them."""
    if isinstance(module, BlockExperts):
        return module.of(some)
    twin: Any = copy.copy(module)
    some_of_each: dict[str, nn.Parameter | None] = {
        name: nn.Parameter(parameter.detach()[some].float(), requires_grad=False)
        for name, parameter in module.named_parameters(recurse=False)
    }
    replace_parameters(twin, some_of_each)  # a copy shares the dictionary
    twin.num_experts = len(some)
    return twin
