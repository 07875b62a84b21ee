"""Tensors of a GGUF file from a checkpoint in Hugging Face format, by role."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from core.gguf.architectures import Architecture
from core.models.spec import Attention, DecoderSpec, Layer
from core.weights.roles import RoleReader
from tests.support.gguf_files import Raw

NORMS = {"pre_mixer", "post_mixer", "pre_feed_forward", "post_feed_forward", "final_norm"}


def tensors_by_role(
    spec: DecoderSpec, reader: RoleReader, architecture: Architecture
) -> dict[str, Raw]:
    """As llama.cpp's converter arranges them."""
    found: dict[str, Raw] = {}
    places = [(None, spec.tensors())]
    places += [(i, layer.tensors(spec.hidden_size)) for i, layer in enumerate(spec.layers)]
    for i, tensors in places:
        layer = None if i is None else spec.layers[i]
        for role, shape in tensors:
            value = reader.whole(role, i, shape)
            if role in NORMS and architecture.shifts_norms:
                value = value + 1
            names = architecture.names.of(role, i)
            parts = _parts(role, value, layer, architecture) if len(names) > 1 else [value]
            for name, part in zip(names, parts, strict=True):
                found[name] = Raw.of(part)
    return found


def _parts(
    role: str, value: torch.Tensor, layer: Layer | None, architecture: Architecture
) -> Iterator[torch.Tensor]:
    assert layer is not None
    matrix, mixer = role.removesuffix("_bias"), layer.mixer
    if matrix != "qkv":  # gates and ups
        yield from value.chunk(2, 1 if matrix == "experts_up" else 0)
        return
    assert isinstance(mixer, Attention)
    heads = (mixer.num_heads, mixer.num_kv_heads, mixer.num_kv_heads)
    parts = value.split([each * mixer.head_dim for each in heads])
    for count, part in zip(heads, parts[:2], strict=False):
        halves = part.view(count, 2, -1, *part.shape[1:]).swapaxes(1, 2)
        yield halves.reshape(part.shape) if architecture.permutes_heads else part
    yield parts[2]
