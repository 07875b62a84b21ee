"""CompiledExecutor: a whole decoder in one call of the compiled kernels.

Between token ids and logits a step has one call without Python: embeddings, all layers with their
attention over the paged KV cache, the last norm, and the head or the argmax of its logits. The
call's arguments are made at load, by ``core.executors.layer_calls``; a step sets what changes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from ctypes import c_int64, c_void_p
from functools import partial

from core.attention.base import AttentionBackend, KernelBackend
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.contract.errors import ModelLoadError
from core.executors.angles import AngleTable, angles_of
from core.executors.buffers import LogitsBuffer, Memory
from core.executors.layer_calls import Calls
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.structures import Angles, AttentionCall
from core.kernels.cpu.threads import LentCore
from core.kv.layer_spec import LayerSpec
from core.models.spec import Attention, DecoderSpec


class CompiledExecutor:
    """Computes the logits of packed tokens. Core thread only.

    ``layers`` are the shapes of each layer's attention.
    """

    def __init__(
        self, kernels: Kernels, calls: Calls, spec_of: Callable[[int], DecoderSpec]
    ) -> None:
        """``spec_of`` gives the spec for a served length, in tokens."""
        self._spec_of = spec_of
        self.layers: list[LayerSpec] = calls.layers
        self.begin: Callable[[], object] = lambda: None
        """Called before the layers are computed: other Python threads may run from then on."""
        self.lent: LentCore | None = None
        """A core that may be lent meanwhile."""
        self.times: AbstractContextManager[int | None] = nullcontext()
        """Surrounds the call; gives the memory of StageTimes, or None."""
        self._kernels, self._calls = kernels, calls
        self._model = calls.model
        array = c_void_p * len(calls.calls)
        self._layers = array(*map(ctypes.addressof, calls.calls))
        self._attentions = array()
        self._attention: object = None
        self._logits = LogitsBuffer(calls.spec.vocab_size)
        self._states, self._normed = Memory(), Memory()
        self._input_columns = calls.model.input_size * len(calls.calls)
        self._best = (c_int64 * 0)()
        # a layer of each kind of angles
        self._rotated = {layer.mixer.rope: i for i, layer in enumerate(calls.spec.layers)}
        self._rotated.pop(None, None)
        angles = (Angles * len(self._rotated))()
        self._angles_of: dict[object, Angles] = dict(zip(self._rotated, angles, strict=True))
        self._model.angles, self._model.num_angles = ctypes.addressof(angles), len(angles)
        self._tables: list[AngleTable] = []

    def fix_length(self, max_model_len: int) -> None:
        """Make the tables of angles, see Executor. Needed before the first step."""
        layers = self._spec_of(max_model_len).layers
        ropes = [layers[i].mixer.rope for i in self._rotated.values()]
        self._tables = [AngleTable(partial(angles_of, rope)) for rope in ropes if rope is not None]

    def attach(self, attention: AttentionBackend) -> None:
        """Compute attention with a backend from now on. Raises ModelLoadError for another kind."""
        calls = attention.kernel_calls if isinstance(attention, KernelBackend) else None
        if calls is None:
            raise ModelLoadError("the attention backend is not part of the compiled kernels")
        copies = dict(self._reusing(calls))
        self._attention = attention, copies  # keep alive what the calls point to
        addresses = {i: ctypes.addressof(copy) for i, copy in copies.items()}
        self._attentions = (c_void_p * len(calls))(*(dict(enumerate(calls)) | addresses).values())

    def _reusing(self, calls: Sequence[int]) -> Iterator[tuple[int, AttentionCall]]:
        """The layers that read what another layer has written, with its part of the cache."""
        for i, layer in enumerate(self._calls.spec.layers):
            if isinstance(layer.mixer, Attention) and layer.mixer.keys_of is not None:
                call = AttentionCall.from_buffer_copy(AttentionCall.from_address(calls[i]))
                written = AttentionCall.from_address(calls[layer.mixer.keys_of])
                for name in ("keys", "values", "key_scales", "value_scales"):
                    setattr(call, name, getattr(written, name))
                yield i, call

    def uninstall(self) -> None:
        """Release the attention. Attach another one before the next step."""
        self._attention = None

    def __call__(self, batch: ModelInput) -> Logits:
        """The logits of a step whose attention is planned, or its best tokens alone."""
        call, num_tokens, num_logits = self._model, *batch.sizes
        for table in self._tables:
            table.cover(int(batch.context_lens.max()))
        rotated = sum(table.rotated for table in self._tables)
        inputs = self._input_columns
        x = self._states.of(4 * num_tokens * (call.hidden + inputs + 2 * rotated))
        call.inputs = x + 4 * num_tokens * call.hidden
        self._point(call.inputs + 4 * num_tokens * inputs, num_tokens)
        workspace = self._calls.workspace
        workspace.fit(num_tokens)
        workspace.point(x, batch.positions.data_ptr(), self._angles_of, (call.inputs, inputs))
        room = self._logits.of(num_logits)
        if len(self._best) < num_logits:
            self._best = (c_int64 * num_logits)()
        call.num_tokens, call.num_logits = num_tokens, num_logits
        call.ids, call.places = batch.token_ids.data_ptr(), batch.positions.data_ptr()
        call.chosen = batch.logits_indices.data_ptr()
        call.x = x
        call.normed = self._normed.of(4 * num_logits * call.hidden)
        call.logits, call.logits_stride = room.address, room.stride
        call.best = ctypes.addressof(self._best) if batch.wants_best else None
        self._run(ctypes.addressof(call))
        return Logits(room.logits, self._best[:num_logits] if batch.wants_best else None)

    def _point(self, start: int, num_tokens: int) -> None:
        """Point to the tables of angles, and to memory from ``start`` on for those of the step."""
        for angles, table in zip(self._angles_of.values(), self._tables, strict=True):
            angles.cosines, angles.sines = table.addresses
            angles.rotated = table.rotated
            angles.cos, angles.sin = start, start + 4 * num_tokens * table.rotated
            start += 8 * num_tokens * table.rotated

    def _run(self, model: int) -> None:
        lent = None if self.lent is None else self.lent.address
        self.begin()
        with self.times as times:
            self._kernels.layers(
                self._layers, self._attentions, len(self._layers), model, lent, times
            )
