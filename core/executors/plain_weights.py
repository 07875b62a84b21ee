"""The weights of a spec in float32, as the plain executor takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch

from core.models.names import Names
from core.models.spec import DecoderSpec
from core.weights.roles import RoleReader, Tensors

Roles: TypeAlias = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors outside of layers, and those of each layer."""

    top: Roles
    layers: tuple[Roles, ...]


def read_weights(tensors: Tensors, spec: DecoderSpec, names: Names) -> Weights:
    """Read every tensor of a spec.

    Raises Undescribed if one is missing, has another shape, or is left over.
    """
    reader = RoleReader(tensors, spec, names)
    top = {role: reader.whole(role, None, shape) for role, shape in spec.tensors()}
    layers = tuple(
        {role: reader.whole(role, i, shape) for role, shape in layer.tensors(spec.hidden_size)}
        for i, layer in enumerate(spec.layers)
    )
    reader.check_all_read()
    return Weights(top, layers)
