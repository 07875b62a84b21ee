"""Which tensors of a file each parameter of a model becomes: what weights.py reads, in reverse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from core.contract.errors import ModelLoadError
from core.gguf.families import Family

_PERMUTED = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
"""Tensors whose rows alternate between the halves of a head, and what counts their heads."""

_EXACT = frozenset({"ffn_gate_inp", "ffn_gate_inp_shexp", "position_embd"})
"""Matrices that stay as they are: routers, gates of experts, and embeddings of positions."""


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A tensor of a file, and the module that it is a parameter of."""

    name: str
    module: str
    stored: torch.Tensor
    num_heads: int | None = None
    """Heads whose halves' rows alternate in the file; None if the rows keep their order."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions, the contiguous one last."""
        return tuple(self.stored.shape)

    def value(self) -> torch.Tensor:
        """Return the values in the order of the file."""
        if self.num_heads is None:
            return self.stored
        halves = self.stored.view(self.num_heads, 2, -1, *self.shape[1:])
        return halves.swapaxes(1, 2).reshape(self.shape)

    @property
    def leaf(self) -> str:
        """The name without layer and suffix."""
        return self.name.rsplit(".", 2)[-2]

    @property
    def is_quantised(self) -> bool:
        """Whether it is a matrix that a mix has a type for."""
        return self.stored.dim() > 1 and self.leaf not in _EXACT


def tensors_of(model: Any, family: Family) -> Iterator[NamedTensor]:
    """Arrange the parameters of a model as llama.cpp's converter does; a shared one once.

    Raises ModelLoadError for a parameter that a file of this family has no place for.
    """
    for name, parameter in model.named_parameters():
        yield from _tensors(name, parameter.detach(), family, model.config)


def _tensors(name: str, value: torch.Tensor, family: Family, config: Any) -> Iterator[NamedTensor]:
    module, _, suffix = name.rpartition(".")
    if suffix not in ("weight", "bias"):  # all experts of a layer are one parameter
        module, suffix = name, "weight"
    prefix, leaves = _leaves(module, family)
    if not leaves:
        raise ModelLoadError(f"its parameter {name} has no place in a GGUF file of this family")
    if family.norm_offset and module.endswith("norm"):
        value = value.float() + family.norm_offset
    is_permuted = family.permutes_heads and leaves[0] in _PERMUTED
    num_heads = getattr(config, _PERMUTED[leaves[0]]) if is_permuted else None
    if family.is_transposed and value.dim() == 2 and prefix:
        value = value.t()
    parts = value.chunk(len(leaves), dim=1) if len(leaves) > 1 else (value,)
    for leaf, part in zip(leaves, parts, strict=True):
        yield NamedTensor(f"{prefix}{leaf}.{suffix}", module, part, num_heads)


def _leaves(module: str, family: Family) -> tuple[str, list[str]]:
    """The prefix of the layer, and the names without it of the tensors of a module."""
    inside = module.removeprefix(f"{family.layers}.")
    if inside == module:
        return "", [leaf for leaf, found in family.top.items() if found == module]
    number, _, inner = inside.partition(".")
    return f"blk.{number}.", [leaf for leaf, found in family.layer.items() if found == inner]
