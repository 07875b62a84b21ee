"""The arguments of the compiled kernels for a spec: LayerCalls and a ModelCall, weights packed.

Matrices are packed one role at a time, straight from the checkpoint. What the kernels do not
compute is refused before any weight is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from core.executors.buffers import Workspace
from core.executors.layer_builder import LayerBuilder
from core.executors.role_packer import RolePacker
from core.executors.supported import check_supported
from core.kernels.cpu.structures import LayerCall, Matrix, ModelCall, Table
from core.kv.layer_spec import LayerSpec
from core.models import spec as specs
from core.models.spec import DecoderSpec
from core.observe import load_progress
from core.weights.packer import Packer
from core.weights.quantiser import Quantiser
from core.weights.roles import RoleReader


@dataclass(frozen=True, slots=True)
class Calls:
    """The arguments of the kernels, and what they point to.

    ``layers`` are the layers' attention for a backend and the KV cache.
    """

    spec: DecoderSpec
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
        self._spec, self._roles = spec, RolePacker(reader, packer, quantiser)
        self._workspace = Workspace()

    def build(self) -> Calls:
        """Read every tensor. Raises Undescribed for a checkpoint that the spec does not fit."""
        check_supported(self._spec)
        load_progress.begin("loading weights", len(self._spec.layers) + 1)
        model = self._model()
        load_progress.advance()
        calls, layers = [], []
        for i, layer in enumerate(self._spec.layers):
            builder = LayerBuilder(self._roles, self._spec.hidden_size, layer, i)
            calls.append(builder.call(self._workspace))
            layers.append(builder.layer_spec())
            load_progress.advance()
        self._roles.reader.check_all_read()
        return Calls(self._spec, model, calls, layers, self._workspace, self._roles.kept)

    def _model(self) -> ModelCall:
        spec, reader, hidden = self._spec, self._roles.reader, self._spec.hidden_size
        shape = (spec.vocab_size, hidden)
        source = self._roles if spec.ties_head else reader
        [embedding] = source.matrices("embedding", None, shape)
        bias = None
        if spec.has_head_bias:
            bias = reader.whole("head_bias", None, shape[:1]) * spec.logit_scale
        if spec.ties_head:
            head = self._roles.stack([embedding], bias)
            tokens = Table.of_packed(head, spec.embedding_scale)
        else:
            head = self._roles.stack(self._roles.matrices("head", None, shape), bias)
            tokens = self._roles.table(embedding, spec.embedding_scale)
        norm = self._roles.norm(
            spec.final_norm, "final_norm", None, (hidden,), scale=spec.logit_scale
        )
        positions = Table()
        if spec.num_positions is not None:
            table = reader.whole("positions", None, (spec.num_positions, hidden))
            positions = Table.of_rows(self._roles.keep(table)) or Table()
        call = ModelCall(
            tokens=tokens,
            positions=positions,
            norm=norm,
            head=Matrix.of(head),
            hidden=hidden,
            embedding_norm=self._roles.norm(spec.embedding_norm, "embedding_norm", None, (hidden,)),
            logit_cap=spec.logit_cap or 0.0,
        )
        if spec.layer_input is not None:
            self._set_inputs(call, spec.layer_input)
        return call

    def _set_inputs(self, call: ModelCall, spec: specs.LayerInput) -> None:
        """The factors of both halves of the mean are those of a table and of a norm."""
        hidden, num_layers = self._spec.hidden_size, len(self._spec.layers)
        shapes = dict(spec.tensors(hidden, num_layers))
        [embedding] = self._roles.reader.matrices(
            "input_embedding", None, shapes["input_embedding"]
        )
        projection = self._roles.matrix(
            "input_projection", None, shapes["input_projection"], bias=False
        )
        # its input is divided by the root of its columns
        norm = replace(spec.norm, eps=spec.norm.eps * hidden)
        call.input_table = self._roles.table(embedding, (spec.size / 2) ** 0.5)
        call.input_projection = Matrix.of(projection)
        call.input_norm = self._roles.norm(norm, "input_norm", None, (spec.size,), scale=2**-0.5)
        call.input_size = spec.size
