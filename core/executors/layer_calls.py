"""The arguments of the compiled kernels for a spec: LayerCalls and a ModelCall, weights packed.

Matrices are packed one role at a time, straight from the checkpoint. What the kernels do not
compute is refused before any weight is read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from core.executors.buffers import Workspace
from core.executors.supported import check_supported, epilogue_of, unsupported
from core.gguf.blocks import BlockMatrix
from core.kernels.cpu.grouped import GroupedWeight
from core.kernels.cpu.layer import MAX_PARTS, LayerCall, Matrices, Matrix, Mixture
from core.kernels.cpu.layer import Norm as NormCall
from core.kernels.cpu.linear import PackedWeight
from core.kernels.cpu.model import ModelCall, Table
from core.layer_spec import LayerSpec
from core.models import spec as specs
from core.models.spec import Attention, DecoderSpec, FeedForward, Layer, Norm, Rope
from core.weights.packer import Packer
from core.weights.quantiser import Quantiser
from core.weights.roles import Group, RoleReader, Weight

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class Calls:
    """The arguments of the kernels, and what they point to.

    ``layers`` are what attention and the KV cache need.
    """

    model: ModelCall
    calls: list[LayerCall]
    layers: list[LayerSpec]
    workspace: Workspace
    kept: list[Any]


class CallBuilder:
    """Packs the weights of a spec and fills the kernels' arguments. Core thread only.

    ``quantiser`` turns matrices into blocks first.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        reader: RoleReader,
        packer: Packer,
        quantiser: Quantiser | None = None,
    ) -> None:
        self.spec, self.reader, self.packer = spec, reader, packer
        self._quantiser = quantiser
        self.kept: list[Any] = []  # ctypes structures do not keep what they point to
        self._workspace = Workspace()

    def build(self) -> Calls:
        """Read every tensor. Raises Undescribed for a checkpoint that the spec does not fit."""
        check_supported(self.spec)
        model = self._model()
        calls, layers = [], []
        for i, layer in enumerate(self.spec.layers):
            assert isinstance(layer.mixer, Attention)
            builder = _LayerBuilder(self, layer, i)
            calls.append(builder.call(layer.mixer, self._workspace))
            layers.append(builder.layer_spec(layer.mixer))
        self.reader.check_all_read()
        return Calls(model, calls, layers, self._workspace, self.kept)

    def keep(self, value: Kept) -> Kept:
        """Keep what an argument points to."""
        self.kept.append(value)
        return value

    def matrix(self, role: str, layer: int | None, shape: specs.Shape, bias: bool) -> PackedWeight:
        """Pack a matrix and its bias."""
        parts = self.matrices(role, layer, shape)
        return self.stack(parts, self.bias(role, layer, shape) if bias else None)

    def matrices(self, role: str, layer: int | None, shape: specs.Shape) -> list[Weight]:
        """The matrices of a role as they are packed."""
        parts = self.reader.matrices(role, layer, shape)
        if self._quantiser is None:
            return parts
        return self._quantiser.quantised(role, layer, parts)

    def bias(self, role: str, layer: int | None, shape: specs.Shape) -> torch.Tensor:
        """The bias of a matrix in float32."""
        return self.reader.whole(f"{role}_bias", layer, shape[:-1])

    def stack(self, parts: Sequence[Weight], bias: torch.Tensor | None) -> PackedWeight:
        """Pack matrices whose rows follow each other as one."""
        sizes = [len(part) for part in parts]
        biases = [None] * len(parts) if bias is None else torch.split(bias, sizes)
        packed = self.packer.stack(list(zip(parts, biases, strict=True)))
        if packed.num_parts > MAX_PARTS:
            raise unsupported(f"a matrix in {packed.num_parts} formats")
        return self.keep(packed)

    def norm(
        self,
        spec: Norm,
        role: str,
        layer: int | None,
        width: int,
        *,
        scale: float = 1.0,
        order: torch.Tensor | None = None,
    ) -> NormCall:
        """A norm of rows of ``width`` values whose result is scaled, and which are in an order."""
        weight, bias = torch.ones(width), None
        if spec.has_weight:
            weight = self.reader.whole(role, layer, (width,)) + spec.offset
        if spec.has_bias:
            bias = self.reader.whole(f"{role}_bias", layer, (width,)) * scale
        weight = weight * scale
        if order is not None:
            weight, bias = weight[order], None if bias is None else bias[order]
        self.kept += [weight, bias]
        return NormCall.of(weight, bias, eps=spec.eps, center=spec.kind == "layer")

    def _model(self) -> ModelCall:
        spec, reader, hidden = self.spec, self.reader, self.spec.hidden_size
        shape = (spec.vocab_size, hidden)
        read = self.matrices if spec.ties_head else reader.matrices
        [embedding] = read("embedding", None, shape)
        bias = reader.whole("head_bias", None, shape[:1]) if spec.has_head_bias else None
        if spec.ties_head:
            head = self.stack([embedding], bias)
            tokens = Table.of_packed(head, spec.embedding_scale)
        else:
            head = self.stack(self.matrices("head", None, shape), bias)
            tokens = self._table(embedding, spec.embedding_scale)
        norm = self.norm(spec.final_norm, "final_norm", None, hidden, scale=spec.logit_scale)
        positions = Table()
        if spec.num_positions is not None:
            table = reader.whole("positions", None, (spec.num_positions, hidden))
            positions = Table.of_rows(self.keep(table)) or Table()
        return ModelCall(
            tokens=tokens, positions=positions, norm=norm, head=Matrix.of(head), hidden=hidden
        )

    def _table(self, embedding: Weight, scale: float) -> Table:
        if isinstance(embedding, BlockMatrix):
            return Table.of_packed(self.stack([embedding], None), scale)
        own = self.keep(embedding.clone())  # so that a mapped checkpoint is released
        self.packer.count(own)
        table = Table.of_rows(own)
        if table is None:
            raise unsupported(f"an embedding in {own.dtype}")
        table.factor = scale
        return table


class _LayerBuilder:
    """Packs one layer."""

    def __init__(self, of: CallBuilder, layer: Layer, index: int) -> None:
        self._of, self._layer, self._index = of, layer, index
        self._hidden = of.spec.hidden_size
        self._reader, self._packer = of.reader, of.packer
        self._shapes = dict(layer.tensors(self._hidden))

    def layer_spec(self, mixer: Attention) -> LayerSpec:
        """What attention and the KV cache need."""
        sinks = None
        if mixer.has_sinks:
            sinks = self._reader.whole("sinks", self._index, self._shapes["sinks"])
        return LayerSpec(
            mixer.num_heads,
            mixer.num_kv_heads,
            mixer.head_dim,
            mixer.value_dim,
            mixer.scale,
            mixer.window,
            mixer.softcap,
            sinks,
        )

    def call(self, mixer: Attention, workspace: Workspace) -> LayerCall:
        """The arguments of the layer."""
        of, layer, i = self._of, self._layer, self._index
        assert layer.pre_mixer is not None
        assert layer.pre_feed_forward is not None
        call = LayerCall(
            first_norm=of.norm(layer.pre_mixer, "pre_mixer", i, self._hidden),
            second_norm=of.norm(layer.pre_feed_forward, "pre_feed_forward", i, self._hidden),
            projections=Matrix.of(self._projections(mixer)),
            output=Matrix.of(self._matrix("output", mixer.has_output_bias)),
            num_heads=mixer.num_heads,
            num_kv_heads=mixer.num_kv_heads,
            head_dim=mixer.head_dim,
            value_dim=mixer.value_dim,
            applies_rope=int(mixer.rope is not None),
        )
        inner = 0
        if isinstance(layer.feed_forward, specs.Mixture):
            call.mixture = ctypes.pointer(self._mixture(layer.feed_forward))
        else:
            up, down = self._feed_forward(layer.feed_forward)
            call.up, call.down, inner = up, down, layer.feed_forward.size
        if mixer.head_norm is not None:
            call.joins_heads = int(mixer.head_norm.over == "all")
            call.query_norm = self._head_norm(mixer, "query_norm", mixer.num_heads)
            call.key_norm = self._head_norm(mixer, "key_norm", mixer.num_kv_heads)
        query, key = mixer.num_heads * mixer.head_dim, mixer.num_kv_heads * mixer.head_dim
        value = mixer.num_kv_heads * mixer.value_dim
        is_changed = mixer.rope is not None or mixer.head_norm is not None
        widths = (self._hidden, query + key + value, *(query, key) * is_changed)
        widths += (0, 0) * (not is_changed)
        widths += (self._hidden, inner, mixer.num_heads * mixer.value_dim)
        call.step = ctypes.addressof(workspace.step(mixer.rope, widths))
        return call

    def _matrix(self, role: str, bias: bool) -> PackedWeight:
        return self._of.matrix(role, self._index, self._shapes[role], bias)

    def _projections(self, mixer: Attention) -> PackedWeight:
        """Queries, keys and values. Neighbouring pairs of RoPE become halves."""
        sizes = [mixer.num_heads * mixer.head_dim, mixer.num_kv_heads * mixer.head_dim]
        parts = self._of.matrices("qkv", self._index, self._shapes["qkv"])
        bias = None
        if mixer.has_bias:
            bias = self._of.bias("qkv", self._index, self._shapes["qkv"])
        if mixer.rope is not None and mixer.rope.pairs == "neighbours":
            query, key, value = _split(parts, [*sizes, mixer.num_kv_heads * mixer.value_dim])
            orders = [_halves(mixer, mixer.num_heads), _halves(mixer, mixer.num_kv_heads)]
            parts = [_taken(query, orders[0]), _taken(key, orders[1]), value]
            if bias is not None:
                rest = torch.arange(sum(sizes), len(bias))
                bias = bias[torch.cat([orders[0], orders[1] + sizes[0], rest])]
        return self._of.stack(parts, bias)

    def _head_norm(self, mixer: Attention, role: str, heads: int) -> NormCall:
        assert mixer.head_norm is not None
        width = mixer.head_dim * (heads if mixer.head_norm.over == "all" else 1)
        order = None
        if mixer.rope is not None and mixer.rope.pairs == "neighbours":
            order = _halves(mixer, width // mixer.head_dim)
        return self._of.norm(mixer.head_norm.norm, role, self._index, width, order=order)

    def _feed_forward(self, spec: FeedForward, prefix: str = "") -> tuple[Matrix, Matrix]:
        epilogue, role = epilogue_of(spec), f"{prefix}up"
        down = self._matrix(f"{prefix}down", spec.has_bias)
        if not spec.is_gated:
            return Matrix.of(self._matrix(role, spec.has_bias), epilogue), Matrix.of(down)
        parts = self._of.matrices(role, self._index, self._shapes[role])
        gate, up = _split(parts, [spec.size, spec.size])
        both = self._packer.interleave((gate, None), (up, None))
        if both is None:
            raise unsupported(f"gates and ups of {spec.size} columns in {_kinds([gate, up])}")
        return Matrix.of(self._of.keep(both), epilogue), Matrix.of(down)

    def _mixture(self, spec: specs.Mixture) -> Mixture:
        of, i, shapes = self._of, self._index, self._shapes
        bias = of.bias("router", i, shapes["router"]) if spec.router.has_bias else None
        router = of.keep(self._exact("router", bias))
        up, down = self._experts(spec)
        mixture = Mixture(
            router=Matrix.of(router),
            per_token=spec.per_token,
            normalises=int(spec.router.normalises),
            up=Matrices.of(up, epilogue_of(spec.expert)),
            down=Matrices.of(down),
        )
        if spec.shared is not None:
            mixture.shared_up, mixture.shared_down = self._feed_forward(spec.shared, "shared_")
            if spec.has_shared_gate:
                mixture.shared_gate = Matrix.of(of.keep(self._exact("shared_gate", None)))
        return mixture

    def _exact(self, role: str, bias: torch.Tensor | None) -> PackedWeight:
        return self._packer.exact(self._reader.whole(role, self._index, self._shapes[role]), bias)

    def _experts(self, spec: specs.Mixture) -> tuple[GroupedWeight, GroupedWeight]:
        of, i, shapes, expert = self._of, self._index, self._shapes, spec.expert
        biases: dict[str, torch.Tensor | None] = {"experts_up": None, "experts_down": None}
        if expert.has_bias:
            biases = {role: of.bias(role, i, shapes[role]) for role in biases}
        first = self._reader.groups("experts_up", i, shapes["experts_up"])
        second = self._reader.groups("experts_down", i, shapes["experts_down"])
        bias = biases["experts_up"]
        if expert.is_gated:
            halves = _split_groups(first, spec.num_experts, expert.size)
            up = self._gated(halves, spec.num_experts, None if bias is None else bias.chunk(2, 1))
        else:
            halves = first
            up = self._plain_groups(first, spec.num_experts, bias)
        if up is None:
            raise unsupported(f"experts of {expert.size} columns in {_kinds(halves)}")
        down = self._plain_groups(second, spec.num_experts, biases["experts_down"])
        assert down is not None
        return of.keep(up), of.keep(down)

    def _gated(
        self, halves: list[Group], count: int, biases: tuple[torch.Tensor, ...] | None
    ) -> GroupedWeight | None:
        blocks = [half for half in halves if isinstance(half, BlockMatrix)]
        if len(blocks) == len(halves):
            return self._packer.block_groups(blocks, count, is_gated=True, biases=biases)
        tensors = [half for half in halves if not isinstance(half, BlockMatrix)]
        return self._packer.gated_groups(tensors, biases) if len(tensors) == len(halves) else None

    def _plain_groups(
        self, groups: list[Group], count: int, bias: torch.Tensor | None
    ) -> GroupedWeight | None:
        [group] = groups
        if isinstance(group, BlockMatrix):
            biases = None if bias is None else [bias]
            return self._packer.block_groups([group], count, biases=biases)
        return self._packer.groups(group, bias)


def _kinds(weights: Iterable[Weight | Group]) -> str:
    """The types of matrices, for a message."""
    return " and ".join(
        weight.type.name if isinstance(weight, BlockMatrix) else str(weight[0].dtype)
        for weight in weights
    )


def _split(parts: Sequence[Weight], sizes: Sequence[int]) -> list[Weight]:
    """The same rows in matrices of these sizes, without a copy."""
    if [len(part) for part in parts] == list(sizes):
        return list(parts)
    [part] = parts
    ends = np.cumsum(sizes).tolist()
    starts = [end - size for end, size in zip(ends, sizes, strict=True)]
    if isinstance(part, BlockMatrix):
        return [part.part(start, end) for start, end in zip(starts, ends, strict=True)]
    return list(torch.split(part, list(sizes)))


def _split_groups(parts: Sequence[Group], count: int, size: int) -> list[Group]:
    """Gates and ups of all experts, ``size`` rows of each expert in both."""
    if len(parts) == 2:
        return list(parts)
    [part] = parts
    if not isinstance(part, BlockMatrix):
        return [[matrix[:size] for matrix in part], [matrix[size:] for matrix in part]]
    rows = np.arange(len(part)).reshape(count, 2, size)
    return [part.taken(rows[:, half].reshape(-1)) for half in range(2)]


def _halves(mixer: Attention, heads: int) -> torch.Tensor:
    """The rows of heads whose rotated columns are neighbours, in the order of halves."""
    assert mixer.rope is not None
    rotated = 2 * len(mixer.rope.frequencies)
    own = torch.cat(
        [
            torch.arange(0, rotated, 2),
            torch.arange(1, rotated, 2),
            torch.arange(rotated, mixer.head_dim),
        ]
    )
    return (own + mixer.head_dim * torch.arange(heads)[:, None]).flatten()


def _taken(weight: Weight, order: torch.Tensor) -> Weight:
    return weight.taken(order.numpy()) if isinstance(weight, BlockMatrix) else weight[order]


def angles_of(rope: Rope, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of positions ``[1, n]``, float32 ``[1, n, 2 * pairs]``: see AnglesOf."""
    angles = positions[..., None].float() * torch.tensor(rope.frequencies)
    both = torch.cat([angles, angles], -1)
    return both.cos() * rope.scale, both.sin() * rope.scale
