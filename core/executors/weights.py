"""Weights: the tensors of a spec by role, read from safetensors by a family's names."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch

from core.models.names import Layout, Names
from core.models.spec import Attention, DecoderSpec, Mixer, Shape, Undescribed

Roles: TypeAlias = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors outside of layers, and those of each layer."""

    top: Roles
    layers: tuple[Roles, ...]


def read_weights(paths: Iterable[Path], spec: DecoderSpec, names: Names) -> Weights:
    """Read every tensor of a spec from safetensors files, in float32.

    Raises Undescribed if one is missing, has another shape, or is left over.
    """
    from safetensors import safe_open  # noqa: PLC0415 - only to read weights

    with ExitStack() as stack:
        files: dict[str, Any] = {}
        for path in paths:
            file = stack.enter_context(safe_open(path, "pt"))
            files |= dict.fromkeys(file.keys(), file)
        return _Reader(files, spec, names).read()


class _Reader:
    """Takes tensors by role; ``files`` has the open file of each name."""

    def __init__(self, files: dict[str, Any], spec: DecoderSpec, names: Names) -> None:
        self._files, self._spec, self._names = files, spec, names
        self._left = set(files)
        embedding = names.of("embedding", None)[0]
        roots = [root for root in names.roots if root + embedding in files]
        if not roots:
            raise Undescribed(f"the checkpoint has no {embedding}")
        self._root = roots[0]

    def read(self) -> Weights:
        spec = self._spec
        top = {role: self._take(role, None, shape) for role, shape in spec.tensors()}
        layers = tuple(
            {role: self._take(role, i, shape) for role, shape in layer.tensors(spec.hidden_size)}
            for i, layer in enumerate(spec.layers)
        )
        ignored = self._names.ignored
        if spec.ties_head:
            ignored = (*ignored, *self._names.of("head", None))
        if left := sorted(name for name in self._left if not name.endswith(ignored)):
            raise Undescribed(f"the checkpoint has {left[0]}, which the spec has not")
        return Weights(top, layers)

    def _take(self, role: str, layer: int | None, shape: Shape) -> torch.Tensor:
        root = "" if role.startswith("head") else self._root
        names = [root + name for name in self._names.of(role, layer)]
        parts = [self._part(name, shape) for name in names]
        layout = self._names.layouts.get(role.removesuffix("_bias"))
        if layout is not None:
            mixer = None if layer is None else self._spec.layers[layer].mixer
            parts = [_in_rows(part, layout, role, mixer) for part in parts]
        rows = -1 if role.endswith("_bias") or len(shape) == 1 else -2
        whole = parts[0] if len(parts) == 1 else torch.cat(parts, rows)
        if len(shape) == 1:
            whole = whole.flatten()
        if whole.shape != shape:
            raise Undescribed(f"{names[0]} has shape {list(whole.shape)}, not {list(shape)}")
        return whole

    def _part(self, name: str, shape: Shape) -> torch.Tensor:
        """A tensor, or as many numbered ones as ``shape`` has rows."""
        numbered = [name.format(e=e) for e in range(shape[0])] if "{e}" in name else [name]
        if missing := [each for each in numbered if each not in self._files]:
            raise Undescribed(f"the checkpoint has no {missing[0]}")
        self._left.difference_update(numbered)
        tensors = [self._files[each].get_tensor(each).float() for each in numbered]
        return torch.stack(tensors) if "{e}" in name else tensors[0]


def _in_rows(x: torch.Tensor, layout: Layout, role: str, mixer: Mixer | None) -> torch.Tensor:
    """A tensor of another layout, with outputs in rows."""
    is_bias = role.endswith("_bias")
    if layout == "by_head":
        assert isinstance(mixer, Attention)
        heads = x.reshape(mixer.num_heads, 3, mixer.head_dim, *x.shape[1:])
        return heads.transpose(0, 1).flatten(0, 2)
    if not is_bias:
        x = x.transpose(-1, -2)
    if layout == "interleaved":
        x = torch.cat([x[:, 0::2], x[:, 1::2]], 1)
    return x
