"""The arguments of the compiled kernels for a spec: LayerCalls and a ModelCall, weights packed.

Matrices are packed one role at a time, straight from the checkpoint. What the kernels do not
compute is refused before any weight is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from core.executors.buffers import Workspace
from core.executors.layer_builder import LayerBuilder
from core.executors.supported import check_supported, unsupported
from core.gguf.blocks import BlockMatrix
from core.kernels.cpu.layer import MAX_PARTS, LayerCall, Matrix
from core.kernels.cpu.layer import Norm as NormCall
from core.kernels.cpu.linear import PackedWeight
from core.kernels.cpu.model import ModelCall, Table
from core.layer_spec import LayerSpec
from core.models import spec as specs
from core.models.spec import DecoderSpec, Norm
from core.weights.packer import Packer
from core.weights.roles import RoleReader, Weight

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class Calls:
    """The arguments of the kernels, and what they point to.

    ``layers`` are what attention and the KV cache need.
    """

    spec: DecoderSpec
    model: ModelCall
    calls: list[LayerCall]
    layers: list[LayerSpec]
    workspace: Workspace
    kept: list[Any]


class CallBuilder:
    """Packs the weights of a spec and fills the kernels' arguments. Core thread only."""

    def __init__(self, spec: DecoderSpec, reader: RoleReader, packer: Packer) -> None:
        self.spec, self.reader, self.packer = spec, reader, packer
        self.kept: list[Any] = []  # ctypes structures do not keep what they point to
        self._workspace = Workspace()

    def build(self) -> Calls:
        """Read every tensor. Raises Undescribed for a checkpoint that the spec does not fit."""
        check_supported(self.spec)
        model = self._model()
        calls, layers = [], []
        for i, layer in enumerate(self.spec.layers):
            builder = LayerBuilder(self, layer, i)
            calls.append(builder.call(self._workspace))
            layers.append(builder.layer_spec())
        self.reader.check_all_read()
        return Calls(self.spec, model, calls, layers, self._workspace, self.kept)

    def keep(self, value: Kept) -> Kept:
        """Keep what an argument points to."""
        self.kept.append(value)
        return value

    def matrix(self, role: str, layer: int | None, shape: specs.Shape, bias: bool) -> PackedWeight:
        """Pack a matrix and its bias."""
        parts = self.reader.matrices(role, layer, shape)
        return self.stack(parts, self.bias(role, layer, shape) if bias else None)

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
        spec: Norm | None,
        role: str,
        layer: int | None,
        shape: specs.Shape,
        *,
        scale: float = 1.0,
        order: torch.Tensor | None = None,
    ) -> NormCall:
        """A norm whose result is scaled; None for none. ``order`` is that of its values."""
        if spec is None:
            return NormCall()
        weight, bias = torch.ones(shape), None
        if spec.has_weight:
            weight = self.reader.whole(role, layer, shape) + spec.offset
        if spec.has_bias:
            bias = self.reader.whole(f"{role}_bias", layer, shape).flatten() * scale
        weight = weight.flatten() * scale
        if order is not None:
            weight, bias = weight[order], None if bias is None else bias[order]
        self.kept += [weight, bias]
        return NormCall.of(weight, bias, eps=spec.eps, center=spec.kind == "layer")

    def _model(self) -> ModelCall:
        spec, reader, hidden = self.spec, self.reader, self.spec.hidden_size
        shape = (spec.vocab_size, hidden)
        [embedding] = reader.matrices("embedding", None, shape)
        bias = None
        if spec.has_head_bias:
            bias = reader.whole("head_bias", None, shape[:1]) * spec.logit_scale
        if spec.ties_head:
            head = self.stack([embedding], bias)
            tokens = Table.of_packed(head, spec.embedding_scale)
        else:
            head = self.stack(reader.matrices("head", None, shape), bias)
            tokens = self._table(embedding, spec.embedding_scale)
        norm = self.norm(spec.final_norm, "final_norm", None, (hidden,), scale=spec.logit_scale)
        positions = Table()
        if spec.num_positions is not None:
            table = reader.whole("positions", None, (spec.num_positions, hidden))
            positions = Table.of_rows(self.keep(table)) or Table()
        call = ModelCall(
            tokens=tokens,
            positions=positions,
            norm=norm,
            head=Matrix.of(head),
            hidden=hidden,
            embedding_norm=self.norm(spec.embedding_norm, "embedding_norm", None, (hidden,)),
            logit_cap=spec.logit_cap or 0.0,
        )
        if spec.layer_input is not None:
            self._set_inputs(call, spec.layer_input)
        return call

    def _set_inputs(self, call: ModelCall, spec: specs.LayerInput) -> None:
        """The factors of both halves of the mean are those of a table and of a norm."""
        hidden, num_layers = self.spec.hidden_size, len(self.spec.layers)
        shapes = dict(spec.tensors(hidden, num_layers))
        [embedding] = self.reader.matrices("input_embedding", None, shapes["input_embedding"])
        projection = self.matrix("input_projection", None, shapes["input_projection"], bias=False)
        # its input is divided by the root of its columns
        norm = replace(spec.norm, eps=spec.norm.eps * hidden)
        call.input_table = self._table(embedding, (spec.size / 2) ** 0.5)
        call.input_projection = Matrix.of(projection)
        call.input_norm = self.norm(norm, "input_norm", None, (spec.size,), scale=2**-0.5)
        call.input_size = spec.size

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
