"""Recognising decoder layers, and the proof that a fused one is the same.

A layer is known by the names of its parts, and proved as a whole: what comes out of its attention
half and what its feed-forward block adds are compared one by one, so that an error of the smaller
one does not hide in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from core.fusion import patterns as matchers
from core.fusion.cpu.layer import ROTATION, FusedLayer, LayerParts, Workspace
from core.fusion.cpu.mlp import FusedMLP
from core.fusion.cpu.norm import FusedNorm
from core.fusion.rotary import has_rotary
from core.kernels.cpu.library import Kernels
from core.kernels.cpu.linear import Format
from core.layer_spec import LayerSpec
from core.model.hook import causal_attention

_LAYERS = (
    ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp"),
    ("ln_1", "attn", "ln_2", "mlp"),
)
_PROJECTIONS = (("q_proj", "k_proj", "v_proj"), ("c_attn",))
_OUTPUTS = ("o_proj", "c_proj")
_HEAD_NORMS = ("q_norm", "k_norm")

FindNorm = Callable[[nn.Module], FusedNorm | None]
"""Offers a norm that is proved equal to the module."""

IsClose = Callable[[torch.Tensor, torch.Tensor], bool]
"""Whether the second of two tensors is what the first says it should be."""


def fused_layer(
    library: Kernels,
    layer: nn.Module,
    attention: nn.Module,
    spec: LayerSpec,
    fmt: Format,
    workspace: Workspace,
    find_norm: FindNorm,
) -> FusedLayer | None:
    """Offer a replacement for a layer with plain norms, attention and feed-forward block."""
    parts = _parts(library, layer, attention, spec, fmt, find_norm)
    if parts is None:
        return None
    return FusedLayer(library, layer, attention, spec, parts, workspace)


def is_same_layer(
    original: nn.Module, fused: FusedLayer, spec: LayerSpec, x: torch.Tensor, is_close: IsClose
) -> bool:
    """Whether both compute the same of ``x`` [1, num_tokens, hidden_size] and of random angles.

    ``original`` is taken apart: it is a copy in float32 whose attention goes through the hook.
    A rotary embedding may turn a part of each head only: if the original does with half of it, so
    must the other.
    """
    generator = torch.Generator().manual_seed(1)
    seen: list[torch.Tensor] = []
    children = dict(original.named_children())
    names = _names(children)
    assert names is not None
    children[names[2]].register_forward_pre_hook(lambda _module, args: seen.append(args[0]))
    proofs = []
    for rotated in (spec.head_dim, spec.head_dim // 2) if fused.is_rotated else (0,):
        angles = [torch.randn(1, x.shape[1], rotated, generator=generator) for _ in range(2)]
        more: dict[str, Any] = {ROTATION: tuple(angles)} if rotated else {}
        try:
            expected = original(x, attention_mask=None, **more)
        except (TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError):
            continue
        if not isinstance(expected, torch.Tensor) or not seen:
            return False
        actual = fused(x, **more)
        before, after = seen[-1], fused.hidden[None]
        proofs.append(is_close(before - x, after - x))
        proofs.append(is_close(expected - before, actual - after))
    return bool(proofs) and all(proofs)


@contextmanager
def plainly_attending(attention: list[tuple[nn.Module, LayerSpec]]) -> Iterator[None]:
    """Put into attention modules what a hook would, but for a prompt that is all there."""

    def plain(spec: LayerSpec) -> Any:
        return lambda query, key, value, _module, _kwargs: causal_attention(query, key, value, spec)

    for module, spec in attention:
        module.roseinfer_attention = plain(spec)
    try:
        yield
    finally:
        for module, _ in attention:
            del module.roseinfer_attention


def _names(children: dict[str, nn.Module]) -> tuple[str, str, str, str] | None:
    """What this layer calls its parts, if it has these and no others."""
    return next((names for names in _LAYERS if children.keys() == set(names)), None)


def _parts(
    library: Kernels,
    layer: nn.Module,
    attention: nn.Module,
    spec: LayerSpec,
    fmt: Format,
    find_norm: FindNorm,
) -> LayerParts | None:
    children = dict(layer.named_children())
    names = _names(children)
    if names is None or children[names[1]] is not attention:
        return None
    inside = {
        name: module
        for name, module in attention.named_children()
        if not isinstance(module, nn.Dropout)
    }
    projections = _matrices(inside, spec)
    output = next((matchers.matrix_of(inside.pop(n)) for n in _OUTPUTS if n in inside), None)
    norms = [inside.pop(name) for name in _HEAD_NORMS if name in inside]
    if projections is None or output is None or inside or len(norms) not in (0, 2):
        return None
    found = [find_norm(norm) for norm in (children[names[0]], children[names[2]], *norms)]
    if any(norm is None for norm in found):
        return None
    first, second, *heads = (norm for norm in found if norm is not None)
    if heads and any(norm.size != spec.head_dim for norm in heads):
        return None
    block = matchers.mlp(library, children[names[3]], fmt)
    if not isinstance(block, FusedMLP):
        return None
    query_norm, key_norm = heads or (None, None)
    return LayerParts(
        first_norm=first,
        projections=matchers.packed(library, projections, fmt),
        query_norm=query_norm,
        key_norm=key_norm,
        output=matchers.packed(library, [output], fmt),
        second_norm=second,
        mlp=block,
        is_rotated=has_rotary(attention),
    )


def _matrices(inside: dict[str, nn.Module], spec: LayerSpec) -> list[matchers.Matrix] | None:
    """Take the projections to queries, keys and values out of the children of an attention."""
    names = next((names for names in _PROJECTIONS if set(names) <= inside.keys()), ())
    matrices = [matchers.matrix_of(inside.pop(name)) for name in names]
    known = [matrix for matrix in matrices if matrix is not None]
    wanted = (spec.num_heads + spec.num_kv_heads) * spec.head_dim
    wanted += spec.num_kv_heads * spec.value_dim
    sizes = {weight.shape[1] for weight, _ in known}
    is_whole = len(known) == len(matrices) and len(sizes) == 1
    return known if is_whole and sum(len(weight) for weight, _ in known) == wanted else None
